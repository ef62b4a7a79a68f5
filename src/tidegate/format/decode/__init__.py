"""Bytes of data files back into rows: the exact inverse of `format.encode`."""
