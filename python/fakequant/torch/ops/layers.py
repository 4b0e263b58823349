"""Layer types of the library (docs/models.md) for modules of torch."""
import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from .functions import ROWS, adaptive_pool, alpha_dropout, avg_pool, dropout, max_pool, pad, pair, resize
from .refs import Constant, TensorRef, parametrized, require
from .shapes import reshape_layers

_EPS = (1e-12, 1.0)  # limits of the library
_REPLACED_HOOKS = {"WeightNorm": "weight_norm", "SpectralNorm": "spectral_norm"}
_RANDOM_LAYERS = ("dropout", "channel_dropout", "alpha_dropout", "drop_path")


# Kinds of modules.

def has_hooks(module):
    """Returns whether torch runs hooks in addition to the forward of a module."""
    return any((module._forward_pre_hooks, module._forward_hooks, module._backward_hooks, module._backward_pre_hooks))


def hooks_reason(module):
    """Returns why the hooks of a module stay with torch."""
    name = type(module).__name__
    old = [_REPLACED_HOOKS[kind] for kind in (type(hook).__name__ for hook in module._forward_pre_hooks.values()) if kind in _REPLACED_HOOKS]
    return f"{name} has a hook of torch.nn.utils.{old[0]}: use torch.nn.utils.parametrizations.{old[0]}" if old else f"{name} has hooks, which torch runs"


def is_conv1d(m):
    """Returns whether a module is Conv1D of transformers: a linear layer with a transposed weight."""
    return type(m).__name__ == "Conv1D" and type(m).__module__.startswith("transformers.")


def is_drop_path(m):
    """Returns whether a module is the stochastic depth of timm or transformers, which scales the samples that it keeps."""
    is_known = type(m).__name__.endswith("DropPath") and type(m).__module__.startswith(("timm.", "transformers."))
    return is_known and hasattr(m, "drop_prob") and getattr(m, "scale_by_keep", True) and not list(m.parameters())


def has_matrix(module):
    """Returns whether a module multiplies by a matrix that can be quantized."""
    return isinstance(module, (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)) or is_conv1d(module)


def has_weight(module):
    """Returns whether a module is a layer with a weight. Rules name the first and the last one of a model `@first` and `@last`."""
    return has_matrix(module) or isinstance(module, (nn.Embedding, nn.EmbeddingBag, nn.RNNBase))


def has_product(layer_type):
    """Returns whether a layer type multiplies by weights, or its inputs by each other."""
    return layer_type.startswith(("linear", "conv", "attention")) or layer_type in ("lstm", "gru", "rnn")


# Layers of a module. Each function returns (type, options) of one layer, or a list of them.

def module_layers(m, source, target):
    """Returns (list of (type, options), index of the layer with the parameters) for a module with an input and an output of these shapes.

    Raises Unsupported.
    """
    found = _with_shapes(m, source, target)
    if found is None:
        found = module_layer(m)
    layers = found if isinstance(found, list) else [found]
    require(source[:1] == target[:1] and len(source) > 0, f"{type(m).__name__} that moves the axis of samples")
    return layers, len(layers) - 1


def module_layer(m):
    """Returns (type, options) of the layer for a module. Raises Unsupported."""
    if is_conv1d(m):
        return "linear", {"out_features": m.weight.shape[1], "in_features": m.weight.shape[0]}
    if is_drop_path(m):
        return dropout(m.drop_prob or 0.0, kind="drop_path")
    kind = type_before_parametrizations(m)
    require(kind in MODULES, f"{kind.__name__} has no layer here")
    return MODULES[kind](m)


