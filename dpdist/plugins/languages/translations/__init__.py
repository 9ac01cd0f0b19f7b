"""Sentences of pages and certificates in German, French and Spanish."""
