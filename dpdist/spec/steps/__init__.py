"""What parts of a release's budget find before it is planned: one class each, and its place in ``step_registry.py``."""
