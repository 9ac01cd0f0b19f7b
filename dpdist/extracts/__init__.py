"""Records that stand in no files: read by kinds of tables that plugins add, into files of this run."""
