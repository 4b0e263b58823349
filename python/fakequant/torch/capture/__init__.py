"""Reads the forward of a module as a graph of torch.fx, rewrites it, and runs graphs."""
