"""Mutation runs: small faults planted one at a time in the code that privacy rests on, each to be caught by a test."""
