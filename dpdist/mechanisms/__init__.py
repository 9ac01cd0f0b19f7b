"""Mechanisms: what each answers, what it takes, and how it is planned. One class each, and one name in the registry."""
