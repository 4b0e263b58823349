"""torchao's quantization-aware training: linear layers, ranges of each forward pass (activations by the row)."""

import torch
from formats import Unsupported, layer_formats
from torch import nn
from torchao.quantization import quantize_
from torchao.quantization.granularity import PerRow
from torchao.quantization.qat import Float8FakeQuantizeConfig, IntxFakeQuantizeConfig, QATConfig

FOLLOWS_FLOAT = False
DTYPES = {8: torch.int8, 4: torch.int4, 3: torch.int3, 2: torch.int2}


def make_configs(format):
    if format.kind == "nvfp4":
        from torchao.prototype.qat import NVFP4FakeQuantizeConfig

        return NVFP4FakeQuantizeConfig(), NVFP4FakeQuantizeConfig()
    if format.kind == "fp8":
        return Float8FakeQuantizeConfig(granularity=PerRow()), Float8FakeQuantizeConfig(granularity=PerRow())
    return (IntxFakeQuantizeConfig(DTYPES[format.activation_bits], "per_token", is_symmetric=False),
            IntxFakeQuantizeConfig(DTYPES[format.weight_bits], "per_channel", is_symmetric=True))


def quantized(network, wanted, x):
    layers = layer_formats(network, wanted)
    if not all(isinstance(layer, nn.Linear) for _, layer, _ in layers):
        raise Unsupported("torchao 0.18 trains linear layers alone")
    for name, _, format in layers:
        activations, weights = make_configs(format)
        quantize_(network, QATConfig(activation_config=activations, weight_config=weights, step="prepare"),
                  filter_fn=lambda module, path, name=name: path == name)
    try:
        with torch.no_grad():
            network(x)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise Unsupported(str(error).splitlines()[0]) from error
    return network
