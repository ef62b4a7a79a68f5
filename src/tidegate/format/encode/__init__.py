"""Rows into the bytes of data files: CSV, canal-json, and which span of a split table a row belongs to."""
