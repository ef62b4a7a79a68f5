"""The only door for bytes on the sink: files, object stores."""
