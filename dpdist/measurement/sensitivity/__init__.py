"""Exact sensitivity of integer measurements, for records and for persons."""
