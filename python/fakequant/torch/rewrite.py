"""Rewrites a torch.fx graph into operators that have layers: items of splits become slices, formulas of norms become norms."""
import operator

import torch
from torch import nn
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.nn import functional

from .nodes import argument, base_parameters, fixed, function_name, is_constant, is_float, is_tensor, node_shape
from .ops import operator_name

_SPLITS = {"chunk": 2, "split": 2, "tensor_split": 2, "unbind": 1}  # {name: position of dim}
_CASTS = {"to", "float", "type", "type_as"}
_ROUNDS = 4  # one rule may enable another


def rewrite(graph, model, any_size=False):
    """Rewrites a graph of capture.trace in place. Torch computes the same values with it, for the sizes of the example. With `any_size` for
    other sizes too."""
    modules, tensors = dict(model.named_modules()), dict(model.named_parameters(remove_duplicate=False))
    for _ in range(_ROUNDS):
        if not any([_rewrite_node(graph, node, modules, any_size, tensors) for node in list(graph.nodes)]):
            break
    graph.eliminate_dead_code()
    return graph


def _rewrite_node(graph, node, modules, any_size, tensors):
    """Replaces a node if a rule applies. Returns whether it did."""
    if not node.users:
        return False
    if node.op == "call_module":
        rule = _MODULE_RULES.get(type(modules[node.target]))
        return rule is not None and bool(rule(Builder(graph, node, any_size), node, modules[node.target]))
    rule = _RULES.get(operator_name(node)) if node.op in ("call_function", "call_method") else None
    new = rule(Builder(graph, node, any_size, tensors), node) if rule else None
    if new is None:
        return False
    replace(graph, node, new)
    return True


def replace(graph, old, new):
    """Replaces a node in the arguments of both modes."""
    old.replace_all_uses_with(new)
    for node in graph.nodes:
        if "in_evaluation" in node.meta:
            node.meta["in_evaluation"] = map_arg(node.meta["in_evaluation"], lambda used: new if used is old else used)


class Builder:
    """Makes nodes before a node of a graph, for the same caller."""

    def __init__(self, graph, node, any_size, tensors=None):
        self.graph, self._node, self.any_size, self._tensors = graph, node, any_size, tensors or {}

    def requires_grad(self, node):
        """Returns whether torch trains the parameter that a node reads."""
        return node.target in self._tensors and self._tensors[node.target].requires_grad

    def call(self, function, *args, **kwargs):
        """Returns a new node that calls a function, or a method if `function` is a name."""
        with self.graph.inserting_before(self._node):
            kind = self.graph.call_method if isinstance(function, str) else self.graph.call_function
            new = kind(function, args, kwargs)
        new.meta = {key: value for key, value in self._node.meta.items() if key in ("nn_module_stack", "stack_trace")}
        given, named = map_arg(args, _example), map_arg(kwargs, _example)
        result = getattr(given[0], function)(*given[1:], **named) if isinstance(function, str) else function(*given, **named)
        new.meta["tensor_meta"], new.meta["type"] = _extract_tensor_metadata(result), torch.Tensor
        if all(is_constant(used) or "fixed" in used.meta for used in new.all_input_nodes):
            new.meta["constant"] = True
            new.meta["sized"] = any(used.meta.get("sized") for used in new.all_input_nodes)
        return new

    def parameter(self, target, like):
        """Returns a new node that reads the parameter at a path."""
        with self.graph.inserting_before(self._node):
            new = self.graph.get_attr(target)
        new.meta = {"tensor_meta": _extract_tensor_metadata(like.detach()), "type": torch.Tensor}
        return new


def _example(node):
    if is_tensor(node):
        return torch.empty(node_shape(node), dtype=node.meta["tensor_meta"].dtype, device="meta")
    return node.meta["value"]


def _index(axis, part):
    return (*[slice(None)] * axis, part)


# Items.

def _item(build, node):
    source, index = node.args[0], fixed(node.args[1])
    if not isinstance(source, torch.fx.Node):
        return None
    if not is_tensor(source):
        name = function_name(source)
        if name in _SPLITS and type(index) is int and source.op != "placeholder" and is_tensor(node):
            return _part(build, source, index)
        if name in ("max", "min") and index in (0,) and source.op != "placeholder" and len(source.all_input_nodes) == 1:
            return _extremum(build, source)
        return None
    first = index if type(index) is int else index[0] if isinstance(index, tuple) and index and type(index[0]) is int else None
    return None if first is None else _item_of_permuted(build, source, first, index[1:] if isinstance(index, tuple) else ())


