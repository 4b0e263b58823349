"""Formulas of torch that are one layer of the library, or that consist of layers: rules of rewrite.py.

Each rule has the form f(build, node) and returns a new node, or None if it does not apply.
"""
import operator

import torch
from torch.nn import functional

from ..ops.operators import operator_name
from .nodes import argument, base_parameters, fixed, function_name, is_constant, is_float, is_tensor, node_shape

_CASTS = {"to", "float", "type", "type_as"}


def index_of(axis, part):
    """Returns an index of one axis."""
    return (*[slice(None)] * axis, part)


def is_call(value, *names):
    """Returns whether a value is a node that calls one of some operators."""
    return isinstance(value, torch.fx.Node) and value.op in ("call_function", "call_method") and operator_name(value) in names


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


def _uncast(node):
    """Returns the tensor before conversions to float32 and back."""
    while is_call(node, *_CASTS) and is_tensor(node.args[0]) and is_float(node) and is_float(node.args[0]) and not is_constant(node):
        node = node.args[0]
    return node


def _root_mean_square(x, factor, name):
    """Returns ([size of the last axis], eps) if `factor` is rsqrt(mean(x^2) + eps), or its inverse with sqrt, else None."""
    factor = _uncast(factor)
    if not is_call(factor, name) and not (is_call(factor, "pow") and fixed(factor.args[1:]) == (-0.5 if name == "rsqrt" else 0.5,)):
        return None
    shifted = _uncast(factor.args[0])
    if not is_call(shifted, "add") or len(shifted.args) != 2:
        return None
    (mean, eps) = shifted.args if isinstance(shifted.args[0], torch.fx.Node) else shifted.args[::-1]
    eps, mean = fixed(eps), _uncast(mean)
    if type(eps) is not float or not 1e-12 <= eps <= 1 or not is_call(mean, "mean"):
        return None
    axes, keeps, square = fixed(argument(mean, 1, "dim")), fixed(argument(mean, 2, "keepdim", False)), _uncast(mean.args[0])
    rank = len(node_shape(square)) if is_tensor(square) else 0
    axes = [axes] if type(axes) is int else list(axes or ())
    if keeps is not True or rank < 2 or [axis % rank for axis in axes] != [rank - 1]:
        return None
    is_square = (is_call(square, "pow") and fixed(square.args[1:]) in ((2,), (2.0,))) or is_call(square, "square") or (
        is_call(square, "mul") and len(square.args) == 2 and square.args[0] is square.args[1])
    if not is_square or not isinstance(x, torch.fx.Node) or _uncast(square.args[0]) is not _uncast(x):
        return None
    return [node_shape(square)[-1]], eps


def _is_bare_norm(node):
    """Returns whether a value is a call of rms_norm without weight and with one reader."""
    if not isinstance(node, torch.fx.Node):
        return False
    norm = _uncast(node)
    return is_call(norm, "rms_norm") and len(norm.args) == 4 and norm.args[2] is None and len(norm.users) == 1


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
        source = build.call(operator.getitem, x, index_of(at, slice(i, i + 1))) if shared else x
        parts.append(build.call(functional.linear, source, own))
    y = build.call(torch.cat, parts, at) if shared else parts[0]
    if len(columns) != 1:
        y = build.call("unflatten", y, -1, tuple(width)) if columns else build.call("squeeze", y, -1)
    return _permuted(build, y, rest + columns, list(out))


def _permuted(build, x, axes, wanted):
    order = [list(axes).index(axis) for axis in wanted]
    return x if order == sorted(order) else build.call("permute", x, *order)


def _expert_products(build, node):
    """Replaces the product of [experts, rows, in] and a parameter [experts, in, out] by a linear layer for each expert."""
    x, weight = node.args[:2] if len(node.args) == 2 and not node.kwargs else (None, None)
    if not is_constant(weight) or is_constant(x) or not isinstance(x, torch.fx.Node) or not is_tensor(x):
        return None
    sizes = node_shape(weight)
    if len(sizes) != 3 or sizes[0] < 2 or len(node_shape(x)) != 3 or node_shape(x)[0] != sizes[0]:
        return None
    if not any(build.requires_grad(base) for base in base_parameters(weight)):
        return None
    parts = [build.call(functional.linear, build.call(operator.getitem, x, i), build.call("t", build.call(operator.getitem, weight, i)))
             for i in range(sizes[0])]
    return build.call(torch.stack, parts, 0)


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


#: Rules by the name of the operator.
RULES = {"mul": _scaled, "div": _scaled, "einsum": _einsum, "addmm": _addmm, "matmul": _expert_products, "scaled_dot_product_attention": _attention,
         "stack": _stack, "normalize": _normalize, "norm": _norm, "linalg_norm": _norm, "linalg_vector_norm": _norm, "addcmul": _addcmul,
         "var": _variance, "std": _variance}
