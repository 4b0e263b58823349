"""Data flow in a torch.fx graph: in-place writes become results, and values that depend on no input are marked."""
import inspect

import torch
from torch import nn

from .nodes import argument, fixed, function_name, is_constant, is_tensor, node_shape
from .refs import require

#: Functions and methods that may return a view of their first argument, or the argument itself.
_VIEWS = {"view", "reshape", "permute", "transpose", "getitem", "chunk", "split", "unbind", "squeeze", "unsqueeze", "expand", "contiguous",
          "flatten", "unflatten", "narrow", "select", "detach", "t", "swapaxes", "swapdims", "movedim", "to", "float", "type", "type_as", "view_as",
          "reshape_as", "expand_as", "getattr", "dropout", "tensor_split", "diagonal"}
_VIEW_MODULES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd)
_WRITES = {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "imatmul"}
_RANDOM = {"rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "empty", "new_empty", "rand_like", "randn_like",
           "empty_like", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d",
           "stochastic_depth"}
_FIXED_ATTRIBUTES = {"dtype", "device", "ndim", "is_cuda", "layout"}


# Writes.

def replace_writes(graph, modules):
    """Makes later readers of a tensor read the result of the call that wrote to it in place.

    Raises Unsupported for writes to parameters and buffers, and to tensors that later nodes read through a view.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    owner = {}  # {node: the node whose memory it may share}
    for node in graph.nodes:
        source = _first_tensor(node)
        written = source if source is not None and is_tensor(source) and _writes(node, modules) else None
        shares = source is not None and (written is not None or _may_be_view(node, modules))
        owner[node] = owner[source] if shares else node
        if written is not None:
            require(written.op != "get_attr", f"its forward writes to '{written.target}'")
            _check_views(node, written, owner, order)
            written.replace_all_uses_with(node, delete_user_cb=lambda user, last=order[node]: order[user] > last)
            _replace_in_evaluation(graph, written, node, order)


def _first_tensor(node):
    first = node.args[0] if node.args else None
    return first if isinstance(first, torch.fx.Node) else None


def _may_be_view(node, modules):
    return isinstance(modules[node.target], _VIEW_MODULES) if node.op == "call_module" else function_name(node) in _VIEWS


def _writes(node, modules):
    """Returns whether a node writes to its first argument."""
    if node.op == "call_module":
        return getattr(modules[node.target], "inplace", False) is True
    name = function_name(node)
    if node.op == "call_method":
        return name.endswith("_") and not name.endswith("__")
    if node.op != "call_function" or name in _WRITES:
        return name in _WRITES
    if node.kwargs.get("inplace") is True or (name.endswith("_") and not name.endswith("__")):
        return True
    if True not in node.args:
        return False
    try:
        return inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments.get("inplace") is True
    except (TypeError, ValueError):  # a function of C has no signature
        return False


def _check_views(node, written, owner, order):
    """Raises Unsupported if a node after `node` reads the memory of `written` through another node."""
    for other, memory in owner.items():
        if memory is owner[written] and other not in (written, node):
            require(all(order[user] <= order[node] for user in other.users),
                    f"{function_name(node)} writes to a tensor that is read through a view")


def _replace_in_evaluation(graph, old, new, order):
    """Replaces a node in the arguments of evaluation mode."""
    for node in graph.nodes:
        if order[node] > order[new] and "in_evaluation" in node.meta:
            node.meta["in_evaluation"] = torch.fx.node.map_arg(node.meta["in_evaluation"], lambda used: new if used is old else used)


# Constants.

def mark_constants(graph):
    """Sets `fixed` and `constant` in the metadata of nodes. Axis 0 of a tensor that depends on an input is the axis of the samples.

    `fixed` is the value of a size that does not depend on the number of samples, and of an input that is None, True or False in the
    example. `constant` marks a tensor that depends on no input. `sized` tells whether the value depends on the sizes of inputs.
    """
    for node in graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta.get("value", 0), (bool, type(None))):
            node.meta["fixed"] = node.meta["value"]
        if node.op not in ("call_function", "call_method") or _depends_on_mode(node):
            continue
        if is_tensor(node):
            is_known = all(is_constant(used) or "fixed" in used.meta for used in node.all_input_nodes)
            if is_known and function_name(node) not in _RANDOM:
                node.meta["constant"] = True
        elif "value" in node.meta and _is_fixed(node):
            node.meta["fixed"] = node.meta["value"]
        if "constant" in node.meta or "fixed" in node.meta:
            node.meta["sized"] = _reads_size(node)


def _reads_size(node):
    """Returns whether a fixed value or constant depends on sizes of inputs, which other inputs may not have."""
    source, is_int = _first_tensor(node), type(node.meta.get("value")) is not bool and isinstance(node.meta.get("value"), (int, tuple))
    reads = source is not None and not is_constant(source) and (is_tensor(source) or "sizes_of" in source.meta)
    is_attribute = function_name(node) in ("dim", "ndimension") or (function_name(node) == "getattr" and node.args[1] == "ndim")
    return (reads and is_int and not is_attribute) or any(used.meta.get("sized") for used in node.all_input_nodes)


def _depends_on_mode(node):
    args, kwargs = node.meta.get("in_evaluation", (node.args, node.kwargs))
    return not same_arguments((tuple(args), dict(kwargs)), (tuple(node.args), dict(node.kwargs)))


def same_arguments(a, b):
    """Returns whether two arguments of calls are equal. Tensors are equal if they are one object."""
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same_arguments, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_arguments(value, b[key]) for key, value in a.items())
    if isinstance(a, slice) and isinstance(b, slice):
        return same_arguments((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return a is b or (type(a) is type(b) and not isinstance(a, (torch.Tensor, torch.fx.Node)) and bool(a == b))


def _is_fixed(node):
    name, source = function_name(node), _first_tensor(node)
    if source is None or not (is_tensor(source) or "sizes_of" in source.meta) or is_constant(source):
        return all(is_constant(used) or "fixed" in used.meta for used in node.all_input_nodes)
    if "sizes_of" in source.meta:
        return name == "getitem" and _excludes_samples(node.args[1], source.meta["sizes_of"])
    if name == "getattr" and node.args[1] in _FIXED_ATTRIBUTES or name in ("dim", "ndimension", "is_floating_point"):
        return True
    is_size = name == "size"
    axis = fixed(argument(node, 1, "dim")) if is_size else None
    if (name == "getattr" and node.args[1] == "shape") or (is_size and axis is None):
        node.meta["sizes_of"] = len(node_shape(source))
        return False
    return is_size and isinstance(axis, int) and axis % len(node_shape(source)) != 0


def _excludes_samples(index, rank):
    """Returns whether an index of the sizes of a tensor leaves out axis 0."""
    index = fixed(index)
    if isinstance(index, int):
        return index % rank != 0
    return isinstance(index, slice) and all(isinstance(p, (int, type(None))) for p in (index.start, index.stop, index.step)) and (
        0 not in range(rank)[index])
