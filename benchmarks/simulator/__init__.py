"""What a release of very many cells asks of a cluster: a model, and the release's own orchestration on simulated storage."""
