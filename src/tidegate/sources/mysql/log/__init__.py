"""Reads the binary log of MySQL 9 and MariaDB 10.11. Pure: bytes in, columns of change events out.

framing         packets, events, checksums
control_events  log files, transactions, statements, compressed transactions
table_map       how the columns of a table are stored; layouts: the column layout that follows from it
rows            row events to `before` and `after`, by way of images (where the values stand), texts (what each value
                is as text), digits, json_binary and charsets
"""
