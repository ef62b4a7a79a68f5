"""What can be seen of a changefeed: the table of metrics, and its status at one moment."""
