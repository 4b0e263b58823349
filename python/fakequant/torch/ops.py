"""Translates nodes of torch.fx (modules, functions, methods of tensors) into layers of the library."""
import math

import torch
from torch import nn

from .capture import (
    argument,
    function_name,
    is_none_input,
    is_parameter,
    is_tensor,
    is_unpacked_split,
    node_shape,
    tensor_inputs,
    transposed_parameter,
)
from .layers import (
    ROWS,
    HelperNode,
    Lowering,
    TensorRef,
    Unsupported,
    adaptive_avg_pool,
    avg_pool,
    constant,
    flatten,
    has_hooks,
    max_pool,
    module_layer,
    pair,
    plain_function,
    require,
    tensor_refs,
)

# Functions that permute, slice or reshape. Each returns a list of (type, options) for a node and the tensor that it reads.

def _same_batch(node, source):
    require(node_shape(node)[:1] == node_shape(source)[:1] and len(node_shape(node)) > 1, "a reshape that moves the batch")


def _reshaped(node, source):
    _same_batch(node, source)
    return [("flatten", {})] if len(node_shape(node)) == 2 else [("reshape", {"shape": node_shape(node)[1:]})]


def _permuted(node, source):
    rank, arguments = len(node_shape(node)), node.args[1:]
    if function_name(node) == "transpose":
        axes = list(range(rank))
        a, b = (axis % rank for axis in arguments)
        axes[a], axes[b] = b, a
    else:
        given = arguments[0] if isinstance(arguments[0], (tuple, list)) else arguments
        axes = [axis % rank for axis in given]
    require(axes[0] == 0, "a transpose that moves the batch")
    return [("transpose", {"axes": axes})]


def _mean(node, source):
    dim = argument(node, 1, "dim")
    require(dim is not None, "a mean over all axes")
    axes = sorted(axis % len(node_shape(source)) for axis in (dim if isinstance(dim, (tuple, list)) else [dim]))
    require(axes[0] > 0, "a mean over the batch")
    return [("mean", {"axes": axes, "keep_axes": bool(argument(node, 2, "keepdim", False))})]


def _slice(axis, begin, end):
    return "slice", {"axis": axis, "begin": begin, "end": end}


def _part_of_cut(node, source):
    cut = node.args[0]
    axis = argument(cut, 2, "dim", 0) % len(node_shape(source))
    require(axis > 0, "a split of the batch")
    sizes = [meta.shape[axis] for meta in cut.meta["tensor_meta"]]
    begin = sum(sizes[:node.args[1]])
    return [_slice(axis, begin, begin + sizes[node.args[1]])]


def _indexed(node, source):
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    require(index[0] == slice(None), "an index of the batch")
    out, axis = [], 0
    for part in index[1:]:
        if part is None:
            continue
        axis += 1
        size = node_shape(source)[axis]
        if isinstance(part, int):
            out.append(_slice(axis, part % size, part % size + 1))
        else:
            require(isinstance(part, slice) and all(isinstance(p, (int, type(None))) for p in (part.start, part.stop, part.step)),
                    "an index that is not a number or slice of numbers")
            begin, end, step = part.indices(size)
            require(step == 1 and begin < end, "an index with steps, or an empty one")
            out.append(_slice(axis, begin, end))
    return out + ([("reshape", {"shape": node_shape(node)[1:]})] if any(part is None or isinstance(part, int) for part in index)
                  else [])


def _item(node, source):
    read = node.args[0]
    if is_unpacked_split(read):
        return _part_of_cut(node, source)
    if not is_tensor(read):  # (outputs, weights) of attention
        require(not isinstance(read.target, str) or read.op != "placeholder", "a part of an input that is not a tensor")
        require(node.args[1] == 0, "attention weights as an output")
        return [("identity", {})]
    return _indexed(node, source)


_RESHAPES = {"view": _reshaped, "reshape": _reshaped, "unsqueeze": _reshaped, "squeeze": _reshaped, "permute": _permuted, "transpose": _permuted,
             "mean": _mean, "getitem": _item}


