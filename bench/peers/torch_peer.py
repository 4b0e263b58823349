"""The float networks of the recipes, trained by PyTorch: the peer of docs/benchmarks/accuracy.md.

    python bench/peers/torch_peer.py recipes/letters.json build/data/letters.h5 1

builds the recipe's model from its nodes, trains it as the recipe's phase of `train` says (AdamW without decay of
biases, norms and embeddings, OneCycleLR, the batch, the label smoothing) and prints the accuracy on the group `test`.
"""

import json
import os
import sys

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_json(path):
    with open(path) as file:
        return json.loads("".join(line for line in file if not line.lstrip().startswith("//")))


def load_nodes(recipe):
    if recipe["model"] != "mlp":
        return load_json(os.path.join(ROOT, recipe["model"]))["nodes"]
    nodes = [{"type": "flatten"}]
    for width in recipe["model-options"]["hidden"]:
        nodes += [{"type": "linear", "options": {"out_features": width, "bias": False}}, {"type": "batch_norm"}, {"type": "relu"}]
    return nodes + [{"type": "linear", "options": {"out_features": "classes"}}]


def layer(kind, options, x, classes):
    """Returns the module of a node, for inputs like `x`."""
    channels = x.shape[-1] if kind == "linear" else x.shape[1]
    sizes = [classes if options.get(key) == "classes" else options.get(key) for key in ("out_channels", "out_features")]
    if kind in ("conv1d", "conv2d"):
        conv_type = nn.Conv1d if kind == "conv1d" else nn.Conv2d
        return conv_type(channels, sizes[0], options["kernel"], stride=options.get("stride", 1), padding=options.get("padding", 0),
                       dilation=options.get("dilation", 1), bias=options.get("bias", True))
    if kind == "linear":
        return nn.Linear(channels, sizes[1], bias=options.get("bias", True))
    if kind == "batch_norm":
        return (nn.BatchNorm2d if x.dim() == 4 else nn.BatchNorm1d)(channels)
    if kind == "embedding":
        return nn.Embedding(options["vocabulary"], options["width"])
    return {"relu": nn.ReLU, "flatten": nn.Flatten, "max_pool": lambda: nn.MaxPool2d(options["kernel"]),
            "global_avg_pool": lambda: nn.AdaptiveAvgPool2d(1)}[kind]()


class Network(nn.Module):
    """The nodes of a model file, built as the first batch goes through them."""

    def __init__(self, nodes, classes):
        super().__init__()
        self.nodes, self.classes, self.layers = nodes, classes, nn.ModuleDict()

    def run(self, index, node, x):
        kind, options = node["type"], node.get("options", {})
        if kind == "transpose":
            return x[0].permute(*options["axes"])
        if kind == "pad":
            return functional.pad(x[0], (options["before"][0], options["after"][0]))
        if kind == "add":
            return x[0] + x[1]
        name = f"n{index}"
        if name not in self.layers:
            self.layers[name] = layer(kind, options, x[0], self.classes)
        return self.layers[name](x[0])

    def forward(self, x):
        values = {"input": x}
        for index, node in enumerate(self.nodes):
            x = self.run(index, node, [values[name] for name in node["inputs"]] if "inputs" in node else [x])
            values[node.get("name", index)] = x
        return x


def load(path, split):
    with h5py.File(path) as file:
        x, y = file[split]["x"], file[split]["y"][()]
        scale = x.attrs.get("scale")
        if x.dtype.kind in "iu" and scale is None:
            return torch.from_numpy(x[()].astype(np.int64)), torch.from_numpy(y.astype(np.int64))
        values = x[()].astype(np.float32) * np.float32(1 if scale is None else scale)
        return torch.from_numpy(values), torch.from_numpy(y.astype(np.int64))


def decayed(network, rate):
    """Decay of weights alone: not of biases, norms and embeddings."""
    weights = {id(module.weight) for module in network.modules() if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d))}
    groups = {True: [], False: []}
    for parameter in network.parameters():
        groups[id(parameter) in weights].append(parameter)
    return [{"params": groups[True], "weight_decay": rate}, {"params": groups[False], "weight_decay": 0.0}]


def train(network, x, y, phase):
    batch, epochs = phase["batch"], phase["epochs"]
    batches = len(x) // batch
    optimizer = torch.optim.AdamW(decayed(network, phase.get("weight-decay", 0.01)), lr=phase["lr"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, phase["lr"], total_steps=epochs * batches, cycle_momentum=False)
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for rows in order[:batches * batch].split(batch):
            optimizer.zero_grad()
            functional.cross_entropy(network(x[rows]), y[rows], label_smoothing=phase.get("label-smoothing", 0.0)).backward()
            optimizer.step()
            schedule.step()


def accuracy(network, x, y):
    network.eval()
    with torch.no_grad():
        right = [(network(a).argmax(-1) == b).double() for a, b in zip(x.split(256), y.split(256))]
    return torch.cat(right).mean().item()


def main(recipe_file, data, seed):
    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    recipe = load_json(recipe_file)
    x, y = load(data, "train")
    network = Network(load_nodes(recipe), int(y.max()) + 1)
    network(x[:2])
    network.train()
    train(network, x, y, next(phase for phase in recipe["phases"] if phase["command"] == "train"))
    print(f"{recipe_file} seed {seed}: {accuracy(network, *load(data, 'test')):.4f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
