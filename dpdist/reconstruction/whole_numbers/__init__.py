"""Answers in whole numbers that add up, and that hold what was published before."""