# Functions of one tensor and constants. Each returns (type, options) for the arguments after the tensor.

_FUNCTIONS = {
    **{name: plain_function(row) for row in ROWS.values() if row["inputs"] == 1 for name in row["torch"]},
    **dict.fromkeys(("contiguous", "clone"), lambda *_, **__: ("identity", {})),
    "softmax": lambda dim, *_, **__: ("softmax", {"axis": dim}),
    "dropout": lambda p=0.5, training=True, inplace=False: ("dropout", {"p": p}) if training else ("identity", {}),
    "stochastic_depth": lambda p, mode="row", training=True: (require(mode == "row", "stochastic_depth with another mode than row"),
                                                             ("drop_path", {"p": p}))[1],
    "max_pool1d": max_pool, "max_pool2d": max_pool, "avg_pool1d": avg_pool, "avg_pool2d": avg_pool,
    "adaptive_avg_pool1d": adaptive_avg_pool, "adaptive_avg_pool2d": adaptive_avg_pool, "flatten": flatten,
}
_PAIRS = {name: row["name"] for row in ROWS.values() if row["inputs"] == 2 for name in row["torch"]}


def _with_number(name, first, second):
    """Returns the layers of a binary function of a tensor and a number."""
    number, is_second = (second, True) if type(second) in (int, float) else (first, False)
    require(math.isfinite(number) and not (name == "truediv" and number == 0), f"{name} with {number}")
    if name in ("mul", "imul", "truediv") and (is_second or name != "truediv"):
        return [("scale", {"factor": 1 / number if name == "truediv" else float(number)})]
    require(name in ("add", "iadd", "add_", "sub"), f"{name} with a number")
    if name == "sub":
        return [("shift", {"by": -float(number)})] if is_second else [("neg", {}), ("shift", {"by": float(number)})]
    return [("shift", {"by": float(number)})]