def _part(build, source, index):
    """Returns the slice that is part `index` of a split."""
    read, name = source.args[0], function_name(source)
    axis = fixed(argument(source, _SPLITS[name], "dim", 0)) % len(node_shape(read))
    if name == "unbind":
        return build.call(operator.getitem, read, _index(axis, index) if axis else index)
    if axis == 0 or name == "tensor_split" and not isinstance(source.meta.get("tensor_meta"), tuple):
        return None
    sizes = [part.shape[axis] for part in source.meta["tensor_meta"]]
    begin = sum(sizes[:index % len(sizes)])
    rank = len(node_shape(read))
    if build.any_size and name != "split" and axis != rank - 1 and (axis, rank) not in ((1, 4), (1, 5)):  # other axes may have other sizes
        return None
    return build.call(operator.getitem, read, _index(axis, slice(begin, begin + sizes[index])))


def _item_of_permuted(build, source, index, rest):
    """Returns the item of a tensor whose axis 0 came from another axis: an item along that axis keeps the samples as axis 0."""
    if source.op not in ("call_method", "call_function") or operator_name(source) not in ("permute", "transpose", "movedim"):
        return None
    rank, (read, *_) = len(node_shape(source)), source.args
    axes = _permutation(source, rank)
    if axes is None or axes[0] == 0:
        return None
    out = build.call(operator.getitem, read, _index(axes[0], index))
    order = [axis - (axis > axes[0]) for axis in axes[1:]]
    out = out if order == sorted(order) else build.call("permute", out, *order)
    return build.call(operator.getitem, out, tuple(rest)) if rest else out


def _permutation(node, rank):
    """Returns the order of the axes after permute or transpose, or None."""
    name, arguments = operator_name(node), fixed(node.args[1:])
    if name == "movedim" or node.kwargs:
        return None
    if name == "transpose":
        axes = list(range(rank))
        a, b = (axis % rank for axis in arguments)
        axes[a], axes[b] = b, a
        return axes
    given = arguments[0] if isinstance(arguments[0], (tuple, list)) else arguments
    return [axis % rank for axis in given]


def _extremum(build, source):
    """Returns the values of max or min along an axis."""
    dim = fixed(argument(source, 1, "dim"))
    if type(dim) is not int:
        return None
    function = torch.amax if function_name(source) == "max" else torch.amin
    return build.call(function, source.args[0], dim, fixed(argument(source, 2, "keepdim", False)))


def _values(build, node):
    """Replaces `x.max(dim).values`."""
    source = node.args[0]
    is_named = len(node.args) > 1 and node.args[1] == "values" and isinstance(source, torch.fx.Node)
    if is_named and source.op != "placeholder" and not is_tensor(source) and function_name(source) in ("max", "min"):
        return _extremum(build, source)
    return None


# Norms.

def _scaled(build, node):
    """Replaces x * rsqrt(mean(x^2) + eps), with or without a weight, by a call of rms_norm."""
    for x, factor in (node.args, node.args[::-1]) if len(node.args) == 2 and not node.kwargs else ():
        found = _root_mean_square(x, factor, "rsqrt") if operator_name(node) == "mul" else _root_mean_square(x, factor, "sqrt")
        if found is not None:
            return build.call(functional.rms_norm, _uncast(x), found[0], None, found[1])
        if operator_name(node) == "mul" and is_constant(factor) and _is_bare_norm(x):
            norm = _uncast(x)
            if node_shape(factor) == list(norm.args[1]) and node_shape(node) == node_shape(norm) and is_float(node):
                return build.call(functional.rms_norm, norm.args[0], norm.args[1], factor, norm.args[3])
    return None


def _is_node(value, *names):
    return isinstance(value, torch.fx.Node) and value.op in ("call_function", "call_method") and operator_name(value) in names


def _uncast(node):
    """Returns the tensor before conversions to float32 and back."""
    while _is_node(node, *_CASTS) and is_tensor(node.args[0]) and is_float(node) and is_float(node.args[0]) and not is_constant(node):
        node = node.args[0]
    return node


