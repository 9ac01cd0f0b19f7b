"""Mechanisms: what each answers, what it takes, and how it is planned. One file each, and one line in the registry."""
