"""Values of a network of codes, as ExecuTorch gets them: codes, and sums of their products that no quantizer has rounded yet."""
import numpy as np
import torch

from executorch_operators import KEEPS_CHANNELS, MOVES


class Codes:
    """A value on the grid of a quantizer."""

    def __init__(self, x, node):
        zero = node["zero_point"]
        self.grid = (node["scale"], zero, int(node["low"]) + zero, int(node["high"]) + zero, torch.int8)
        self.codes = torch.ops.quantized_decomposed.quantize_per_tensor(x, *self.grid)

    def floats(self):
        return torch.ops.quantized_decomposed.dequantize_per_tensor(self.codes, *self.grid)


class Sums:
    """What products of codes add up to, biases included: whole numbers as floats, which no order of sums changes below 2^24, and
    the scale of each channel."""

    kept_by = KEEPS_CHANNELS

    def __init__(self, sums, scale):
        self.sums, self.scale = sums, scale

    def floats(self):
        return self.sums * self.scale

    def through(self, function):
        """Of a function that `kept_by` names: it compares or moves values of one scale."""
        return type(self)(function(self.sums), self.scale)

    def rounded(self, factor, node):
        """On the grid of a quantizer by one multiplication, as sums are rounded here; `factor` is scale over the grid's."""
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
