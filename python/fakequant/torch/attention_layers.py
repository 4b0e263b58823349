"""Calls of torch's attention as layers, with masks that are the model's own or its inputs."""
import torch

from .layers import Helper, Layer, constant, layer_of, places_of, require
from .nodes import argument, is_absent, is_own, is_tensor, shape_of


def multihead(reader, node):
    """nn.MultiheadAttention of one input or of two."""
    module = reader.modules[node.target]
    query, key, value, padding, _, mask = (given(node, i, name) for i, name in enumerate(
        ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")))
    require(module.batch_first, "attention that is not batch_first")
    require(module.dropout == 0, "attention with dropout of its scores")
    require(key is value, "attention whose keys and values are two inputs")
    require(all(user.args[1:] == (0,) for user in node.users), "attention whose weights are read")
    masks = _Masks(reader, query)
    if padding is not None:
        masks.add(padding, "hidden", "padding", lambda shape: [1, 1, shape[-1]] if len(shape) == 2 else None)
    if mask is not None:
        masks.add(mask, "hidden", "mask", lambda shape: [1, *shape] if len(shape) == 2 and is_own(mask) else None)
    reads = [query] if key is query and not masks.helpers else [query, key]
    return Layer([layer_of(module)], list(dict.fromkeys([*reads, *masks.reads])), places_of(module), masks.helpers,
                 [*reads, *masks.joined()])


def dot_product(reader, node):
    """scaled_dot_product_attention of queries, keys and values [N, H, L, D]."""
    q, k, v, mask = (given(node, i, name) for i, name in enumerate(("query", "key", "value", "attn_mask")))
    shapes = [shape_of(value) for value in (q, k, v)]
    causal, scale = argument(node, 5, "is_causal", False), node.kwargs.get("scale")
    require(all(len(shape) == 4 and shape[0] == shapes[0][0] for shape in shapes), "attention of other than four axes")
    require(argument(node, 4, "dropout_p", 0.0) == 0, "attention with dropout of its scores")
    require(not causal or shapes[0][2] == shapes[1][2], "causal attention of other than as many keys as queries")
    options = ({"causal": True} if causal else {}) | ({} if scale is None else {"scale": scale})
    masks = _Masks(reader, q)
    if mask is not None:
        masks.add(mask, "seen", "mask", lambda shape: ([1] * (3 - len(shape)) + shape)[-3:] if is_own(mask) and (
            len(shape) < 4 or shape[0] == 1) else shape[1:] if len(shape) == 4 and shape[0] == shapes[0][0] else None)
    return Layer([("scaled_dot_product_attention", options)], list(dict.fromkeys([q, k, v, *masks.reads])), {}, masks.helpers,
                 [q, k, v, *masks.joined()])


def given(node, place, name):
    """An argument; None too where it is an input that is absent."""
    value = argument(node, place, name)
    return None if is_absent(value) else value


class _Masks:
    """What the masks of a call add to its scores: 0 and -infinity for booleans."""

    def __init__(self, reader, query):
        self.helpers, self.reads, self._reader, self._query, self._ends = [], [], reader, query, []

    def add(self, mask, true, name, shape_for):
        """A mask whose booleans are what is "seen" or "hidden"; `shape_for` says what a shape of it is in [heads, L, S], of a
        sample where it is computed."""
        require(isinstance(mask, torch.fx.Node) and is_tensor(mask), "attention with a mask that is no tensor")
        shape, kind = shape_for(shape_of(mask)), mask.meta["tensor_meta"].dtype
        require(shape is not None, "attention with a mask that is neither the model's own nor one for each sample")
        require(kind in (torch.bool, torch.float32), f"attention with a mask of {kind}")
        if is_own(mask):
            require(not self._reader.tensor(mask).requires_grad, "attention with a mask that takes a gradient")
            self.helpers.append(constant(self._reader.place(mask, shape=(1, *shape), mask=true), self._query, name))
        else:
            require(kind == torch.bool or _is_data(mask), "attention with a mask that is computed from parameters")
            self.reads.append(mask)
            self.helpers.append(Helper(name, "reshape", {"shape": shape}, [mask]))
            name = self._of_booleans(name, true) if kind == torch.bool else name
        self._ends.append(name)

    def _of_booleans(self, name, true):
        """log of 1 and 0, by a comparison, through which no gradient goes."""
        steps = [("minus", "neg", {}, [name]), ("otherwise", "shift", {"by": 1}, [f"{name}_minus"]),
                 ("sees", "greater" if true == "seen" else "less", {}, [name, f"{name}_otherwise"]),
                 ("added", "log", {}, [f"{name}_sees"])]
        self.helpers += [Helper(f"{name}_{step}", *rest) for step, *rest in steps]
        return f"{name}_added"

    def joined(self):
        """The name of what is added, in a list, which is empty where there is no mask."""
        if len(self._ends) > 1:
            self.helpers.append(Helper("masks", "add", {}, list(self._ends)))
            return ["masks"]
        return self._ends


def _is_data(node):
    """Whether it follows from inputs alone."""
    return node.op == "placeholder" or (node.op in ("call_function", "call_method") and bool(node.all_input_nodes)
                                        and all(_is_data(used) for used in node.all_input_nodes))
