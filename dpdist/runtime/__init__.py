"""What a release runs with: its context, vectors in the store, and the agreement of ledger and store."""
