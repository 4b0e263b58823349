"""Layer types of the library for functions of torch that reshape, permute, slice, repeat or reduce a tensor. They keep axis 0, the samples.

Each function has the form f(call, arguments of torch's function) and returns a Lowering, like the functions in ops.py.
"""
import math

import torch
from torch import nn

from ..capture.nodes import function_name, is_constant, is_float, is_tensor, node_shape, tensor_inputs
from .refs import Lowering, TensorRef, require

_NOT_IMAGES = {"linear", "matmul", "view", "reshape", "permute", "transpose", "unflatten", "scaled_dot_product_attention"}

# Reshapes.

def reshape_layers(source, target, pixels=False):
    """Returns the layers that reshape [N, ..] to [N, ..]. A size of -1 allows sequences of other lengths than in the example, or images of
    other sizes if `pixels` is True."""
    if source == target:
        return [("identity", {})]
    if len(target) == 2:
        return [("flatten", {})]
    sizes = list(target[1:])
    free = _free_axis(source[1:], sizes, pixels)
    if free is not None:
        sizes[free] = -1
    return [("reshape", {"shape": sizes})]


def _free_axis(source, target, pixels):
    """Returns the axis of the target that has the length of a sequence, or all pixels, or None."""
    if pixels and len(target) == 2 and target[0] == source[0]:  # [C, H, W] to [C, H * W]
        return 1
    return 0 if any(math.prod(source[:count]) == target[0] for count in range(1, len(source) + 1)) else None


def _reshape(call, input, *shape, **named):
    source = node_shape(call.data(input))
    require(len(call.shape) > 1, f"{call.function} of the axis of samples")
    if source[0] != call.shape[0] or _moves_samples(call, shape):
        return _reshape_samples(call, input, [*shape, *named.values()])
    return call.layers(input, reshape_layers(node_shape(input), call.shape, call.name == "flatten" and _is_image(call, input)))


def _is_image(call, node):
    """Returns whether a convolution gave a tensor, or an input of the model is one. Its axis 1 has the channels."""
    while node.op != "placeholder":
        module = call.reader.modules.get(node.target) if node.op == "call_module" else None
        if isinstance(module, nn.modules.conv._ConvNd) or (node.op == "call_function" and function_name(node).startswith("conv")):
            return True
        sources = tensor_inputs(node)
        if not sources or isinstance(module, nn.Linear) or function_name(node) in _NOT_IMAGES:
            return False
        node = sources[0]
    return len(node_shape(node)) == 4


def _moves_samples(call, sizes):
    """Returns whether a reshape to these sizes takes the size of axis 0 from others: view(-1, 8) or view(8, ..), if the example has 8 samples."""
    first = _axes(sizes)[0] if call.function in ("view", "reshape") and sizes else None
    return type(first) is int and first > 0


def _reshape_samples(call, input, sizes):
    """Returns the Lowering of a reshape that joins the axis of samples with others, as windows of images, or splits it again.

    Only axis 0 may depend on the number of samples.
    """
    name, source, target = call.function, node_shape(input), call.shape
    if name in ("view", "reshape"):
        sizes = _axes(sizes)
        is_first_known = isinstance(sizes[0], torch.fx.Node)  # so that -1 elsewhere does not depend on the number of samples
        free = [i for i, size in enumerate(sizes) if type(size) is not int or (size == -1 and not is_first_known)]
    elif name == "unflatten":
        free = [i for i, size in enumerate(sizes[1]) if type(size) is not int or size == -1] if sizes[0] % len(source) == 0 else [1]
    else:
        free = [0] if name in ("flatten", "view_as", "reshape_as") else [1]
    require(free == [0], f"{name} that moves the axis of samples")
    return Lowering([("reshape", {"shape": [-1, *target[1:]], "whole": True})], [input])


def permute_layers(axes):
    require(axes[0] == 0, "a transpose that moves the axis of samples")
    return [("identity", {})] if axes == sorted(axes) else [("transpose", {"axes": axes})]


