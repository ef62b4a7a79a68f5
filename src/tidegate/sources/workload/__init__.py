"""The built-in workload: a seed determines all rows and DDLs, so `verify` can compute what must have landed."""
