"""Auditors that others wrote, run against the shipped package; each must pass it and find a fault that is planted."""
