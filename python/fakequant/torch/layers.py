"""Layer types of the library (docs/models.md) for modules of torch."""
import dataclasses

import torch
from torch import nn

from .. import _fakequant as _fq
from .tensors import gathered


class Unsupported(Exception):
    """The library has no such layer. The text is the reason."""


def require(condition, why):
    if not condition:
        raise Unsupported(why)


@dataclasses.dataclass(frozen=True)
class TensorRef:
    """Reference to a parameter or buffer: an attribute of a module, and how the library reads it.

    `rows` is a range (begin, end), `shape` a new shape. `mask` is "seen" or "hidden": `get` returns the numbers that this attention mask
    adds to the scores.
    """
    module: nn.Module
    name: str
    rows: tuple = None
    shape: tuple = None
    transposed: bool = False
    mask: str = ""

    def raw(self):
        """Returns the attribute, which may be sharded over processes."""
        return getattr(self.module, self.name)

    def get(self):
        value = gathered(self.raw())
        value = value if self.rows is None else value[slice(*self.rows)]
        value = value.t() if self.transposed else value
        value = self._added_to_scores(value) if self.mask else value
        return value if self.shape is None else value.reshape(self.shape)

    def _added_to_scores(self, mask):
        """Returns finite numbers, because files have no infinity."""
        seen = ~mask if self.mask == "hidden" and mask.dtype == torch.bool else mask
        return additive_mask(seen).float().clamp(min=torch.finfo(torch.float32).min)


def additive_mask(mask):
    """Returns the numbers that a mask adds to attention scores: 0 for True, -infinity for False. Other types than bool are unchanged."""
    return torch.zeros(mask.shape, dtype=torch.float32, device=mask.device).masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else mask


@dataclasses.dataclass
class HelperNode:
    """Node of a model file that computes an operand of a layer. `inputs` are nodes of torch.fx and names of other helper nodes."""
    name: str
    type: str
    options: dict
    inputs: list
    ref: TensorRef = None


def constant(ref, reads, name="constant"):
    """Returns the HelperNode of a parameter or buffer."""
    return HelperNode(name, "parameter", {"shape": ref.shape[1:], "trained": not ref.mask}, [reads], ref)


@dataclasses.dataclass
class Lowering:
    """Layers of the library that compute a node of torch.fx.

    `layers` is a list of (type, options). Each layer reads the layer before. `inputs` are the nodes that they read. `refs` has the
    parameters and buffers of the last layer by their names there. The first layer reads `operands` (nodes, and names of `helpers`), or
    `inputs` if `operands` is None.
    """
    layers: list
    inputs: list
    refs: dict = dataclasses.field(default_factory=dict)
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
    require(m.bias_k is None and not m.add_zero_attn, "attention with bias_k or add_zero_attn")
    require(m.kdim == m.vdim, "attention whose keys and values have different widths")
    return "attention", {"width": m.embed_dim, "heads": m.num_heads, "bias": m.in_proj_bias is not None}


def _attention_refs(m):
    """Returns the parameters of attention. Torch has one parameter for q, k and v if they have one width."""
    out = {}
    for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
        rows = (i * m.embed_dim, (i + 1) * m.embed_dim)
        out[f"{name}.weight"] = TensorRef(m, "in_proj_weight", rows) if m._qkv_same_embed_dim else TensorRef(m, f"{name}_weight")
        if m.in_proj_bias is not None:
            out[f"{name}.bias"] = TensorRef(m, "in_proj_bias", rows)
    return out | {f"out_proj.{name}": TensorRef(m.out_proj, name) for name, _ in m.out_proj.named_parameters()}


def tensor_refs(m):
    """Returns {name in the library: TensorRef} of the parameters and buffers of a module."""
    if isinstance(m, nn.MultiheadAttention):
        return _attention_refs(m)
    names = [name for name, _ in [*m.named_parameters(recurse=False), *m.named_buffers(recurse=False)]]
    return {name: TensorRef(m, name, transposed=is_conv1d(m) and name == "weight") for name in names}


def has_hooks(module):
    """Returns whether torch runs hooks in addition to the forward of a module."""
    return any((module._forward_pre_hooks, module._forward_hooks, module._backward_hooks, module._backward_pre_hooks))


def is_conv1d(m):
    """Returns whether a module is Conv1D of transformers: a linear layer with a transposed weight."""
    return type(m).__name__ == "Conv1D" and type(m).__module__.startswith("transformers.")


def has_matrix(module):
    """Returns whether a module multiplies by a matrix that can be quantized."""
    return isinstance(module, (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)) or is_conv1d(module)


def has_weight(module):
    """Returns whether a module is a layer with a weight. Rules name the first and the last one of a model `@first` and `@last`."""
    return has_matrix(module) or isinstance(module, (nn.Embedding, nn.EmbeddingBag, nn.RNNBase))


def has_product(layer_type):
    """Returns whether a layer type multiplies by weights, or its inputs by each other."""
    return layer_type.startswith(("linear", "conv", "attention"))


def module_layer(m):
    """Returns (type, options) of the layer for a module. Raises Unsupported."""
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
    require(None not in (output_size if isinstance(output_size, (tuple, list)) else [output_size]), "an adaptive pool with None as size")
    return "adaptive_avg_pool", {"size": pair(output_size)}


def flatten(start_dim=0, end_dim=-1):
    require(start_dim >= 1 and end_dim == -1, "a flatten that includes the batch, or stops before the last axis")
    return "flatten", {"start_axis": start_dim}


#: Rows of the operator table by the name of the operator.
ROWS = {row["name"]: row for row in _fq.operators()}


def plain_function(row):
    """Returns a function that converts the arguments after the tensor to (type, options) of a layer."""
    names = [option["torch"] for option in row["options"]] + ["inplace"]

    def kind(*values, **named):
        given = dict(zip(names, values)) | named
        require(len(values) <= len(names) and given.keys() <= set(names), f"{row['name']} with these arguments")
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
