"""Rewrites a torch.fx graph into operators that have layers: items of splits become slices, formulas become layers."""
import operator

import torch
from torch import nn
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.nn import functional

from ..ops.operators import operator_name
from .formulas import RULES, index_of, is_call
from .nodes import argument, fixed, function_name, is_constant, is_tensor, node_shape

_SPLITS = {"chunk": 2, "split": 2, "tensor_split": 2, "unbind": 1}  # {name: position of dim}
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
    try:
        new = rule(Builder(graph, node, any_size, tensors), node) if rule else None
    except (TypeError, ValueError, IndexError, RuntimeError):  # arguments that the rule does not know: torch runs the node
        return False
    if new is None:
        return False
    replace(graph, node, new)
    return True


def replace(graph, old, new):
    """Replaces a node in the arguments of both modes. Only nodes whose arguments depend on the mode have `in_evaluation`."""
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
        return build.call(operator.getitem, read, index_of(axis, index) if axis else index)
    if axis == 0 or name == "tensor_split" and not isinstance(source.meta.get("tensor_meta"), tuple):
        return None
    sizes = [part.shape[axis] for part in source.meta["tensor_meta"]]
    begin = sum(sizes[:index % len(sizes)])
    rank = len(node_shape(read))
    if build.any_size and name != "split" and axis != rank - 1 and (axis, rank) not in ((1, 4), (1, 5)):  # other axes may have other sizes
        return None
    return build.call(operator.getitem, read, index_of(axis, slice(begin, begin + sizes[index])))


def _item_of_permuted(build, source, index, rest):
    """Returns the item of a tensor whose axis 0 came from another axis: an item along that axis keeps the samples as axis 0."""
    if source.op not in ("call_method", "call_function") or operator_name(source) not in ("permute", "transpose", "movedim"):
        return None
    rank, (read, *_) = len(node_shape(source)), source.args
    axes = _permutation(source, rank)
    if axes is None or axes[0] == 0:
        return None
    out = build.call(operator.getitem, read, index_of(axes[0], index))
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
    if not module.batch_first or getattr(module, "proj_size", 0) or not all(is_call(user, "getitem") for user in node.users):
        return False
    outputs = [user for user in node.users if user.args[1] == 0]
    states = [user for user in node.users if user.args[1] == 1]
    if type(module) is nn.LSTM:
        states = [h for pair in states for h in pair.users if is_call(h, "getitem") and h.args[1] == 0]
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


_RULES = RULES | {"getitem": _item, "getattr": _values}
_MODULE_RULES = {nn.Embedding: _embedding_of_constant, nn.LSTM: _recurrent_items, nn.GRU: _recurrent_items, nn.RNN: _recurrent_items}
