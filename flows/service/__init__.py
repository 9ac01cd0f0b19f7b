"""The measuring service and its client."""
