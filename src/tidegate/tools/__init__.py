"""What the command line offers beside a run: check, verify, encode, and the live display."""