class OperatorLowering:
    """Translates the nodes of a model one by one."""

    def __init__(self, model):
        self.model, self.modules = model, dict(model.named_modules())

    def ref(self, node, **change):
        """Returns the TensorRef of a node that reads a parameter or a buffer."""
        path, _, name = node.target.rpartition(".")
        return TensorRef(self.modules[path], name, **change)

    def lower(self, node):
        """Returns the Lowering of a node. Raises Unsupported."""
        if node.op == "call_module":
            return self._module(node)
        require(is_tensor(node), "its value is not a tensor")
        name, inputs = function_name(node), tensor_inputs(node)
        if name in _PAIRS:
            return self._pair(node, name)
        if name == "layer_norm":
            return self._norm(node)
        if name == "scaled_dot_product_attention":
            return _dot_product(self, node)
        if name in ("linear", "conv1d", "conv2d", "conv3d"):
            return self._product(node, name)
        if name in ("cat", "concat"):
            dim = argument(node, 1, "dim", 0) % len(node_shape(node))
            require(dim > 0 and all(value.op != "get_attr" for value in node.args[0]), "a concat along the batch, or with a parameter")
            return Lowering([("concat", {"axis": dim}) if len(node.args[0]) > 1 else ("identity", {})], list(node.args[0]))
        if name == "expand" and node.args[0].op == "get_attr":
            return self._repeated(node)
        require(len(inputs) == 1, f"{name} with other than one input")
        if name in ("invert", "bitwise_not", "logical_not"):
            require(inputs[0].meta["tensor_meta"].dtype == torch.bool, f"{name} of values that are not bool")
            return Lowering([("neg", {}), ("shift", {"by": 1})], inputs)
        if name in _RESHAPES:
            return Lowering(_RESHAPES[name](node, inputs[0]), inputs)
        require(name in _FUNCTIONS and node.args[:1] == (inputs[0],), f"{name} has no layer here")
        try:
            layer = _FUNCTIONS[name](*node.args[1:], **node.kwargs)
        except TypeError:
            raise Unsupported(f"{name} with these arguments") from None
        require(not layer[0].startswith("drop") or node.meta["in_evaluation"] != (node.args, node.kwargs),
                f"{name} that is active in evaluation too")
        return Lowering([layer], inputs)

    def _module(self, node):
        module = self.modules[node.target]
        require(not has_hooks(module), f"{type(module).__name__} has hooks, which torch runs")
        layer = module_layer(module)
        if isinstance(module, nn.MultiheadAttention):
            return _multihead(self, node)
        require(len(node.args) == 1 and not node.kwargs, f"{type(module).__name__} called with more than its input")
        return Lowering([layer], tensor_inputs(node), tensor_refs(module))

    def _pair(self, node, name):
        if sum(type(value) in (int, float) for value in node.args) == 1 and len(node.args) == 2 and not node.kwargs:
            require(node.meta["tensor_meta"].dtype.is_floating_point, f"{name} of integers with a number")
            require(tuple(node.meta["in_evaluation"][0]) == tuple(node.args), f"{name} with a number that depends on the mode")
            return Lowering(_with_number(name, *node.args), tensor_inputs(node))
        constants = [value for value in node.all_input_nodes if value.op == "get_attr" or transposed_parameter(value) is not None]
        operands = [value for value in node.args[:2] if isinstance(value, torch.fx.Node)]
        require(len(operands) == 2 and len(node.args) == 2 and not node.kwargs, f"{name} with other than two inputs")
        values = [value for value in operands if value not in constants]
        shapes = [node_shape(value) for value in values]
        require(values and all(len(shape) == len(node_shape(node)) and shape[0] == shapes[0][0] for shape in shapes),
                f"{name} of inputs without the batch as axis 0")
        if not constants:
            return Lowering([(_PAIRS[name], {})], operands)
        if name == "matmul" and node.args[0] not in constants and len(node_shape(constants[0])) == 2:
            own, out = node_shape(constants[0])
            weight = self.ref(transposed_parameter(constants[0]) or constants[0], transposed=transposed_parameter(constants[0]) is None)
            return Lowering([("linear", {"out_features": out, "in_features": own, "bias": False})], values, {"weight": weight})
        require(name in ("add", "iadd", "mul", "imul") and is_parameter(constants[0]), f"{name} with a parameter")
        rank, own = len(shapes[0]), node_shape(constants[0])
        require(len(own) < rank or (len(own) == rank and own[0] == 1), f"{name} with a parameter that has a batch axis")
        own = own[1:] if len(own) == rank else [1] * (rank - 1 - len(own)) + own
        return Lowering([(_PAIRS[name], {})], values, {}, [constant(self.ref(constants[0], shape=(1, *own)), values[0])],
                     [*values, "constant"])

    def _repeated(self, node):
        """Lowers expand of a parameter [1, ..] to the length of the batch."""
        own, batch = node_shape(node.args[0]), [value for value in node.all_input_nodes if value.op != "get_attr"]
        require(own[0] == 1 and own[1:] == node_shape(node)[1:] and len(batch) == 1, "an expand that does not repeat one parameter for each sample")
        source = batch[0]
        while not is_tensor(source):
            source = source.all_input_nodes[0]
        return Lowering([("parameter", {"shape": own[1:], "repeat": True})], [source], {"value": self.ref(node.args[0])})

    def _norm(self, node):
        inputs, shape = tensor_inputs(node), argument(node, 1, "normalized_shape")
        weights = {"weight": argument(node, 2, "weight"), "bias": argument(node, 3, "bias")}
        require(all(is_parameter(w) for w in weights.values()), "a layer norm without weights of its own")
        return Lowering([("layer_norm", {"shape": list(shape), "eps": argument(node, 4, "eps", 1e-5)})], inputs,
                     {key: self.ref(value) for key, value in weights.items()})

    def _product(self, node, name):
        """Lowers F.linear and F.conv with weights of the model."""
        weight, bias = argument(node, 1, "weight"), argument(node, 2, "bias")
        given = {"weight": weight} | ({} if bias is None else {"bias": bias})
        require(all(is_parameter(w) or transposed_parameter(w) is not None for w in given.values()), f"{name} without weights of its own")
        out, own, *kernel = node_shape(weight)
        if name == "linear":
            options = {"out_features": out, "in_features": own}
        else:
            groups = argument(node, 6, "groups", 1)
            options = {"out_channels": out, "in_channels": own * groups, "kernel": kernel, "groups": groups}
            for position, key, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1)):
                options[key] = pair(argument(node, position, key, default))
        return Lowering([(name, options | {"bias": bias is not None})], tensor_inputs(node),
                     {key: self.ref(value) if transposed_parameter(value) is None else self.ref(transposed_parameter(value), transposed=True)
                      for key, value in given.items()})

    def tensor(self, node):
        """Returns the parameter or buffer that a node reads."""
        path, _, name = node.target.rpartition(".")
        return getattr(self.modules[path], name)


