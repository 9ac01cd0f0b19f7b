"""Measurements: what is measured as whole numbers, its exact sensitivity, and how answers are read. One representation a file."""
