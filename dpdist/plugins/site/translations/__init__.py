"""The sentences of the site's pages in other languages."""