def _root_mean_square(x, factor, name):
    """Returns ([size of the last axis], eps) if `factor` is rsqrt(mean(x^2) + eps), or its inverse with sqrt, else None."""
    factor = _uncast(factor)
    if not _is_node(factor, name) and not (_is_node(factor, "pow") and fixed(factor.args[1:]) == (-0.5 if name == "rsqrt" else 0.5,)):
        return None
    shifted = _uncast(factor.args[0])
    if not _is_node(shifted, "add") or len(shifted.args) != 2:
        return None
    (mean, eps) = shifted.args if isinstance(shifted.args[0], torch.fx.Node) else shifted.args[::-1]
    eps, mean = fixed(eps), _uncast(mean)
    if type(eps) is not float or not 1e-12 <= eps <= 1 or not _is_node(mean, "mean"):
        return None
    axes, keeps, square = fixed(argument(mean, 1, "dim")), fixed(argument(mean, 2, "keepdim", False)), _uncast(mean.args[0])
    rank = len(node_shape(square)) if is_tensor(square) else 0
    axes = [axes] if type(axes) is int else list(axes or ())
    if keeps is not True or rank < 2 or [axis % rank for axis in axes] != [rank - 1]:
        return None
    is_square = (_is_node(square, "pow") and fixed(square.args[1:]) in ((2,), (2.0,))) or _is_node(square, "square") or (
        _is_node(square, "mul") and len(square.args) == 2 and square.args[0] is square.args[1])
    if not is_square or not isinstance(x, torch.fx.Node) or _uncast(square.args[0]) is not _uncast(x):
        return None
    return [node_shape(square)[-1]], eps


def _is_bare_norm(node):
    """Returns whether a value is a call of rms_norm without weight and with one reader."""
    if not isinstance(node, torch.fx.Node):
        return False
    norm = _uncast(node)
    return _is_node(norm, "rms_norm") and len(norm.args) == 4 and norm.args[2] is None and len(norm.users) == 1


# Products.

def _einsum(build, node):
    """Replaces einsum of two tensors by a product of matrices."""
    equation, *operands = node.args
    operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    if len(operands) != 2 or not isinstance(equation, str) or "." in equation or node.kwargs:
        return None
    left, _, out = equation.replace(" ", "").partition("->")
    first, second = left.split(",")
    if not out or any(len(set(axes)) != len(axes) for axes in (first, second, out)):
        return None
    if set(first) - set(second) - set(out) or set(second) - set(first) - set(out):
        return None
    shared = [axis for axis in out if axis in first and axis in second]  # axes of the batch
    summed = [axis for axis in first if axis in second and axis not in out]
    rows = [axis for axis in out if axis in first and axis not in second]
    columns = [axis for axis in out if axis in second and axis not in first]
    sizes = dict(zip(first, node_shape(operands[0]))) | dict(zip(second, node_shape(operands[1])))
    if is_constant(operands[0]) or len(summed) != 1 or first[0] != out[0]:
        return None
    if is_constant(operands[1]):
        return _einsum_with_matrix(build, operands, first, second, out, (shared, rows, summed, columns), sizes)
    if not shared or len(columns) > 1 or len(rows) > 1:
        return None
    a = _permuted(build, operands[0], first, shared + rows + summed)
    b = _permuted(build, operands[1], second, shared + summed + columns)
    a = a if rows else build.call("unsqueeze", a, -2)
    b = b if columns else build.call("unsqueeze", b, -1)
    product = build.call(torch.matmul, a, b)
    product = product if columns else build.call("squeeze", product, -1)
    product = product if rows else build.call("squeeze", product, -2 if columns else -1)
    return _permuted(build, product, shared + rows + columns, list(out))


def _einsum_with_matrix(build, operands, first, second, out, axes, sizes):
    """Returns linear layers for a constant operand: one, or one for each index of a shared axis, as the matrices of experts."""
    shared, rows, summed, columns = axes
    width = [sizes[axis] for axis in columns]
    if len(shared) > 1 or first.index(summed[0]) < 1:
        return None
    weight = _permuted(build, operands[1], second, shared + columns + summed)
    x = _permuted(build, operands[0], first, ([] if not shared or shared[0] == first[0] else []) + [a for a in first if a not in summed] + summed)
    rest = [axis for axis in first if axis not in summed]
    if shared and shared[0] == first[0]:
        return None
    count = sizes[shared[0]] if shared else 0
    at = rest.index(shared[0]) if shared else 0
    total = torch.Size(width).numel()
    parts = []
    for i in range(count or 1):
        own = build.call(operator.getitem, weight, i) if shared else weight
        own = own if len(columns) == 1 else build.call("reshape", own, total, sizes[summed[0]])
        source = build.call(operator.getitem, x, _index(at, slice(i, i + 1))) if shared else x
        parts.append(build.call(functional.linear, source, own))
    y = build.call(torch.cat, parts, at) if shared else parts[0]
    if len(columns) != 1:
        y = build.call("unflatten", y, -1, tuple(width)) if columns else build.call("squeeze", y, -1)
    return _permuted(build, y, rest + columns, list(out))


