"""What several benchmarks share: running a changefeed, crashing it, measuring memory, ages and disks."""
