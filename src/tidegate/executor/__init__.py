"""What runs in Spark tasks: ingest (encode into the spool), land (spool to store), and what crosses to the driver."""
