"""Brevitas with learned scales (per channel for weights, per tensor for activations), initialised from data statistics."""

import torch
from brevitas import nn as quant_nn
from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat, Uint8ActPerTensorFloat
from brevitas.quant.experimental import float_quant_ocp
from formats import Unsupported, layer_formats, layer_inputs, replace
from torch import nn

FOLLOWS_FLOAT = False
MADE = {nn.Linear: quant_nn.QuantLinear, nn.Conv1d: quant_nn.QuantConv1d, nn.Conv2d: quant_nn.QuantConv2d}


def quantizers(format, unsigned):
    learned = {"weight_scaling_impl_type": "parameter_from_stats", "input_collect_stats_steps": 2}
    if format.kind == "fp8":
        return {"weight_quant": float_quant_ocp.Fp8e4m3OCPWeightPerChannelFloat,
                "input_quant": float_quant_ocp.Fp8e4m3OCPActPerTensorFloat, **learned}
    return {"weight_quant": Int8WeightPerChannelFloat, "weight_bit_width": format.weight_bits,
            "input_quant": Uint8ActPerTensorFloat if unsigned else Int8ActPerTensorFloat,
            "input_bit_width": format.activation_bits, **learned}


def make_layer(layer, **options):
    options["bias"] = layer.bias is not None
    if isinstance(layer, nn.Linear):
        made = quant_nn.QuantLinear(layer.in_features, layer.out_features, **options)
    else:
        made = MADE[type(layer)](layer.in_channels, layer.out_channels, layer.kernel_size, stride=layer.stride,
                                 padding=layer.padding, dilation=layer.dilation, groups=layer.groups, **options)
    made.load_state_dict(layer.state_dict(), strict=False)
    return made


def quantized(network, wanted, x):
    if wanted.kind == "nvfp4":
        raise Unsupported("Brevitas 0.13 has no FP4 in blocks of 16 with scales in E4M3")
    inputs = layer_inputs(network, x)
    for name, layer, format in layer_formats(network, wanted):
        replace(network, name, make_layer(layer, **quantizers(format, inputs[layer].min() >= 0)))
    for module in network.modules():
        module.training = not isinstance(module, nn.modules.batchnorm._BatchNorm)
    with torch.no_grad():
        for _ in range(3):  # statistics of two batches, then parameters
            network(x)
    return network
