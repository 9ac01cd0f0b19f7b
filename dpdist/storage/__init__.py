"""The machine a release runs on: files and object stores, stored arrays, and work on Dask or in this process."""
