"""Strategies for continual release: banded and buffered Toeplitz, triangular factors, several participations of a person."""
