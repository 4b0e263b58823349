"""Translates attention of torch and its masks into layers of the library. Masks are constants of the model, inputs, or computed from inputs."""
import torch

from .layers import module_layer, tensor_refs
from .nodes import argument, is_constant, is_tensor, node_shape
from .refs import HelperNode, Lowering, constant, require


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