def _permuted(build, x, axes, wanted):
    order = [list(axes).index(axis) for axis in wanted]
    return x if order == sorted(order) else build.call("permute", x, *order)


def _attention(build, node):
    """Replaces attention with a trained mask, or with more than four axes, by its products: the layer of the library takes neither."""
    q, k, v = (argument(node, i, name) for i, name in enumerate(("query", "key", "value")))
    mask, scale = argument(node, 3, "attn_mask"), fixed(node.kwargs.get("scale"))
    rank = len(node_shape(q))
    is_trained = is_constant(mask) and is_float(mask) and any(build.requires_grad(base) for base in base_parameters(mask))
    if not (is_trained or (rank > 4 and mask is None)) or argument(node, 5, "is_causal", False) is not False:
        return None
    if argument(node, 4, "dropout_p", 0.0) != 0 or node_shape(k)[:-2] != node_shape(q)[:-2] or not (scale is None or type(scale) is float):
        return None
    q = build.call(torch.mul, q, node_shape(q)[-1] ** -0.5 if scale is None else scale)
    scores = build.call(torch.matmul, q, build.call("transpose", k, -2, -1))
    scores = scores if mask is None else build.call(torch.add, scores, mask)
    return build.call(torch.matmul, build.call(functional.softmax, scores, -1), v)


def _addmm(build, node):
    """Replaces addmm(bias, x, weight) by linear, as Conv1D of transformers calls it."""
    bias, x, weight = node.args[:3]
    if len(node.args) != 3 or node.kwargs or not is_constant(bias) or not is_constant(weight) or is_constant(x) or len(node_shape(bias)) != 1:
        return None
    return build.call(functional.linear, x, build.call("t", weight), bias)


def _stack(build, node):
    """Replaces stack by concat along a new axis."""
    tensors, dim = node.args[0], fixed(argument(node, 1, "dim", 0))
    rank = len(node_shape(node))
    if dim % rank == 0 or not isinstance(tensors, (tuple, list)) or not all(isinstance(x, torch.fx.Node) for x in tensors):
        return None
    return build.call(torch.cat, [build.call("unsqueeze", x, dim % rank) for x in tensors], dim % rank)


def _normalize(build, node):
    """Replaces normalize(x, 2, dim) by a division by the root of the sum of squares."""
    if fixed(argument(node, 1, "p", 2.0)) != 2 or node.kwargs.get("out") is not None:
        return None
    dim, eps = fixed(argument(node, 2, "dim", 1)), fixed(argument(node, 3, "eps", 1e-12))
    total = build.call(torch.sum, build.call("pow", node.args[0], 2), dim, True)
    return build.call(torch.div, node.args[0], build.call("clamp", build.call("sqrt", total), eps))


def _norm(build, node):
    """Replaces the Euclidean norm along axes by the root of the sum of squares."""
    order, dim = fixed(argument(node, 1, "p", node.kwargs.get("ord", 2))), fixed(argument(node, 2, "dim"))
    if order not in (2, 2.0, "fro", None) or dim is None or (isinstance(dim, (tuple, list)) and len(dim) > 1 and function_name(node) != "norm"):
        return None
    keeps = fixed(argument(node, 3, "keepdim", False))
    return build.call("sqrt", build.call(torch.sum, build.call("pow", node.args[0], 2), dim, keeps))


def _addcmul(build, node):
    """Replaces addcmul(x, a, b) by a sum and a product."""
    x, a, b = node.args
    factor = fixed(node.kwargs.get("value", 1))
    product = build.call(torch.mul, a, b)
    return build.call(torch.add, x, product if factor == 1 else build.call(torch.mul, product, factor))


