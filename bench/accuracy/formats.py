"""Formats of the peers. As with fakequant's defaults, the first and last layer use INT8 with integer formats of 4 bits or fewer, and
E4M3 with NVFP4. The tools then differ only in calibration and training."""

from dataclasses import dataclass

import torch
from torch import nn

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Linear)


class Unsupported(Exception):
    """The tool has no such format on this network; the message says why."""


@dataclass(frozen=True)
class Format:
    kind: str  # int, fp8 (E4M3) or nvfp4
    weight_bits: int = 8
    activation_bits: int = 8

    @property
    def edge(self):
        """The format of the first and the last layer."""
        return Format("int") if self.kind == "int" else Format("fp8")


FORMATS = {"int8": Format("int"), "w4a8": Format("int", 4, 8), "w4a4": Format("int", 4, 4), "w3a3": Format("int", 3, 3),
           "w2a2": Format("int", 2, 2), "fp8": Format("fp8"), "nvfp4": Format("nvfp4")}


def named_layers(network):
    return [(name, module) for name, module in network.named_modules() if isinstance(module, LAYERS)]


def layer_formats(network, wanted):
    """(name, layer, format) of every layer with weights; they are in the order of the graph."""
    layers = named_layers(network)
    return [(name, layer, wanted.edge if index in (0, len(layers) - 1) else wanted)
            for index, (name, layer) in enumerate(layers)]


def replace(network, name, module):
    parent, _, child = name.rpartition(".")
    parent = network.get_submodule(parent)
    if isinstance(parent, nn.ModuleDict):
        parent[child] = module
    else:
        setattr(parent, child, module)


def layer_inputs(network, x):
    """Returns the input of each layer with weights for the samples `x`, in evaluation mode."""
    found = {}
    hooks = [layer.register_forward_pre_hook(lambda layer, inputs: found.update({layer: inputs[0]}))
             for _, layer in named_layers(network)]
    with torch.no_grad():
        network.eval()(x)
    for hook in hooks:
        hook.remove()
    return found
