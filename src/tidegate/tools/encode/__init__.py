"""`tidegate encode`: rows given as JSON, tables given as SQL, bytes as a changefeed would write them."""