def _axes(values):
    return list(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else list(values)


def _permute(call, input, *dims, **named):
    given = _axes(dims) or list(named["dims"])
    return call.layers(input, permute_layers([axis % len(call.shape) for axis in given]))


def _transpose(call, input, dim0, dim1):
    axes = list(range(len(call.shape)))
    a, b = dim0 % len(axes), dim1 % len(axes)
    axes[a], axes[b] = b, a
    return call.layers(input, permute_layers(axes))


def _movedim(call, input, source, destination):
    rank = len(call.shape)
    source, destination = ([axis % rank for axis in (value if isinstance(value, (tuple, list)) else [value])] for value in (source, destination))
    rest = iter([axis for axis in range(rank) if axis not in source])
    axes = [source[destination.index(i)] if i in destination else next(rest) for i in range(rank)]
    return call.layers(input, permute_layers(axes))


def _attribute(call, input, name):
    """`x.mT` and `x.data`-like attributes of a tensor."""
    require(name == "mT", f"the attribute {name} of a tensor")
    return _transpose(call, input, -1, -2)


# Slices.

def slice_layer(axis, begin, end=None, step=1):
    """Negative bounds count from the end, also of longer sequences than in the example."""
    return "slice", {"axis": axis, "begin": begin} | ({} if end is None else {"end": end}) | ({"step": step} if step != 1 else {})


def _getitem(call, input, index):
    if not is_tensor(input):  # (outputs, weights) of attention
        require(input.op != "placeholder", "a part of an input that is not a tensor")
        require(index == 0 and input.op == "call_module", f"an item of {input.target} other than its output")
        return Lowering([("identity", {})], [input])
    source = node_shape(call.data(input))
    parts = _full_index(index, len(source))
    require(parts[0] == slice(None), "an index of the axis of samples")
    tensors = [part for part in parts if isinstance(part, (torch.fx.Node, list))]
    require(len(tensors) < 2 and not (tensors and any(type(part) is int for part in parts)), "an index of several tensors")
    out, axis, sliced = [], 0, source[:1]
    for part in parts[1:]:
        if part is not None:
            axis += 1
            layers, size = _index_layers(call, part, axis, source[axis])
            out, sliced = out + layers, [*sliced, size]
    if sliced != call.shape:
        out += reshape_layers(sliced, call.shape)
    return call.layers(input, out or [("identity", {})])


def _full_index(index, rank):
    """Returns an index as a list with a part for each axis, and None for new axes."""
    parts = list(index) if isinstance(index, tuple) else [index]
    own = sum(part is not None and part is not Ellipsis for part in parts)
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    at = next(i for i, part in enumerate(parts) if part is Ellipsis)
    return parts[:at] + [slice(None)] * (rank - own) + parts[at + 1:]


def _index_layers(call, part, axis, size):
    """Returns (layers for an index of one axis, size of the axis after it)."""
    if type(part) is int:
        return [slice_layer(axis, part, part + 1 or None)], 1
    if isinstance(part, slice):
        require(all(type(p) in (int, type(None)) for p in (part.start, part.stop, part.step)), "a slice whose bounds depend on the samples")
        begin, end, step = part.indices(size)
        require(begin < end, "an empty slice")
        is_whole = step == 1 and not part.start and (part.stop is None or part.stop == size)
        return [] if is_whole else [slice_layer(axis, part.start or 0, part.stop, step)], -(-(end - begin) // step)
    indices = _indices(call, part, size)
    return [_select(axis, indices)], len(indices)


def _indices(call, part, size):
    """Returns the numbers of a list or of a constant tensor of indices. A bool tensor selects the elements that are True."""
    if isinstance(part, torch.fx.Node):
        require(is_constant(part), "an index that depends on an input")
        require(not call.reader.ref(part).is_trained(), "an index of floating-point numbers")
        value = call.reader.value(part)
    else:
        require(isinstance(part, (list, tuple)) and all(type(p) is int for p in part), "an index that is not a number or slice of numbers")
        value = torch.tensor(part)
    value = value.nonzero().flatten() if value.dtype == torch.bool and value.dim() == 1 else value
    require(not value.is_floating_point() and value.dtype != torch.bool and value.numel() > 0, "an index of other than whole numbers")
    return [int(i) % size for i in value.flatten()]


def _select(axis, indices):
    return "index_select", {"axis": axis, "indices": indices}


def _narrow(call, input, dim, start, length):
    axis = dim % len(call.shape)
    require(type(start) is int and type(length) is int and length > 0, "narrow with bounds that depend on the samples")
    start = start % node_shape(input)[axis] if start < 0 else start
    return call.layers(input, [slice_layer(axis, start, start + length)] if axis else [])


def _select_one(call, input, dim, index):
    source = node_shape(call.data(input))
    axis = dim % len(source)
    require(axis > 0 and type(index) is int, "a selected sample")
    layers, _ = _index_layers(call, index, axis, source[axis])
    return call.layers(input, layers + reshape_layers([*source[:axis], 1, *source[axis + 1:]], call.shape))


def _index_select(call, input, dim, index):
    axis = dim % len(call.shape)
    require(axis > 0, "an index of the axis of samples")
    return call.layers(input, [_select(axis, _indices(call, index, node_shape(input)[axis]))])


def _repeat_by_index(call, input, lists):
    """Returns the Lowering of selected indices along several axes, {axis: indices}."""
    return call.layers(input, [_select(axis, indices) for axis, indices in lists.items()] or [("identity", {})])


def _flip(call, input, *dims):
    source = node_shape(call.data(input))
    axes = [axis % len(source) for axis in _axes(dims)]
    require(0 not in axes, "a flip of the samples")
    return _repeat_by_index(call, input, {axis: list(range(source[axis]))[::-1] for axis in axes})


def _roll(call, input, shifts, dims=None):
    source = node_shape(call.data(input))
    require(dims is not None and dims != (), "a roll of all elements")
    shifts, axes = (list(v) if isinstance(v, (tuple, list)) else [v] for v in (shifts, dims))
    axes = [axis % len(source) for axis in axes]
    require(0 not in axes and len(set(axes)) == len(axes), "a roll of the samples")
    return _repeat_by_index(call, input, {axis: [(i - by) % source[axis] for i in range(source[axis])] for axis, by in zip(axes, shifts)})


def _channel_shuffle(call, input, groups):
    channels = call.shape[1]
    return _repeat_by_index(call, input, {1: [g * (channels // groups) + i for i in range(channels // groups) for g in range(groups)]})


# Repetitions.

def _repeat_interleave(call, input, repeats, dim=None, *, output_size=None):
    require(type(repeats) is int and dim is not None and dim % len(call.shape) != 0, "repeat_interleave of the samples")
    axis = dim % len(call.shape)
    return _repeat_by_index(call, input, {axis: [i for i in range(node_shape(input)[axis]) for _ in range(repeats)]})


def _repeat(call, input, *sizes, **named):
    counts = _axes(sizes) or list(named["repeats"])
    if is_constant(input):
        return _repeated_constant(call, input)
    source = node_shape(call.data(input))
    require(len(counts) == len(source) and counts[0] == 1 and all(type(count) is int for count in counts), "repeat of the samples")
    return _repeat_by_index(call, input, {axis: list(range(source[axis])) * count for axis, count in enumerate(counts) if count != 1})


def _expand(call, input, *sizes, **named):
    if is_constant(input):
        return _repeated_constant(call, input)
    source = node_shape(call.data(input))
    require(len(source) == len(call.shape), "an expand with new axes")
    return call.layers(input, [("expand", {"shape": call.shape[1:]})] if source != call.shape else [("identity", {})])


def _expand_as(call, input, other):
    return _expand(call, input)


def _repeated_constant(call, node):
    """Returns the Lowering of a constant that is repeated for each sample."""
    own = node_shape(node)
    own = [1] * (len(call.shape) - len(own)) + own
    source = _source_of_samples(call)
    require(own[0] == 1 and call.shape[0] == node_shape(source)[0], "an expand that does not repeat one constant for each sample")
    ref = call.reader.ref(node)
    shape = own[1:] or [1]
    ref = TensorRef(ref.module, ref.name, shape=(1, *shape), transposed=ref.transposed, expression=ref.expression)
    layers = [("parameter", {"shape": shape, "repeat": True, "trained": ref.is_trained()})]
    if own[1:] != call.shape[1:]:
        require(all(size in (1, full) for size, full in zip(own[1:], call.shape[1:])), "repeat of a constant along other axes")
        layers.append(("expand", {"shape": call.shape[1:]}))
    return Lowering(layers, [source], {"value": ref}, owner=0)


def _source_of_samples(call):
    """Returns the tensor whose number of samples a call reads."""
    sources = [used for used in call.node.all_input_nodes if not is_constant(used) and "fixed" not in used.meta]
    seen = set()
    while sources:
        source = sources.pop()
        if is_tensor(source):
            require(not is_constant(source) and len(node_shape(source)) > 0, f"{call.function} without samples")
            return source
        if source not in seen:
            seen.add(source)
            sources += [used for used in source.all_input_nodes if not is_constant(used) and "fixed" not in used.meta]
    require(False, f"{call.function} of a constant that does not read the number of samples")


# Reductions.

def _reduction(layer):
    def lower(call, input, dim=None, keepdim=False, *, dtype=None):
        require(is_float(call.node) and is_float(call.data(input)), f"{call.function} of integers")
        require(dim is not None, f"{call.function} over all axes")
        axes = sorted(axis % len(node_shape(input)) for axis in (dim if isinstance(dim, (tuple, list)) else [dim]))
        require(axes and axes[0] > 0, f"{call.function} over the samples")
        return call.layers(input, [(layer, {"axes": axes, "keep_axes": bool(keepdim)})])
    return lower


OPERATORS = {
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"), _reshape),
    "permute": _permute, "transpose": _transpose, "movedim": _movedim, "moveaxis": _movedim, "getattr": _attribute, "getitem": _getitem,
    "narrow": _narrow, "select": _select_one, "index_select": _index_select, "flip": _flip, "roll": _roll, "channel_shuffle": _channel_shuffle,
    "repeat_interleave": _repeat_interleave, "repeat": _repeat, "tile": _repeat, "expand": _expand, "expand_as": _expand_as,
    "mean": _reduction("mean"), "sum": _reduction("sum"), "amax": _reduction("max"), "amin": _reduction("min"),
}
