"""DDL events: what they touch, which tables they leave, the queries and the schema files they write."""