def _variance(build, node):
    """Replaces var(x, dim) by the mean of squared differences."""
    x, dim = node.args[0], fixed(argument(node, 1, "dim"))
    unbiased = fixed(node.kwargs.get("correction", argument(node, 2, "unbiased", True)))
    keeps = fixed(argument(node, 3, "keepdim", False))
    dims = [dim] if type(dim) is int else list(dim or ())
    if not dims or not is_tensor(node) or unbiased is None or (build.any_size and dims not in ([-1], [len(node_shape(x)) - 1])):
        return None
    count = torch.Size([node_shape(x)[axis] for axis in dims]).numel()
    difference = build.call(torch.sub, x, build.call(torch.mean, x, dims, True))
    out = build.call(torch.mean, build.call("pow", difference, 2), dims, keeps)
    out = out if not int(unbiased) else build.call(torch.mul, out, count / max(count - int(unbiased), 1))
    return build.call("sqrt", out) if function_name(node) == "std" else out


# Modules.

def _embedding_of_constant(build, node, module):
    """Replaces an embedding of fixed ids, as positions, by rows of its weight."""
    if not (len(node.args) == 1 and not node.kwargs and is_constant(node.args[0]) and module.max_norm is None):
        return False
    weight = build.parameter(f"{node.target}.weight", module.weight)
    replace(build.graph, node, build.call(functional.embedding, node.args[0], weight, module.padding_idx))
    return True


def _recurrent_items(build, node, module):
    """Replaces the final states of a recurrent layer by its outputs at the ends of the sequence, and gives it one reader."""
    if not module.batch_first or getattr(module, "proj_size", 0) or not all(_is_node(user, "getitem") for user in node.users):
        return False
    outputs = [user for user in node.users if user.args[1] == 0]
    states = [user for user in node.users if user.args[1] == 1]
    if type(module) is nn.LSTM:
        states = [h for pair in states for h in pair.users if _is_node(h, "getitem") and h.args[1] == 0]
    if len(outputs) < 2 and not states:
        return False
    with build.graph.inserting_after(node):
        y = build.graph.call_function(operator.getitem, (node, 0))
    y.meta = {key: value for key, value in node.meta.items() if key in ("nn_module_stack", "stack_trace")}
    y.meta |= {"tensor_meta": node.meta["tensor_meta"][0], "type": torch.Tensor}
    for old in outputs:
        replace(build.graph, old, y)
    for h in states:
        for user in list(h.users):
            new = _final_state(Builder(build.graph, user, build.any_size), user, y, module)
            if new is not None:
                replace(build.graph, user, new)
    build.graph.eliminate_dead_code()
    return True


def _final_state(build, node, y, module):
    """Returns the part of the final states [layers * directions, N, H] that a node reads, taken from the outputs, or None."""
    ways, size, name = 2 if module.bidirectional else 1, module.hidden_size, operator_name(node)
    if name in ("transpose", "permute") and module.num_layers == 1 and _permutation(node, 3) == [1, 0, 2]:
        ends = [build.call(operator.getitem, y, (slice(None), slice(-1, None), slice(0, size)))]
        ends += [build.call(operator.getitem, y, (slice(None), slice(0, 1), slice(size, None)))] * (ways - 1)
        return build.call(torch.cat, ends, 1) if ways == 2 else ends[0]
    index = 0 if name == "squeeze" and ways * module.num_layers == 1 and fixed(argument(node, 1, "dim")) == 0 else None
    if name == "getitem":
        parts = fixed(node.args[1])
        parts = parts if isinstance(parts, tuple) else (parts,)
        index = parts[0] if type(parts[0]) is int and all(part == slice(None) for part in parts[1:]) else None
    if index is None or index % (ways * module.num_layers) < ways * (module.num_layers - 1):
        return None
    if ways == 1:
        return build.call(operator.getitem, y, (slice(None), -1))
    is_reverse = index % ways == 1
    part = slice(size, None) if is_reverse else slice(0, size)
    return build.call(operator.getitem, y, (slice(None), 0 if is_reverse else -1, part))


_RULES = {"getitem": _item, "getattr": _values, "mul": _scaled, "div": _scaled, "einsum": _einsum, "addmm": _addmm, "scaled_dot_product_attention": _attention, "stack": _stack,
          "normalize": _normalize, "norm": _norm, "linalg_norm": _norm, "linalg_vector_norm": _norm, "addcmul": _addcmul, "var": _variance, "std": _variance}
_MODULE_RULES = {nn.Embedding: _embedding_of_constant, nn.LSTM: _recurrent_items, nn.GRU: _recurrent_items, nn.RNN: _recurrent_items}
