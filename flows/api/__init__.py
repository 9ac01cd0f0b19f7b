"""The face of the application: what plugins import of it, beside ``dpdist.api``."""
