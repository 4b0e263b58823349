"""Layer types of the library for functions of torch with weights, and for attention with its masks.

Each function has the form f(call, arguments of torch's function) and returns a Lowering, like the functions in ops.py.
"""
import math

import torch

from ..capture.nodes import argument, is_constant, is_parameter, is_tensor, node_shape
from .functions import pair
from .layers import module_layer, norm_eps, tensor_refs
from .refs import Constant, HelperNode, Lowering, TensorRef, constant, require


def _weights(call, **given):
    """Returns {name: TensorRef} of the weights that are not None."""
    given = {name: value for name, value in given.items() if value is not None}
    require(all(is_constant(value) for value in given.values()), f"{call.function} without weights of its own")
    return {name: call.reader.ref(value) for name, value in given.items()}


def unit_refs(size, **given):
    """Returns weight and bias of a norm. A missing weight is ones, a missing bias zeros."""
    def fill(value):
        return TensorRef(Constant(torch.full(size if isinstance(size, (tuple, list)) else (size,), value)), "value")
    return {"weight": given.get("weight") or fill(1.0), "bias": given.get("bias") or fill(0.0)}


def _linear(call, input, weight, bias=None):
    require(is_constant(weight) and len(node_shape(weight)) == 2, f"{call.function} without weights of its own")
    out, own = node_shape(weight)
    return call.layers(input, [("linear", {"out_features": out, "in_features": own, "bias": bias is not None})], _weights(call, weight=weight, bias=bias))


