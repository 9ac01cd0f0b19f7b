"""What is asked: one file a kind of queries, and the statistics and importances that every kind can have."""

from dpdist.spec.queries.query_group import QUERIES, QuerySpec

__all__ = ["QUERIES", "QuerySpec"]
