"""Functions that move elements or join axes as layers, [(type, options), ..], of one tensor `source`."""
from .layers import require
from .nodes import argument, is_tensor, name_of, readers_skip, shape_of


def _same_batch(node, source):
    require(shape_of(node)[:1] == shape_of(source)[:1] and len(shape_of(node)) > 1, "a reshape that moves the batch")


def _reshaped(node, source):
    _same_batch(node, source)
    return [("flatten", {})] if len(shape_of(node)) == 2 else [("reshape", {"shape": shape_of(node)[1:]})]


def _permuted(node, source):
    rank, arguments = len(shape_of(node)), node.args[1:]
    if name_of(node) == "transpose":
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
    require(dim is not None, "a mean of everything")
    axes = sorted(axis % len(shape_of(source)) for axis in (dim if isinstance(dim, (tuple, list)) else [dim]))
    require(axes[0] > 0, "a mean over the batch")
    return [("mean", {"axes": axes, "keep_axes": bool(argument(node, 2, "keepdim", False))})]


def _slice(axis, begin, end):
    return "slice", {"axis": axis, "begin": begin, "end": end}


def _part_of_cut(node, source):
    (cut,) = node.all_input_nodes
    axis = argument(cut, 2, "dim", 0) % len(shape_of(source))
    require(axis > 0, "parts of the batch")
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
        size = shape_of(source)[axis]
        if isinstance(part, int):
            out.append(_slice(axis, part % size, part % size + 1))
        else:
            require(isinstance(part, slice) and all(isinstance(p, (int, type(None))) for p in (part.start, part.stop, part.step)),
                    "an index by other than numbers")
            begin, end, step = part.indices(size)
            require(step == 1 and begin < end, "an index with steps, or of nothing")
            out.append(_slice(axis, begin, end))
    return out + ([("reshape", {"shape": shape_of(node)[1:]})] if any(part is None or isinstance(part, int) for part in index)
                  else [])


def _item(node, source):
    (read,) = node.all_input_nodes
    if readers_skip(read):
        return _part_of_cut(node, source)
    if not is_tensor(read):  # (outputs, weights) of attention
        require(not isinstance(read.target, str) or read.op != "placeholder", "a part of an input that is no tensor")
        require(node.args[1] == 0, "the weights of attention")
        return [("identity", {})]
    return _indexed(node, source)


#: By the function's name.
SHAPES = {"view": _reshaped, "reshape": _reshaped, "unsqueeze": _reshaped, "squeeze": _reshaped, "permute": _permuted, "transpose": _permuted, "mean": _mean, "getitem": _item}
