"""Records to counts: which files there are, what is read of them, and how it is counted."""