def _conv(call, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    require(is_constant(weight), f"{call.function} without weights of its own")
    out, own, *kernel = node_shape(weight)
    require(len(call.shape) == len(kernel) + 2, f"{call.function} of an input without an axis of samples")
    options = {"out_channels": out, "in_channels": own * groups, "kernel": kernel, "groups": groups, "stride": pair(stride),
               "padding": pair(padding), "dilation": pair(dilation), "bias": bias is not None}
    return call.layers(input, [(call.name, options)], _weights(call, weight=weight, bias=bias))


def _conv_transpose(call, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    require(is_constant(weight), f"{call.function} without weights of its own")
    own, out, *kernel = node_shape(weight)
    require(len(call.shape) == len(kernel) + 2, f"{call.function} of an input without an axis of samples")
    more = pair(output_padding)
    options = {"out_channels": out * groups, "in_channels": own, "kernel": kernel, "groups": groups, "stride": pair(stride),
               "padding": pair(padding), "dilation": pair(dilation), "bias": bias is not None,
               "output_padding": more[0] if len(kernel) == 1 and isinstance(more, list) else more}
    return call.layers(input, [(call.name, options)], _weights(call, weight=weight, bias=bias))


def _batch_norm(call, input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    require(is_parameter(running_mean) and is_parameter(running_var), "a batch norm without running statistics")
    args, kwargs = call.node.meta.get("in_evaluation", (call.node.args, call.node.kwargs))
    in_evaluation = kwargs.get("training", args[5] if len(args) > 5 else False)
    require(in_evaluation is False, "a batch norm that uses the statistics of the batch in evaluation")
    owner = call.reader.ref(running_mean)
    require(training is True, "a batch norm that never updates its statistics")
    channels = node_shape(running_mean)[0]
    refs = unit_refs(channels, **_weights(call, weight=weight, bias=bias))
    refs |= {"running_mean": owner, "running_var": call.reader.ref(running_var)}
    if running_mean.meta.get("counted"):
        refs["num_batches_tracked"] = TensorRef(owner.module, "num_batches_tracked")
    out = call.layers(input, [("batch_norm", {"channels": channels, "eps": norm_eps(eps), "momentum": momentum})], refs)
    out.mode = owner.module
    return out


def _layer_norm(call, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    shape = list(normalized_shape)
    require(len(shape) < len(call.shape), "a norm over the axis of samples")
    return call.layers(input, [("layer_norm", {"shape": shape, "eps": norm_eps(eps)})], unit_refs(shape, **_weights(call, weight=weight, bias=bias)))


def _rms_norm(call, input, normalized_shape, weight=None, eps=None):
    shape = list(normalized_shape)
    require(len(shape) < len(call.shape), "a norm over the axis of samples")
    refs = unit_refs(shape, **_weights(call, weight=weight))
    return call.layers(input, [("rms_norm", {"shape": shape, "eps": norm_eps(eps)})], {"weight": refs["weight"]})


def _group_norm(call, input, num_groups, weight=None, bias=None, eps=1e-5):
    channels = node_shape(call.data(input))[1]
    return call.layers(input, [("group_norm", {"groups": num_groups, "channels": channels, "eps": norm_eps(eps)})],
                       unit_refs(channels, **_weights(call, weight=weight, bias=bias)))


def _instance_norm(call, input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    require(use_input_stats is True and running_mean is None, "an instance norm with running statistics")
    channels = node_shape(call.data(input))[1]
    require(len(call.shape) > 2, "an instance norm of an input without an axis of samples")
    return call.layers(input, [("instance_norm", {"channels": channels, "eps": norm_eps(eps)})], unit_refs(channels, **_weights(call, weight=weight, bias=bias)))


def _prelu(call, input, weight):
    slopes = math.prod(node_shape(weight))
    return call.layers(input, [("prelu", {"per_channel": slopes > 1})], _weights(call, weight=weight))


def _embedding(call, input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    require(max_norm is None and not scale_grad_by_freq and not sparse, "an embedding with max_norm, scale_grad_by_freq or sparse")
    require(is_constant(weight), "an embedding without weights of its own")
    size, width = node_shape(weight)
    row = None if padding_idx is None else padding_idx % size
    return call.layers(input, [("embedding", {"vocabulary": size, "width": width})], {"weight": call.reader.ref(weight, still_row=row)})


# Attention. Masks are constants of the model, inputs, or computed from inputs.

def multihead(reader, node):
    """Lowers nn.MultiheadAttention with one input or two."""
    module = reader.modules[node.target]
    query, key, value, padding, _, mask = (argument(node, i, name) for i, name in enumerate(
        ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")))
    require(module.batch_first, "attention that is not batch_first")
    require(module.dropout == 0, "attention with dropout")
    require(key is value, "attention whose keys and values are two inputs")
    require(all(user.args[1:] == (0,) for user in node.users), "attention whose weights are read")
    masks = _Masks(reader, query)
    if padding is not None:
        masks.add(padding, "hidden", "padding", lambda shape: [1, 1, shape[-1]] if len(shape) == 2 else None)
    if mask is not None:
        masks.add(mask, "hidden", "mask", lambda shape: [1, *shape] if len(shape) == 2 and is_constant(mask) else None)
    reads = [query] if key is query and not masks.helpers else [query, key]
    return Lowering([module_layer(module)], list(dict.fromkeys([*reads, *masks.reads])), tensor_refs(module), masks.helpers,
                 [*reads, *masks.joined()])


def dot_product(call, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """Lowers scaled_dot_product_attention of queries, keys and values [N, H, L, D]."""
    reader, q, k, v = call.reader, *(call.data(used) for used in (query, key, value))
    mask, shapes, causal = attn_mask, [node_shape(value) for value in (q, k, v)], is_causal
    require(type(causal) is bool, "attention whose is_causal is computed")
    require(scale is None or type(scale) in (int, float), "attention with a scale that is not a number")
    require(all(len(shape) == 4 and shape[0] == shapes[0][0] for shape in shapes), "attention on inputs that do not have four axes")
    require(dropout_p == 0 and call.node.kwargs.get("dropout_p", 0) == 0, "attention with dropout")
    require(enable_gqa or shapes[0][1] == shapes[1][1], "attention with fewer heads of keys than of queries, and without enable_gqa")
    require(not causal or shapes[0][2] == shapes[1][2], "causal attention with different numbers of keys and queries")
    options = ({"causal": True} if causal else {}) | ({} if scale is None else {"scale": scale})
    masks = _Masks(reader, q)
    if mask is not None:
        masks.add(mask, "seen", "mask", lambda shape: ([1] * (3 - len(shape)) + shape)[-3:] if is_constant(mask) and (
            len(shape) < 4 or shape[0] == 1) else shape[1:] if len(shape) == 4 and shape[0] == shapes[0][0] else None)
    return Lowering([("scaled_dot_product_attention", options)], list(dict.fromkeys([q, k, v, *masks.reads])), {}, masks.helpers,
                 [q, k, v, *masks.joined()])


class _Masks:
    """Nodes for the numbers that the masks of a call add to its scores: 0 and -infinity for bool masks."""

    def __init__(self, reader, query):
        self.helpers, self.reads, self._reader, self._query, self._names = [], [], reader, query, []

    def add(self, mask, true, name, convert_shape):
        """Adds a mask. True in a bool mask means "seen" or "hidden". `convert_shape` converts the shape of the mask to [heads, L, S], without the
        samples if the mask is computed, or returns None."""
        require(isinstance(mask, torch.fx.Node) and is_tensor(mask), "attention with a mask that is not a tensor")
        shape, dtype = convert_shape(node_shape(mask)), mask.meta["tensor_meta"].dtype
        require(shape is not None, "attention with a mask that is neither a buffer of the model nor one for each sample")
        require(dtype in (torch.bool, torch.float32), f"attention with a mask of {dtype}")
        if is_constant(mask):
            require(not self._reader.ref(mask).is_trained(), "attention with a mask that takes a gradient")
            self.helpers.append(constant(self._reader.ref(mask, shape=(1, *shape), mask=true), self._query, name))
        else:
            require(dtype == torch.bool or _is_data(mask), "attention with a mask that is computed from parameters")
            self.reads.append(mask)
            self.helpers.append(HelperNode(name, "reshape", {"shape": shape}, [mask]))
            name = self._from_bool(name, true) if dtype == torch.bool else name
        self._names.append(name)

    def _from_bool(self, name, true):
        """Adds the nodes of log(1) and log(0). A comparison stops the gradient."""
        steps = [("minus", "neg", {}, [name]), ("otherwise", "shift", {"by": 1}, [f"{name}_minus"]),
                 ("sees", "greater" if true == "seen" else "less", {}, [name, f"{name}_otherwise"]),
                 ("added", "log", {}, [f"{name}_sees"])]
        self.helpers += [HelperNode(f"{name}_{step}", *rest) for step, *rest in steps]
        return f"{name}_added"

    def joined(self):
        """Returns a list with the name of the sum of all masks, or an empty list."""
        if len(self._names) > 1:
            self.helpers.append(HelperNode("masks", "add", {}, list(self._names)))
            return ["masks"]
        return self._names


def _is_data(node):
    """Returns whether a node is computed from inputs alone."""
    return node.op == "placeholder" or (node.op in ("call_function", "call_method") and bool(node.all_input_nodes)
                                        and all(_is_data(used) for used in node.all_input_nodes))


OPERATORS = {
    **{f"conv{axes}d": _conv for axes in (1, 2, 3)}, **{f"conv_transpose{axes}d": _conv_transpose for axes in (1, 2, 3)},
    "linear": _linear, "batch_norm": _batch_norm, "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm,
    "instance_norm": _instance_norm, "prelu": _prelu, "embedding": _embedding, "scaled_dot_product_attention": dot_product,
}
