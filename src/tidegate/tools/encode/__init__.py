"""`tidegate encode`: takes rows as JSON and tables as SQL, and writes the bytes that a changefeed would write."""
