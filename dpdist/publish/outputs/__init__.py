"""The files of a release beside its certificate: one output a file of this folder, and a registry."""
