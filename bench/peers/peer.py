"""Shared code of the peers: the list of rows, arrays exchanged with our side, versions."""

import os
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Callable, Optional

ROWS = {}  # name -> function of the settings (threads, exchange) that gives a Side


@dataclass
class Side:
    run: Callable[[], Any]  # one call is timed
    results: Callable[[], dict] = dict  # name -> tensor of one call, compared by the own side
    value: Optional[Callable[[], float]] = None  # a measurement other than time
    variant: str = ""  # the fastest implementation, for the report
    variants: dict = field(default_factory=dict)  # the measurement of each implementation


def row(*names):
    """Registers the function below as the maker of these rows; it is given the row's name and the settings."""

    def register(make):
        for name in names:
            ROWS[name] = lambda settings, name=name: make(name, settings)
        return make

    return register


def read_array(folder, name, dtype=None):
    """<folder>/<name>.bin as a 1-D torch tensor in memory of its own."""
    import torch

    dtype = dtype or torch.float32
    path = os.path.join(folder, name + ".bin")
    size = os.path.getsize(path) // dtype.itemsize
    return torch.from_file(path, size=size, dtype=dtype).clone()


def write_array(folder, name, tensor):
    tensor.detach().contiguous().numpy().tofile(os.path.join(folder, name + ".bin"))


def versions():
    found = {}
    for package in ("torch", "torchao", "nvidia-modelopt", "brevitas", "onnx", "onnxruntime", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found
