"""Nodes of a torch.fx graph: reading them, in-place writes, values that depend on no input, and names of layers."""
import dataclasses
import inspect
import re
from collections import Counter

import torch
from torch import nn
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import TensorMetadata
from torch.nn.functional import scaled_dot_product_attention

from ..ops.refs import require
from .interpreter import caller_path


def is_parameter(value):
    """Returns whether a value is a node that reads a parameter or a buffer of the model."""
    return isinstance(value, torch.fx.Node) and value.op == "get_attr"


def is_constant(value):
    """Returns whether a value is a node that depends on no input: a parameter, a buffer, or a function of them and of sizes."""
    return isinstance(value, torch.fx.Node) and (value.op == "get_attr" or value.meta.get("constant", False))


def is_fixed_input(value):
    """Returns whether a value is an input that is None, True or False in the example."""
    return isinstance(value, torch.fx.Node) and value.op == "placeholder" and "fixed" in value.meta


def fixed_inputs(node):
    """Returns the nodes of the inputs that are None, True or False in the example, and that a node reads, also through fixed values."""
    found, waiting = [], list(node.all_input_nodes)
    while waiting:
        used = waiting.pop()
        found += [used] if is_fixed_input(used) else []
        waiting += used.all_input_nodes if "fixed" in used.meta or is_constant(used) else []
    return found


def is_tensor(node):
    return isinstance(node.meta.get("tensor_meta"), TensorMetadata)


def tensor_inputs(node):
    """Returns the nodes of the tensors that a node reads, without constants."""
    return [value for value in node.all_input_nodes if not is_constant(value) and "tensor_meta" in value.meta]


def base_parameters(node):
    """Returns the nodes of the parameters and buffers that a constant is computed from."""
    if node.op == "get_attr":
        return [node]
    return list(dict.fromkeys(base for used in node.all_input_nodes if is_constant(used) for base in base_parameters(used)))


def node_shape(node):
    return list(node.meta["tensor_meta"].shape)


def is_float(node):
    return node.meta["tensor_meta"].dtype.is_floating_point


def function_name(node):
    """Returns the name of the function or method that a node calls."""
    return node.target if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))


def argument(node, position, name, default=None):
    """Returns an argument of a node. A fixed value is returned instead of its node."""
    return fixed(node.args[position] if len(node.args) > position else node.kwargs.get(name, default))


def fixed(arguments):
    """Returns arguments with fixed values (mark_constants) instead of their nodes."""
    return map_arg(arguments, lambda node: node.meta.get("fixed", node))


# Writes.

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
    example. `constant` marks a tensor that depends on no input. `sized` is True if the value depends on
    the sizes of inputs.
    """
    for node in graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta.get("value", 0), (bool, type(None))):
            node.meta["fixed"] = node.meta["value"]
        if node.op not in ("call_function", "call_method") or "in_evaluation" in node.meta:
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


def same_arguments(a, b):
    """Returns whether two arguments of calls are equal. Tensors are equal if they are one object."""
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same_arguments, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_arguments(value, b[key]) for key, value in a.items())
    if isinstance(a, slice) and isinstance(b, slice):
        return same_arguments((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return a is b or (type(a) is type(b) and not isinstance(a, (torch.Tensor, torch.fx.Node)) and bool(a == b))


def differ_in_constants(a, b):
    """Returns whether two arguments of calls differ only in values that are not nodes."""
    if isinstance(a, (tuple, list)) and type(a) is type(b) and len(a) == len(b):
        return all(map(differ_in_constants, a, b))
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return all(differ_in_constants(value, b[key]) for key, value in a.items())
    found = []
    map_arg((a, b), found.append)
    return same_arguments(a, b) or not (found or isinstance(a, slice))


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


@dataclasses.dataclass(frozen=True, eq=False)
class TensorLiteral:
    """A function without arguments that returns a tensor of the forward's own code."""
    value: torch.Tensor
    __name__ = "tensor"

    def __call__(self):
        return self.value

    def __eq__(self, other):
        return type(other) is TensorLiteral and same_tensor(self.value, other.value)

    def __hash__(self):
        return hash(self.value.shape)


def same_tensor(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


def autocast_types():
    """Returns {kind of device: type of autocast, or None}."""
    return {kind: torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None for kind in ("cpu", "cuda")}


# Names.

def join_path(*parts):
    """Joins the parts of a module path with dots. Empty parts are left out."""
    return ".".join(part for part in parts if part)


class LayerNames:
    """Gives each layer of a module a path of its own in the whole model.

    A module that is called has its own path, from the second call on `<path>.call_2`. A function has the path of the module whose
    forward calls it and its own name: `layers.0.add`, `layers.0.add_1`.
    """

    def __init__(self, model, path):
        self._path, self._calls, self._children = path, Counter(), {}
        tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        self._taken = {join_path(path, name) for name, _ in [*model.named_modules(remove_duplicate=False), *tensors]} | {"input"}

    def full_path(self, path):
        """Returns the path in the whole model of a path in this model."""
        return join_path(self._path, path)

    def module_call(self, path):
        """Returns the name of the next call of the module at a path in this model."""
        full = self.full_path(path)
        self._calls[full] += 1
        count = self._calls[full]
        if count == 1 and full not in ("", "input"):
            return _legal(full)
        return self._unique(join_path(full, f"call_{count}") if count > 1 else full or "layer")

    def function_call(self, parent, function):
        """Returns the name of the next call of a function in the forward of the module at the path `parent`."""
        return self._unique(join_path(self._path, parent, function))

    def child(self, name, part):
        """Returns the name of a part of a layer. The same part has the same name."""
        if (name, part) not in self._children:
            self._children[name, part] = self._unique(join_path(name, part))
        return self._children[name, part]

    def input_name(self, name):
        """Returns the name of an input of the model."""
        return self.child("", name)

    def _unique(self, wish):
        name, count = _legal(wish), 0
        while name in self._taken:
            count += 1
            name = f"{_legal(wish)}_{count}"
        self._taken.add(name)
        return name


def _legal(name):
    """Replaces the characters that model files do not allow in names."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _caller(node, modules):
    """Returns (path of the module whose forward calls a function, name of the function there).

    The children of a container are its items. So the caller of a function in an item is the module that has the container.
    """
    path, name = caller_path(node), function_name(node)
    while path and isinstance(modules.get(path), (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        path, _, last = path.rpartition(".")
        name = f"{last}_{name}"
    return path, name


def name_nodes(model, graph, lowered, names):
    """Returns {node: name} of all nodes that call something."""
    modules = dict(model.named_modules())
    paths, out = {module: path for path, module in modules.items()}, {}
    for node in graph.nodes:
        weight = lowered[node].refs.get("weight") if node in lowered else None
        if node.op == "call_module":
            out[node] = names.module_call(node.target)
        elif node.op in ("call_function", "call_method"):
            path, function = _caller(node, modules)
            is_layer = weight is not None and weight.name == "weight" and paths.get(weight.module) == path
            attends = node.target is scaled_dot_product_attention and names.full_path(path)  # "self_attn.q_bmm_quantizer", as in ModelOpt
            out[node] = names.module_call(path) if is_layer or attends else names.function_call(path, function)
    return out
