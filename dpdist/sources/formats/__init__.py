"""Formats of files of records: one file each, and a registry."""
