"""Data sets from Debian packages: scripts/data."""
