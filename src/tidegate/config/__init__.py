"""Turns the sink URI, the TOML file and options into frozen values with units. No other room reads option text."""
