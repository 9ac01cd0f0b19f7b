"""The sections of a release spec, one file each."""
