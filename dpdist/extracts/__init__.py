"""Records that stand in databases and lake tables: read through dpdist's own readers into files of this run."""
