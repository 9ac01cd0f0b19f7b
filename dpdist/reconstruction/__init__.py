"""Answers from a noisy measurement: least squares over measured spaces, non-negative tables and trees."""
