"""An expert's own PyTorch code: learned step sizes (LSQ, Esser et al. 2020) initialised at the least squared error, weights per
channel, 8 bits in the first and last layer, half of the loss by distillation. Float formats use straight-through gradients and
fixed ranges."""

import torch
from formats import layer_formats, layer_inputs
from quantized import round_e2m1
from torch import nn

FOLLOWS_FLOAT = True


def round_through(x):
    return x + (torch.round(x) - x).detach()


def scale_gradient(x, factor):
    return x * factor + (x - x * factor).detach()


def least_error_step(rows, low, high):
    """Returns for each row the step with the least squared error among 80 fractions of largest magnitude / bound."""
    largest = rows.abs().amax(1, keepdim=True).clamp(min=1e-8) / max(high, 1)
    best, least = largest.clone(), torch.full_like(largest, torch.inf)
    for share in torch.linspace(0.2, 1, 80):
        step = largest * share
        error = ((rows / step).round().clamp(low, high) * step - rows).square().sum(1, keepdim=True)
        best, least = torch.where(error < least, step, best), torch.minimum(error, least)
    return best


class Lsq(nn.Module):
    def __init__(self, rows, bits, unsigned, shape):
        super().__init__()
        self.low, self.high = (0, 2**bits - 1) if unsigned else (-2**(bits - 1), 2**(bits - 1) - 1)
        self.step = nn.Parameter(least_error_step(rows, self.low, self.high).reshape(shape))

    def forward(self, x):
        step = scale_gradient(self.step, (self.high * x.numel() / self.step.numel())**-0.5)
        return round_through((x / step).clamp(self.low, self.high)) * step


class E4m3(nn.Module):
    def __init__(self, rows, shape):
        super().__init__()
        self.register_buffer("scale", (rows.abs().amax(1) / 448).clamp(min=1e-8).reshape(shape))

    def forward(self, x):
        clipped = (x / self.scale).clamp(-448, 448)
        return (clipped + (clipped.detach().to(torch.float8_e4m3fn).float() - clipped).detach()) * self.scale


class Nvfp4(nn.Module):
    """Blocks of 16 along the axis that products sum over, scales in E4M3 of each input, above one of the tensor."""

    def __init__(self, rows):
        super().__init__()
        self.register_buffer("unit", rows.abs().max() / (6 * 448))

    def forward(self, x):
        moved = x.detach().movedim(1, -1)
        blocks = nn.functional.pad(moved, (0, -moved.shape[-1] % 16)).unflatten(-1, (-1, 16))
        scale = (blocks.abs().amax(-1, keepdim=True) / (6 * self.unit)).clamp(2**-9, 448)
        scale = scale.to(torch.float8_e4m3fn).float() * self.unit
        values = (round_e2m1(blocks / scale) * scale).flatten(-2)[..., :moved.shape[-1]].movedim(-1, 1)
        return x + (values - x.detach())


def quantizer(tensor, kind, bits, unsigned, channels):
    """`channels`: a range for each of axis 0."""
    rows, shape = (tensor.flatten(1), (-1, *[1] * (tensor.dim() - 1))) if channels else (tensor.reshape(1, -1), (1,))
    if kind == "int":
        return Lsq(rows, bits, unsigned, shape)
    return E4m3(rows, shape) if kind == "fp8" else Nvfp4(rows)


class QuantizedConv2d(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias)


class QuantizedLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias)


def quantized(network, wanted, x):
    inputs = layer_inputs(network, x)
    for _, layer, format in layer_formats(network, wanted):
        unsigned = bool(inputs[layer].min() >= 0)
        layer.input_quantizer = quantizer(inputs[layer], format.kind, format.activation_bits, unsigned, channels=False)
        layer.weight_quantizer = quantizer(layer.weight.detach(), format.kind, format.weight_bits, False, channels=True)
        layer.__class__ = QuantizedConv2d if isinstance(layer, nn.Conv2d) else QuantizedLinear
    return network
