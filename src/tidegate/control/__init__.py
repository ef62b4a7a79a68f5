"""Who decides: pure values. No clock, I/O, thread or Spark; facts in, actions out, columnar by dense numbers."""
