"""Modules of torch as layers of a model file (docs/models.md): {class: options of a layer}."""
import dataclasses

import torch
from torch import nn

from .. import _fakequant as _fq


class NoLayer(Exception):
    """The library has no such layer; the text says why."""


def require(condition, why):
    if not condition:
        raise NoLayer(why)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a tensor of torch is: an attribute of a module, of it rows [begin, end), its transpose, what it adds to scores as a
    mask of what is "seen" or "hidden", or all in another shape."""
    module: nn.Module
    name: str
    rows: tuple = None
    shape: tuple = None
    turned: bool = False
    mask: str = ""

    def get(self):
        value = getattr(self.module, self.name)
        value = value if self.rows is None else value[slice(*self.rows)]
        value = value.t() if self.turned else value
        value = self._added(value) if self.mask else value
        return value if self.shape is None else value.reshape(self.shape)

    def _added(self, mask):
        """In finite numbers, as files have them."""
        seen = ~mask if self.mask == "hidden" and mask.dtype == torch.bool else mask
        return added(seen).clamp(min=torch.finfo(torch.float32).min)


def added(mask):
    """A mask as what is added to scores: of booleans, which say what is seen, 0 and -infinity."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else mask


@dataclasses.dataclass
class Helper:
    """A layer that makes an operand of another: what it reads are nodes, and helpers by their names."""
    name: str
    kind: str
    options: dict
    inputs: list
    place: Place = None


def constant(place, reads, name="constant"):
    """The Helper that is a parameter."""
    return Helper(name, "parameter", {"shape": place.shape[1:], "trained": not place.mask}, [reads], place)


@dataclasses.dataclass
class Layer:
    """What a node of torch.fx is in a model file: (type, options) one behind the other, the nodes that it reads, and the places of
    parameters and buffers under their names in the last one. The first one reads `operands`, nodes and `helpers` by their names, or
    `inputs` where they are None.
    """
    kinds: list
    inputs: list
    places: dict = dataclasses.field(default_factory=dict)
    helpers: list = dataclasses.field(default_factory=list)
    operands: list = None


def pair(value):
    return list(value) if isinstance(value, (tuple, list)) else value


def _conv(kind, transposed=False):
    def options(m):
        out = {"out_channels": m.out_channels, "in_channels": m.in_channels, "kernel": pair(m.kernel_size),
               "stride": pair(m.stride), "padding": pair(m.padding), "dilation": pair(m.dilation), "groups": m.groups,
               "bias": m.bias is not None}
        if transposed:
            require(m.padding_mode == "zeros", "padding_mode of a transposed convolution")
            more = pair(m.output_padding)
            return kind, out | {"output_padding": more[0] if kind == "conv_transpose1d" else more}
        return kind, out | {"padding_mode": m.padding_mode}
    return options


def _batch_norm(m):
    require(m.affine and m.track_running_stats, "a batch norm without weights or running statistics")
    require(m.momentum is not None, "a batch norm whose momentum is None")
    return "batch_norm", {"channels": m.num_features, "eps": m.eps, "momentum": m.momentum}


def _layer_norm(m):
    require(m.weight is not None and m.bias is not None, "a layer norm without weight or bias")
    return "layer_norm", {"shape": list(m.normalized_shape), "eps": m.eps}


def _attention(m):
    require(m.bias_k is None and not m.add_zero_attn, "attention with keys of its own")
    require(m.kdim == m.vdim, "attention whose keys and values have other widths")
    return "attention", {"width": m.embed_dim, "heads": m.num_heads, "bias": m.in_proj_bias is not None}


def _attention_places(m):
    """q, k and v are one parameter in torch, where they have one width."""
    out = {}
    for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
        rows = (i * m.embed_dim, (i + 1) * m.embed_dim)
        out[f"{name}.weight"] = Place(m, "in_proj_weight", rows) if m._qkv_same_embed_dim else Place(m, f"{name}_weight")
        if m.in_proj_bias is not None:
            out[f"{name}.bias"] = Place(m, "in_proj_bias", rows)
    return out | {f"out_proj.{name}": Place(m.out_proj, name) for name, _ in m.out_proj.named_parameters()}


def places_of(m):
    """Of a module's parameters and buffers, by their names in the library."""
    if isinstance(m, nn.MultiheadAttention):
        return _attention_places(m)
    names = [name for name, _ in [*m.named_parameters(recurse=False), *m.named_buffers(recurse=False)]]
    return {name: Place(m, name, turned=is_conv1d(m) and name == "weight") for name in names}


def is_conv1d(m):
    """Conv1D of transformers: a linear layer with its weight turned."""
    return type(m).__name__ == "Conv1D" and type(m).__module__.startswith("transformers.")


