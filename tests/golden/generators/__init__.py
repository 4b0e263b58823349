"""What generate.py runs: a module <family>_cases for each family of references."""
