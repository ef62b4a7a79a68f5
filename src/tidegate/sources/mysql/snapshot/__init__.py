"""The rows that a table already has when it is followed from: read in chunks of its key, while the log goes on.

select    the SQL of a chunk: what is asked for each column, and the borders
protocol  the answer, by columns
answers   the answer as the texts of change events: the same bytes as from the log
"""
