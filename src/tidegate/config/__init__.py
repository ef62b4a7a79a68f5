"""Sink URI, TOML file and options become frozen values with units; option text is read here and nowhere else."""
