"""Modules of torch.nn, each with an input: a network of one module. Recurrent ones are in import_networks.py."""

import torch
from torch import nn

ROW, ROWS, SIGNAL, IMAGE, VOLUME = (2, 8), (2, 5, 8), (2, 8, 12), (2, 8, 6, 7), (2, 4, 5, 6, 7)


class Call(nn.Module):
    """A module that applies a function to its input."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(x, *self.parts)


def of(module, shape, *given, **named):
    """The name of a module, the function that makes it, and the shape of its input."""
    text = ", ".join([*(str(value) for value in given), *(f"{key}={value}" for key, value in named.items())])
    return f"{module.__name__}({text}) of {len(shape)} axes", (lambda: module(*given, **named), shape)


def activations():
    plain = [nn.CELU, nn.ELU, nn.GELU, nn.GLU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU,
             nn.LogSigmoid, nn.Mish, nn.PReLU, nn.ReLU, nn.ReLU6, nn.RReLU, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus,
             nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink]
    for module in plain:
        yield of(module, ROW)
    yield of(nn.GELU, IMAGE, approximate="tanh")
    yield of(nn.GLU, IMAGE, 1)
    yield of(nn.Hardtanh, ROW, -0.5, 2.0)
    yield of(nn.PReLU, IMAGE, 8)
    yield of(nn.Softplus, ROW, 2.0, 5.0)
    yield of(nn.Threshold, ROW, 0.1, 20.0)
    for module in (nn.Softmax, nn.LogSoftmax, nn.Softmin):
        yield of(module, ROW, 1)
        yield of(module, IMAGE, 1)
    yield of(nn.Softmax2d, IMAGE)


def convolutions():
    shapes = {1: SIGNAL, 2: IMAGE, 3: VOLUME}
    for axes, shape in shapes.items():
        conv, transposed = getattr(nn, f"Conv{axes}d"), getattr(nn, f"ConvTranspose{axes}d")
        channels = shape[1]
        yield of(conv, shape, channels, 6, 3)
        yield of(conv, shape, channels, 8, 3, stride=2, padding=1, groups=2, bias=False)
        yield of(conv, shape, channels, 6, 2, padding="same", dilation=2)
        yield of(conv, shape, channels, 6, 4, padding="same")
        yield of(conv, shape, channels, 6, 3, padding="valid")
        for mode in ("reflect", "replicate", "circular"):
            yield of(conv, shape, channels, 6, 3, padding=2, padding_mode=mode)
        yield of(transposed, shape, channels, 6, 3)
        yield of(transposed, shape, channels, 6, 3, stride=2, padding=1, output_padding=1)
        yield of(transposed, shape, channels, 8, 2, groups=2, dilation=2, bias=False)
    yield of(nn.Conv3d, VOLUME, 4, 6, (1, 3, 2), stride=(2, 1, 1), padding=(0, 1, 2))
    yield of(nn.LazyConv2d, IMAGE, 6, 3)


def pools():
    shapes = {1: SIGNAL, 2: IMAGE, 3: VOLUME}
    for axes, shape in shapes.items():
        largest, mean = getattr(nn, f"MaxPool{axes}d"), getattr(nn, f"AvgPool{axes}d")
        yield of(largest, shape, 2)
        yield of(largest, shape, 3, stride=2, padding=1)
        yield of(largest, shape, 2, stride=1, dilation=2)
        yield of(largest, shape, 3, stride=2, ceil_mode=True)
        yield of(mean, shape, 2)
        yield of(mean, shape, 3, stride=2, padding=1)
        yield of(mean, shape, 3, stride=2, padding=1, count_include_pad=False)
        yield of(mean, shape, 3, stride=2, ceil_mode=True)
        yield of(getattr(nn, f"LPPool{axes}d"), shape, 2, 2)
        yield of(getattr(nn, f"AdaptiveAvgPool{axes}d"), shape, 1)
        yield of(getattr(nn, f"AdaptiveMaxPool{axes}d"), shape, 1)
    yield of(nn.AdaptiveAvgPool1d, SIGNAL, 4)
    yield of(nn.AdaptiveAvgPool2d, IMAGE, (3, 7))
    yield of(nn.AdaptiveAvgPool2d, IMAGE, 4)
    yield of(nn.AdaptiveAvgPool3d, (2, 4, 4, 6, 8), 2)
    yield of(nn.AdaptiveMaxPool2d, IMAGE, (3, 7))


def norms():
    yield of(nn.BatchNorm1d, ROW, 8)
    yield of(nn.BatchNorm1d, SIGNAL, 8)
    yield of(nn.BatchNorm2d, IMAGE, 8)
    yield of(nn.BatchNorm3d, VOLUME, 4)
    yield of(nn.BatchNorm2d, IMAGE, 8, affine=False)
    for module, shape in ((nn.InstanceNorm1d, SIGNAL), (nn.InstanceNorm2d, IMAGE), (nn.InstanceNorm3d, VOLUME)):
        yield of(module, shape, shape[1])
        yield of(module, shape, shape[1], affine=True)
    for shape in (ROW, SIGNAL, IMAGE, VOLUME):
        yield of(nn.GroupNorm, shape, 2, shape[1])
    yield of(nn.LayerNorm, ROWS, 8)
    yield of(nn.LayerNorm, IMAGE, (6, 7))
    yield of(nn.LayerNorm, ROW, 8, bias=False)
    yield of(nn.LayerNorm, ROW, 8, elementwise_affine=False)
    yield of(nn.RMSNorm, ROWS, 8)
    yield of(nn.LocalResponseNorm, IMAGE, 3)
    yield of(nn.LocalResponseNorm, VOLUME, 2)
    yield of(nn.CrossMapLRN2d, IMAGE, 3)


def pads():
    for axes, shape in ((1, SIGNAL), (2, IMAGE), (3, VOLUME)):
        for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular"):
            value = (1.5,) if kind == "Constant" else ()
            yield of(getattr(nn, f"{kind}Pad{axes}d"), shape, tuple(range(1, 2 * axes + 1)) if axes < 3 else 2, *value)
    yield of(nn.ZeroPad2d, IMAGE, (-1, 2, 0, -2))


def moves():
    yield of(nn.Flatten, IMAGE)
    yield of(nn.Flatten, IMAGE, 2)
    yield of(nn.Unflatten, ROW, 1, (2, 4))
    yield of(nn.Unflatten, IMAGE, 1, (2, 4))
    yield of(nn.PixelShuffle, IMAGE, 2)
    yield of(nn.PixelUnshuffle, (2, 2, 6, 4), 2)
    yield of(nn.ChannelShuffle, IMAGE, 2)
    yield of(nn.Fold, (2, 12, 12), (4, 5), (2, 2))
    yield of(nn.Unfold, IMAGE, (3, 2))
    for shape, modes in ((SIGNAL, ("nearest", "linear")), (IMAGE, ("nearest", "bilinear", "bicubic")), (VOLUME, ("nearest", "trilinear"))):
        for mode in modes:
            yield of(nn.Upsample, shape, scale_factor=2, mode=mode)
    yield of(nn.Upsample, IMAGE, size=(9, 5), mode="bilinear", align_corners=True)
    yield of(nn.Upsample, IMAGE, size=(9, 5), mode="nearest-exact")
    yield of(nn.UpsamplingNearest2d, IMAGE, scale_factor=2)
    yield of(nn.UpsamplingBilinear2d, IMAGE, scale_factor=2)


def layers():
    yield of(nn.Linear, ROW, 8, 6)
    yield of(nn.Linear, ROWS, 8, 6, bias=False)
    yield of(nn.LazyLinear, ROW, 6)
    yield "Bilinear of two halves", (lambda: Call(lambda x, f: f(x[:, :4], x[:, 4:]), nn.Bilinear(4, 4, 6)), ROW)
    yield "CosineSimilarity of two halves", (lambda: Call(lambda x, f: f(x[:, :4], x[:, 4:]), nn.CosineSimilarity()), ROW)
    yield "PairwiseDistance of two halves", (lambda: Call(lambda x, f: f(x[:, :4], x[:, 4:]), nn.PairwiseDistance()), ROW)
    yield "MultiheadAttention", (lambda: Call(lambda x, f: f(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)), ROWS)
    yield "MultiheadAttention, one head, weights too", (
        lambda: Call(lambda x, f: torch.cat(f(x, x, x), -1), nn.MultiheadAttention(8, 1, bias=False, batch_first=True)), ROWS)
    yield of(nn.TransformerEncoderLayer, ROWS, 8, 2, 16, batch_first=True)
    yield of(nn.TransformerEncoderLayer, ROWS, 8, 2, 16, batch_first=True, norm_first=True, activation="gelu")
    yield "TransformerDecoderLayer", (lambda: Call(lambda x, f: f(x, x), nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)), ROWS)
    yield "Transformer", (lambda: Call(lambda x, f: f(x, x), nn.Transformer(8, 2, 1, 1, 16, batch_first=True)), ROWS)
    yield of(nn.Dropout, ROW)
    for module, shape in ((nn.Dropout1d, SIGNAL), (nn.Dropout2d, IMAGE), (nn.Dropout3d, VOLUME), (nn.AlphaDropout, ROW), (nn.FeatureAlphaDropout, IMAGE)):
        yield of(module, shape)
    yield "Embedding", (lambda: nn.Embedding(20, 6), "ids")
    yield "Embedding, padding_idx", (lambda: nn.Embedding(20, 6, padding_idx=0), "ids")
    yield "EmbeddingBag, mean", (lambda: nn.EmbeddingBag(20, 6), "ids")
    yield "EmbeddingBag, sum", (lambda: nn.EmbeddingBag(20, 6, mode="sum"), "ids")
    yield "scaled_dot_product_attention", (lambda: Call(lambda x: nn.functional.scaled_dot_product_attention(x, x, x)), (2, 2, 5, 8))
    yield "causal scaled_dot_product_attention", (
        lambda: Call(lambda x: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)), (2, 2, 5, 8))
    yield "normalize", (lambda: Call(lambda x: nn.functional.normalize(x, dim=1)), ROW)
    yield "one residual of weight_norm", (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)), ROW)
    yield "spectral_norm", (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 6)), ROW)


def functions():
    """Functions that custom modules call."""
    yield from ((text, (lambda f=f: Call(f), shape)) for text, f, shape in (
        ("mean of pixels", lambda x: x.mean((2, 3)), IMAGE),
        ("mean of volumes", lambda x: x.mean((2, 3, 4)), VOLUME),
        ("std", lambda x: x.std(-1), ROW),
        ("var, kept", lambda x: x.var(1, keepdim=True, unbiased=False), IMAGE),
        ("norm", lambda x: x.norm(dim=1), ROW),
        ("logsumexp", lambda x: x.logsumexp(1), ROW),
        ("amax", lambda x: x.amax((2, 3)), IMAGE),
        ("max over an axis", lambda x: x.max(1)[0], IMAGE),
        ("prod", lambda x: x.prod(1), ROW),
        ("cumsum", lambda x: x.cumsum(1), ROW),
        ("clamp, min", lambda x: x.clamp(min=0.2), ROW),
        ("chunk", lambda x: torch.cat([a * 2 for a in x.chunk(2, 1)], 1), IMAGE),
        ("unbind", lambda x: torch.stack(x.unbind(1), 2), SIGNAL),
        ("roll", lambda x: x.roll((1, 2), (2, 3)), IMAGE),
        ("flip", lambda x: x.flip(2), IMAGE),
        ("permute", lambda x: x.permute(0, 2, 3, 1), IMAGE),
        ("einsum", lambda x: torch.einsum("nchw,ndhw->ncd", x, x), IMAGE),
        ("bmm", lambda x: torch.bmm(x, x.transpose(1, 2)), SIGNAL),
        ("repeat", lambda x: x.repeat(1, 2, 1), SIGNAL),
        ("repeat_interleave", lambda x: x.repeat_interleave(2, 2), SIGNAL),
        ("where", lambda x: torch.where(x > 0, x, x * 0.1), ROW),
        ("masked_fill", lambda x: x.masked_fill(x < 0, -1.0), ROW),
        ("triu", lambda x: x.triu(1), (2, 5, 5)),
        ("tan", lambda x: x.tan() + x.atan() + x.sinh() + x.cosh(), ROW),
        ("log1p", lambda x: x.abs().log1p() + x.expm1() + x.rsqrt().nan_to_num(0.0, 0.0, 0.0), ROW),
        ("asin", lambda x: (x * 0.1).asin() + (x * 0.1).acos() + x.asinh(), ROW),
        ("erf and sign", lambda x: x.erf() + x.sign() + x.frac() + x.trunc(), ROW),
        ("remainder", lambda x: torch.remainder(x, 0.7) + torch.fmod(x, 0.6), ROW),
        ("floor_divide", lambda x: torch.floor_divide(x, 0.7), ROW),
        ("hypot", lambda x: (x ** 2 + x.roll(1, 1) ** 2).sqrt(), ROW),
        ("addmm", lambda x: torch.addmm(x @ x.T @ x * 0, x, torch.eye(8)), ROW),
        ("outer slices", lambda x: x[:, ::2, 1:-1], IMAGE),
        ("gather of fixed rows", lambda x: x[:, [3, 1, 1]], IMAGE),
        ("squeeze", lambda x: x[:, :1].squeeze(1), ROW),
        ("meshgrid of constants", lambda x: x + torch.meshgrid(torch.arange(6.0), torch.arange(7.0), indexing="ij")[0], IMAGE),
        ("pad, constant", lambda x: nn.functional.pad(x, (1, 2, 0, 1), value=0.3), IMAGE),
        ("interpolate to a size", lambda x: nn.functional.interpolate(x, (12, 10), mode="bilinear"), IMAGE),
        ("interpolate by the input's size", lambda x: nn.functional.interpolate(x[:, :, ::2], x.shape[2:], mode="nearest"), IMAGE),
        ("grid_sample", lambda x: nn.functional.grid_sample(x, nn.functional.affine_grid(torch.eye(2, 3).repeat(x.shape[0], 1, 1), [2, 8, 6, 7])), IMAGE),
        ("topk", lambda x: x.topk(3)[0], ROW),
        ("sort", lambda x: x.sort(1)[0], ROW),
        ("argmax", lambda x: x.argmax(1), ROW),
    ))


MODULES = dict(entry for kind in (activations, convolutions, pools, norms, pads, moves, layers, functions) for entry in kind())


def made(name):
    """Returns the module in evaluation mode, with changed batch norm statistics, and an input."""
    torch.manual_seed(0)
    make, shape = MODULES[name]
    model = make()
    x = torch.randint(0, 20, (2, 5)) if shape == "ids" else torch.randn(shape)
    model(x)  # lazy ones get their shapes
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return model.eval(), x
