"""Approved texts: everything that people read of some fixed small releases, compared word for word with files of this folder."""
