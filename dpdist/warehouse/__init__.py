"""Published answers as rows of a table that others query: Iceberg, Delta, PostgreSQL. Every release is there once."""
