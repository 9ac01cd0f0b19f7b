"""What a reader gets: tables, charts, one page a release, and a site of many."""
