"""Joins measurements of the same records by generalised least squares, in memory or slab by slab."""
