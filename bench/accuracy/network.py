"""A float checkpoint as a PyTorch module."""

import json

import h5py
import numpy as np
import torch
import torch_networks
from torch_peer import Network


def load(path, x):
    """`x` are samples, to build the layers. A file .pt is one of torch_networks.py."""
    if path.endswith(".pt"):
        saved = torch.load(path)
        network = torch_networks.make(saved["model"])
        network.load_state_dict(saved["state"])
        return network
    with h5py.File(path) as file:
        model = json.loads(file["attributes"][()])["model"]
        values = {name: torch.from_numpy(np.asarray(array)) for group in ("parameters", "buffers") if group in file
                  for name, array in file[group].items()}
    network = Network(model["model"]["nodes"], model["classes"])
    with torch.no_grad():
        network(x[:2])
    modules = {node["name"]: f"layers.n{index}" for index, node in enumerate(network.nodes)}
    state = {}
    for name, value in values.items():
        node, _, field = name.rpartition(".")
        state[f"{modules[node]}.{field}"] = value
    missing, unexpected = network.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise ValueError(f"{path}: without {missing}, with {unexpected}")
    return network