# Attention, with masks that are buffers of the model or inputs.

def _multihead(reader, node):
    """Lowers nn.MultiheadAttention with one input or two."""
    module = reader.modules[node.target]
    query, key, value, padding, _, mask = (_input_argument(node, i, name) for i, name in enumerate(
        ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")))
    require(module.batch_first, "attention that is not batch_first")
    require(module.dropout == 0, "attention with dropout")
    require(key is value, "attention whose keys and values are two inputs")
    require(all(user.args[1:] == (0,) for user in node.users), "attention whose weights are read")
    masks = _Masks(reader, query)
    if padding is not None:
        masks.add(padding, "hidden", "padding", lambda shape: [1, 1, shape[-1]] if len(shape) == 2 else None)
    if mask is not None:
        masks.add(mask, "hidden", "mask", lambda shape: [1, *shape] if len(shape) == 2 and is_parameter(mask) else None)
    reads = [query] if key is query and not masks.helpers else [query, key]
    return Lowering([module_layer(module)], list(dict.fromkeys([*reads, *masks.reads])), tensor_refs(module), masks.helpers,
                 [*reads, *masks.joined()])


def _dot_product(reader, node):
    """Lowers scaled_dot_product_attention of queries, keys and values [N, H, L, D]."""
    q, k, v, mask = (_input_argument(node, i, name) for i, name in enumerate(("query", "key", "value", "attn_mask")))
    shapes = [node_shape(value) for value in (q, k, v)]
    causal, scale = argument(node, 5, "is_causal", False), node.kwargs.get("scale")
    require(all(len(shape) == 4 and shape[0] == shapes[0][0] for shape in shapes), "attention on inputs that do not have four axes")
    require(argument(node, 4, "dropout_p", 0.0) == 0, "attention with dropout")
    require(not causal or shapes[0][2] == shapes[1][2], "causal attention with different numbers of keys and queries")
    options = ({"causal": True} if causal else {}) | ({} if scale is None else {"scale": scale})
    masks = _Masks(reader, q)
    if mask is not None:
        masks.add(mask, "seen", "mask", lambda shape: ([1] * (3 - len(shape)) + shape)[-3:] if is_parameter(mask) and (
            len(shape) < 4 or shape[0] == 1) else shape[1:] if len(shape) == 4 and shape[0] == shapes[0][0] else None)
    return Lowering([("scaled_dot_product_attention", options)], list(dict.fromkeys([q, k, v, *masks.reads])), {}, masks.helpers,
                 [q, k, v, *masks.joined()])


def _input_argument(node, position, name):
    """Returns an argument, and None for an input that is None in the example."""
    value = argument(node, position, name)
    return None if is_none_input(value) else value


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
        if is_parameter(mask):
            require(not self._reader.tensor(mask).requires_grad, "attention with a mask that takes a gradient")
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
