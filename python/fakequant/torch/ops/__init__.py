"""Translates nodes of a graph, modules and functions of torch into layers of the library."""
