"""MySQL and MariaDB as live sources: `dump.py` asks a server for its binary log, `log/` reads it."""
