"""A small shop in a database: tables of many kinds, clients that change rows, and one that changes tables."""
