"""A static site over the releases of a data set: series, comparisons and feeds."""
