"""A release, from its spec to its files: everything that mathematics, ledger, store and engine do together."""
