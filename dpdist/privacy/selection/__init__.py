"""Choices that are private: which names and rows are published, and which values are chosen."""
