"""Modules of generate.py: <family>_cases for each family of references."""
