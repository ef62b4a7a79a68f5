"""Reads SQL: definitions of columns and tables, defaults, and values as a user writes them."""