def _with_shapes(m, source, target):
    """Returns the layers of a module whose options depend on the shapes, or None."""
    kind = type_before_parametrizations(m)
    if kind in _WINDOWED:
        require(len(source) == _WINDOWED[kind] + 2, f"{kind.__name__} of an input without an axis of samples")
    if type(m) in _ADAPTIVE:
        return adaptive_pool(*_ADAPTIVE[type(m)], source, m.output_size, getattr(m, "return_indices", False))
    if isinstance(m, nn.Upsample) and type(m) in (nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d):
        return resize(source, target[2:], None if m.size is not None else m.scale_factor, m.mode, m.align_corners,
                      getattr(m, "recompute_scale_factor", None))
    if type(m) in _PADS:
        return pad(source, list(m.padding), _PADS[type(m)], getattr(m, "value", 0.0))
    if type(m) in (nn.Flatten, nn.Unflatten):
        return reshape_layers(source, target, pixels=type(m) is nn.Flatten)
    if type(m) is nn.ChannelShuffle:
        groups, channels = m.groups, source[1]
        return [("index_select", {"axis": 1, "indices": [g * (channels // groups) + i for i in range(channels // groups) for g in range(groups)]})]
    if type(m) in (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.GLU):
        require(type(m.dim) is int and m.dim % len(source) != 0, f"{type(m).__name__} along the axis of samples")
        name = {nn.LogSoftmax: "log_softmax", nn.GLU: "glu"}.get(type(m), "softmax")
        return [("neg", {})] * (type(m) is nn.Softmin) + [(name, {"axis": m.dim})]
    if type(m) is nn.Softmax2d:
        return [("softmax", {"axis": -3})]
    return None


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


def norm_eps(eps):
    """Returns the eps of a norm. The default of torch's RMS norm, None, is the resolution of float32."""
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    require(type(eps) in (int, float) and _EPS[0] <= eps <= _EPS[1], f"a norm with eps {eps}")
    return float(eps)


def _batch_norm(m):
    require(m.track_running_stats and m.running_mean is not None, "a batch norm without running statistics")
    require(m.momentum is not None, "a batch norm whose momentum is None")
    return "batch_norm", {"channels": m.num_features, "eps": norm_eps(m.eps), "momentum": m.momentum}


def _instance_norm(m):
    require(not m.track_running_stats, "an instance norm with running statistics")
    return "instance_norm", {"channels": m.num_features, "eps": norm_eps(m.eps)}


def _attention(m):
    require(m.bias_k is None and not m.add_zero_attn, "attention with bias_k or add_zero_attn")
    require(m.kdim == m.vdim, "attention whose keys and values have different widths")
    return "attention", {"width": m.embed_dim, "heads": m.num_heads, "bias": m.in_proj_bias is not None}


def _embedding(m):
    require(m.max_norm is None and not m.scale_grad_by_freq and not m.sparse, "an embedding with max_norm, scale_grad_by_freq or sparse")
    return "embedding", {"vocabulary": m.num_embeddings, "width": m.embedding_dim}


def _recurrent(m):
    require(m.batch_first, f"{type(m).__name__} that is not batch_first")
    require(getattr(m, "proj_size", 0) == 0, "an LSTM with proj_size")
    options = {"hidden_size": m.hidden_size, "input_size": m.input_size, "bidirectional": m.bidirectional, "layers": m.num_layers,
               "dropout": float(m.dropout) if m.num_layers > 1 else 0.0}
    kind = {nn.LSTM: "lstm", nn.GRU: "gru", nn.RNN: "rnn"}[type(m)]
    return kind, options | ({"nonlinearity": m.nonlinearity} if kind == "rnn" else {})


def _plain_module(row):
    return lambda m: (row["name"], {option["name"]: getattr(m, option["torch"]) for option in row["options"]})


def _pool_module(function, *names):
    return lambda m: function(**{name: getattr(m, name) for name in names})


_MAX = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_AVG = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_POOLS = {getattr(nn, f"{kind}Pool{axes}d"): axes for kind in ("Max", "Avg") for axes in (1, 2, 3)}
_ADAPTIVE = {getattr(nn, f"Adaptive{kind}Pool{axes}d"): (kind.lower(), axes) for kind in ("Max", "Avg") for axes in (1, 2, 3)}
_CONVS = {getattr(nn, f"Conv{axes}d"): axes for axes in (1, 2, 3)} | {getattr(nn, f"ConvTranspose{axes}d"): axes for axes in (1, 2, 3)}
_WINDOWED = _POOLS | {kind: axes for kind, (_, axes) in _ADAPTIVE.items()} | _CONVS
_PADS = {getattr(nn, f"{kind}Pad{axes}d"): mode for axes in (1, 2, 3) for kind, mode in (
    ("Constant", "constant"), ("Zero", "constant"), ("Reflection", "reflect"), ("Replication", "replicate"), ("Circular", "circular"))}

MODULES = {
    nn.Linear: lambda m: ("linear", {"out_features": m.out_features, "in_features": m.in_features, "bias": m.bias is not None}),
    **{kind: _conv(f"conv{'_transpose' * ('Transpose' in kind.__name__)}{axes}d", "Transpose" in kind.__name__) for kind, axes in _CONVS.items()},
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), _instance_norm),
    nn.LayerNorm: lambda m: ("layer_norm", {"shape": list(m.normalized_shape), "eps": norm_eps(m.eps)}),
    nn.RMSNorm: lambda m: ("rms_norm", {"shape": list(m.normalized_shape), "eps": norm_eps(m.eps)}),
    nn.GroupNorm: lambda m: ("group_norm", {"groups": m.num_groups, "channels": m.num_channels, "eps": norm_eps(m.eps)}),
    nn.LocalResponseNorm: lambda m: ("local_response_norm", {"size": m.size, "alpha": m.alpha, "beta": m.beta, "k": float(m.k)}),
    nn.Embedding: _embedding, nn.MultiheadAttention: _attention, **dict.fromkeys((nn.LSTM, nn.GRU, nn.RNN), _recurrent),
    nn.PReLU: lambda m: ("prelu", {"per_channel": m.num_parameters > 1}),
    **{getattr(nn, f"MaxPool{axes}d"): _pool_module(max_pool, *_MAX) for axes in (1, 2, 3)},
    **{getattr(nn, f"AvgPool{axes}d"): _pool_module(avg_pool, *_AVG) for axes in (1, 2, 3)},
    nn.PixelShuffle: lambda m: ("pixel_shuffle", {"factor": m.upscale_factor}),
    nn.PixelUnshuffle: lambda m: ("pixel_unshuffle", {"factor": m.downscale_factor}),
    nn.Dropout: lambda m: dropout(m.p),
    **dict.fromkeys((nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), lambda m: dropout(m.p, kind="channel_dropout")),
    nn.AlphaDropout: lambda m: alpha_dropout(m.p), nn.FeatureAlphaDropout: lambda m: alpha_dropout(m.p, channels=True),
    nn.Hardtanh: lambda m: ("clip", {"low": float(m.min_val), "high": float(m.max_val)}),
    nn.Identity: lambda m: ("identity", {}),
    **{getattr(nn, row["torch_module"]): _plain_module(row) for row in ROWS.values() if row["torch_module"]},
}
for _kind in (nn.Softmax, nn.LogSoftmax, *_ADAPTIVE, *_PADS):
    MODULES.pop(_kind, None)  # their options depend on the shape of the input


def mode_module(m, layers):
    """Returns `m` if the layers differ between training and evaluation, else None."""
    return m if layers[-1][0] in ("batch_norm", *_RANDOM_LAYERS) else None


# Parameters of a module.

def module_refs(m):
    """Returns {name in the library: TensorRef}, with ones and zeros for the weights that a layer of the library has and the module has not."""
    refs = tensor_refs(m)
    sizes = {"weight": 1.0, "bias": 0.0}
    if isinstance(m, nn.modules.batchnorm._NormBase):
        shape = [m.num_features]
    elif isinstance(m, nn.GroupNorm):
        shape = [m.num_channels]
    elif isinstance(m, (nn.LayerNorm, nn.RMSNorm)):
        shape = list(m.normalized_shape)
    elif isinstance(m, nn.RNNBase):
        return _recurrent_refs(m, refs)
    else:
        return refs
    if isinstance(m, nn.RMSNorm):
        del sizes["bias"]
    return {name: TensorRef(Constant(torch.full(shape, value)), "value") for name, value in sizes.items() if name not in refs} | refs


def _recurrent_refs(m, refs):
    """Torch counts the layers also if there is one."""
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[type(m)]
    for name in [name for name in refs if name.startswith("weight_")] if not m.bias else ():
        refs[name.replace("weight_", "bias_")] = TensorRef(Constant(torch.zeros(gates * m.hidden_size)), "value")
    return {name.replace("_l0", "") if m.num_layers == 1 else name: ref for name, ref in refs.items()}


def tensor_refs(m):
    """Returns {name in the library: TensorRef} of the parameters and buffers of a module."""
    if isinstance(m, nn.MultiheadAttention):
        return _attention_refs(m)
    names = [name for name, _ in [*m.named_parameters(recurse=False), *m.named_buffers(recurse=False)]]
    row = m.padding_idx if isinstance(m, nn.Embedding) else None
    refs = {name: TensorRef(m, name, transposed=is_conv1d(m) and name == "weight", still_row=row) for name in names}
    if is_parametrized(m):
        require(row is None, "an embedding with padding_idx whose weight is parametrized")
        refs |= {name: parametrized(m, name) for name in m.parametrizations}
    return refs


def _attention_refs(m):
    """Returns the parameters of attention. Torch has one parameter for q, k and v if they have one width."""
    out = {}
    for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
        rows = (i * m.embed_dim, (i + 1) * m.embed_dim)
        out[f"{name}.weight"] = TensorRef(m, "in_proj_weight", rows) if m._qkv_same_embed_dim else TensorRef(m, f"{name}_weight")
        if m.in_proj_bias is not None:
            out[f"{name}.bias"] = TensorRef(m, "in_proj_bias", rows)
    return out | {f"out_proj.{name}": TensorRef(m.out_proj, name) for name, _ in m.out_proj.named_parameters()}
