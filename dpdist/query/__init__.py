"""Questions to a finished release: answered from its published measurement, with exact standard errors and without budget."""
