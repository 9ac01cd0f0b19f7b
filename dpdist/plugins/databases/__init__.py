"""Records out of databases: the result of one query, of PostgreSQL, of a DuckDB database, or by DuckDB over files."""

from dpdist.api import Plugin

PLUGIN = Plugin("databases", sources=("dpdist.plugins.databases.query_source:QuerySource",))
