"""Which tables and columns are written, under which names, and what becomes of a change before it is encoded."""
