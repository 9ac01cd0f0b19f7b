"""The files of a release: one output a file of ``outputs``, and the folder that holds them."""
