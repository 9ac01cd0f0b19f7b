"""Eyes on a release: metrics, JSON lines, traces, lineage. Public facts only, and nothing of it can fail or hold up a release."""
