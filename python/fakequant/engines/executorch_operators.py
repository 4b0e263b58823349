"""PyTorch code for the operators of a network file of fakequant, and for values on integer grids between them."""
import numpy as np
import torch
from torch.nn import functional

from .comparison import Unusable


def layer_norm(inputs, attributes):
    x, weight, bias = (*inputs, None, None)[:3]
    return functional.layer_norm(x, x.shape[x.ndim - attributes["axes"]:], weight, bias, attributes["eps"])


def attention(inputs, attributes):
    q, k, v, mask = (*inputs, None)[:4]
    if mask is not None:
        raise Unusable("attention with a mask of its own is not supported for ExecuTorch")
    scores = torch.matmul(q, k.transpose(-2, -1)) * attributes["scale"]
    if attributes["causal"]:
        rows, columns = scores.shape[-2:]
        scores = scores + torch.full((rows, columns), -1e30).triu(1)
    return torch.matmul(torch.softmax(scores, -1), v)


def sliced(inputs, attributes):
    end = min(attributes["end"], inputs[0].shape[attributes["axis"]])
    return inputs[0][(slice(None),) * attributes["axis"] + (slice(attributes["begin"], end, attributes["step"]),)]


PRODUCTS = {  # arguments: input, weight, bias or None, attributes
    "linear": lambda x, w, b, a: functional.linear(x, w, b),
    "conv2d": lambda x, w, b, a: functional.conv2d(x, w, b, a["stride"], a["padding"], a["dilation"], a["groups"]),
    "conv_transpose2d": lambda x, w, b, a: functional.conv_transpose2d(x, w, b, a["stride"], a["padding"], a["output_padding"],
                                                                      a["groups"], a["dilation"])}
KEEPS_CHANNELS = {"dequantize", "to_float", "dropout", "relu", "max_pool2d"}  # and commutes with positive scales
MOVES = {"dequantize", "to_float", "reshape", "flatten", "transpose", "slice", "max_pool2d", "dropout"}
OPERATORS = {
    "dequantize": lambda i, a: i[0], "to_float": lambda i, a: i[0], "dropout": lambda i, a: i[0],
    "relu": lambda i, a: torch.relu(i[0]), "gelu": lambda i, a: functional.gelu(i[0], approximate=a["approximate"]),
    "silu": lambda i, a: functional.silu(i[0]), "sigmoid": lambda i, a: torch.sigmoid(i[0]),
    "tanh": lambda i, a: torch.tanh(i[0]), "softmax": lambda i, a: torch.softmax(i[0], a["axis"]),
    "add": lambda i, a: i[0] + i[1], "sub": lambda i, a: i[0] - i[1], "multiply": lambda i, a: i[0] * i[1],
    "layer_norm": layer_norm, "embedding": lambda i, a: functional.embedding(i[0], i[1]),
    "reshape": lambda i, a: i[0].reshape(a["shape"]), "flatten": lambda i, a: i[0].flatten(a["start_axis"]),
    "transpose": lambda i, a: i[0].permute(a["axes"]), "slice": sliced,
    "concat": lambda i, a: torch.cat(i, a["axis"]),
    "scaled_dot_product_attention": attention,
    "max_pool2d": lambda i, a: functional.max_pool2d(i[0], a["kernel"], a["stride"], a["padding"]),
    "global_avg_pool2d": lambda i, a: i[0].mean((2, 3), keepdim=True)}


class Codes:
    """Codes of a value on the grid of a quantizer."""

    def __init__(self, x, node):
        zero = node["zero_point"]
        self.grid = (node["scale"], zero, int(node["low"]) + zero, int(node["high"]) + zero, torch.int8)
        self.codes = torch.ops.quantized_decomposed.quantize_per_tensor(x, *self.grid)

    def floats(self):
        return torch.ops.quantized_decomposed.dequantize_per_tensor(self.codes, *self.grid)


class Sums:
    """Sums of products of codes with the bias: whole numbers as floats, and the scale of each channel.

    Below 2^24 all orders of summation give the same sum.
    """

    kept_by = KEEPS_CHANNELS

    def __init__(self, sums, scale):
        self.sums, self.scale = sums, scale

    def floats(self):
        return self.sums * self.scale

    def through(self, function):
        """Applies an operator of `kept_by`, which only compares or moves values of one scale."""
        return type(self)(function(self.sums), self.scale)

    def rounded(self, factor, node):
        """Rounds the sums to the grid of a quantizer by one multiplication. `factor` is the scale of the sums divided by the scale of the grid."""
        steps = torch.clamp(torch.round(self.sums * factor), node["low"], node["high"])
        return Codes(steps * node["scale"], node)


class PooledSums(Sums):
    """Sums of `count` pixels: their scale is a pair, one for all channels and the count."""

    kept_by = KEEPS_CHANNELS | MOVES

    def floats(self):
        scale, count = map(np.float32, self.scale)
        return self.sums * float(scale / count)

    def rounded(self, factor, node):
        scale, count = map(np.float32, self.scale)
        return super().rounded(float(scale / (np.float32(node["scale"]) * count)), node)