def has_matrix(module):
    """Whether a module is a layer that is quantized by its weights."""
    return isinstance(module, (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)) or is_conv1d(module)


def has_weight(module):
    """Whether it is a layer with a weight: rules know the first and the last one of a model as `@first` and `@last`."""
    return has_matrix(module) or isinstance(module, (nn.Embedding, nn.EmbeddingBag, nn.RNNBase))


def has_product(kind):
    """Whether a layer type multiplies by weights, or its inputs by each other."""
    return kind.startswith(("linear", "conv", "attention"))


def layer_of(m):
    """(type, options) of a module. Raises NoLayer."""
    if is_conv1d(m):
        return "linear", {"out_features": m.weight.shape[1], "in_features": m.weight.shape[0]}
    require(type(m) in MODULES, f"{type(m).__name__} has no layer here")
    return MODULES[type(m)](m)


def _embedding(m):
    require(m.max_norm is None and m.padding_idx is None and not m.sparse, "an embedding with padding_idx, max_norm or sparse")
    return "embedding", {"vocabulary": m.num_embeddings, "width": m.embedding_dim}


def max_pool(kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    require(not return_indices, "a pool that returns indices")
    return "max_pool", {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size), "padding": pair(padding),
                        "dilation": pair(dilation), "ceil_mode": bool(ceil_mode)}


def avg_pool(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    require(divisor_override is None, "a pool with divisor_override")
    return "avg_pool", {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size), "padding": pair(padding),
                        "ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}


def adaptive_avg_pool(output_size):
    if all(size == 1 for size in (output_size if isinstance(output_size, (tuple, list)) else [output_size])):
        return "global_avg_pool", {}
    require(None not in (output_size if isinstance(output_size, (tuple, list)) else [output_size]), "a pool of open size")
    return "adaptive_avg_pool", {"size": pair(output_size)}


def flatten(start_dim=0, end_dim=-1):
    require(start_dim >= 1 and end_dim == -1, "a flatten of the batch, or not to the end")
    return "flatten", {"start_axis": start_dim}


#: Rows of the operator table by the name of the operator.
ROWS = {row["name"]: row for row in _fq.operators()}


def plain_function(row):
    """Returns a function from the arguments after the tensor to the type and the options of a layer."""
    names = [option["torch"] for option in row["options"]] + ["inplace"]

    def kind(*values, **named):
        given = dict(zip(names, values)) | named
        require(len(values) <= len(names) and given.keys() <= set(names), f"{row['name']} with such arguments")
        return row["name"], {option["name"]: given.get(option["torch"], option["default"]) for option in row["options"]}
    return kind


def _plain_module(row):
    return lambda m: (row["name"], {option["name"]: getattr(m, option["torch"]) for option in row["options"]})


def _pool_module(function, *names):
    return lambda m: function(**{name: getattr(m, name) for name in names})


_MAX, _AVG = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"), ("kernel_size", "stride", "padding",
                                                                                              "ceil_mode", "count_include_pad")
MODULES = {
    nn.Linear: lambda m: ("linear", {"out_features": m.out_features, "in_features": m.in_features, "bias": m.bias is not None}),
    nn.Conv1d: _conv("conv1d"), nn.Conv2d: _conv("conv2d"), nn.Conv3d: _conv("conv3d"),
    nn.ConvTranspose1d: _conv("conv_transpose1d", True), nn.ConvTranspose2d: _conv("conv_transpose2d", True),
    nn.BatchNorm1d: _batch_norm, nn.BatchNorm2d: _batch_norm, nn.BatchNorm3d: _batch_norm, nn.LayerNorm: _layer_norm,
    nn.GroupNorm: lambda m: (require(m.affine, "a group norm without weights"),
                             ("group_norm", {"groups": m.num_groups, "channels": m.num_channels, "eps": m.eps}))[1],
    nn.Embedding: _embedding, nn.MultiheadAttention: _attention,
    nn.MaxPool1d: _pool_module(max_pool, *_MAX), nn.MaxPool2d: _pool_module(max_pool, *_MAX),
    nn.AvgPool1d: _pool_module(avg_pool, *_AVG), nn.AvgPool2d: _pool_module(avg_pool, *_AVG),
    nn.AdaptiveAvgPool1d: _pool_module(adaptive_avg_pool, "output_size"),
    nn.AdaptiveAvgPool2d: _pool_module(adaptive_avg_pool, "output_size"),
    nn.Flatten: lambda m: flatten(m.start_dim, m.end_dim),
    nn.Dropout: lambda m: ("dropout", {"p": m.p}), nn.Dropout2d: lambda m: ("channel_dropout", {"p": m.p}),
    nn.Identity: lambda m: ("identity", {}),
    **{getattr(nn, row["torch_module"]): _plain_module(row) for row in ROWS.values() if row["torch_module"]},
}
