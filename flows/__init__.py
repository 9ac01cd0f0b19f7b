"""The application on top of the library: Prefect flows and the command line."""
