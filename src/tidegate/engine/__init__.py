"""Who acts: the streaming query, the tasks on executors, the driver's shell and the door to storage."""
