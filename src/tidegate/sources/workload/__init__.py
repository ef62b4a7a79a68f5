"""The built-in workload: rows and DDLs that follow from a seed, so that `verify` can say what must have landed."""
