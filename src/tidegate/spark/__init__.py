"""The streaming query, the Spark session and the jobs on executors."""
