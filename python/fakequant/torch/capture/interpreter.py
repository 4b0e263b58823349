"""Runs a torch.fx graph as a list of steps that can be copied and pickled."""
import dataclasses
import functools
import operator
import typing
from collections import OrderedDict

import torch
from torch.fx.node import map_arg
from torch.nn import functional

from ... import _fakequant as _fq
from ..tensors import call_gathered, gathered, is_managed

_FUNCTION_MODULES = {"operator": operator, "torch": torch, "functional": functional}
_MISSING = object()
_TRAINING = "is training"  # key of the mode of the step's module among the values. Names of values have no spaces.


@dataclasses.dataclass(frozen=True)
class ValueRef:
    """Reference to the value of an earlier step."""
    name: str


class OrderedItems(typing.NamedTuple):
    """An OrderedDict. torch.fx would convert one to a dict."""
    keys: tuple
    values: tuple


@dataclasses.dataclass(frozen=True)
class ModeDependent:
    """A constant that depends on the mode of the module, as `training=self.training`."""
    training: object
    evaluation: object


@dataclasses.dataclass
class Step:
    """One node of the graph, with ValueRef instead of nodes. `unused` names the values that no later step reads. `caller` is the path of
    the module whose forward runs the step: its mode selects a ModeDependent argument."""
    name: str
    op: str
    target: object
    args: tuple
    kwargs: dict
    unused: tuple = ()
    caller: str = ""


class WrongArguments(TypeError):
    """A call has other arguments than the forward."""


def make_steps(graph, subgraphs=None, attention=()):
    """Returns the steps of a graph. Steps that no output needs are left out.

    `subgraphs` is {name of a child module: Subgraph that it replaces}. Each of the nodes `attention` calls the child `attends_<i>`.
    """
    subgraphs = subgraphs or {}
    replaced_by = {node: name for name, subgraph in subgraphs.items() for node in subgraph.nodes}
    nodes = [node for node in graph.nodes if node not in replaced_by or node is subgraphs[replaced_by[node]].nodes[-1]]
    steps = []
    for node in nodes:
        if node in replaced_by:
            name = replaced_by[node]
            steps.append(Step(node.name, "call_module", name, tuple(ValueRef(used.name) for used in subgraphs[name].inputs), {}))
            continue
        step = make_step(node)
        if node in attention:
            step.op, step.target = "call_module", f"attends_{attention.index(node)}"
        steps.append(step)
    return _without_dead_steps(steps)


def make_step(node):
    """Returns the step of a node."""
    return Step(node.name, node.op, _portable(node.target), *_both_modes(node), caller=caller_path(node))


def caller_path(node):
    """Returns the path of the module whose forward has a node."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return stack[-1][0] if stack else ""


def _both_modes(node):
    """Returns (args, kwargs) of a node in both modes, with ValueRef instead of nodes."""
    args, kwargs = node.meta.get("in_evaluation", (node.args, node.kwargs))
    merged = _merge_modes(node.args, args), _merge_modes(dict(node.kwargs), dict(kwargs))
    return tuple(map_arg(arguments, lambda used: ValueRef(used.name)) for arguments in merged)


def _merge_modes(training, evaluation):
    """Returns an argument, with ModeDependent for constants that differ between the modes."""
    if isinstance(training, (tuple, list)) and type(training) is type(evaluation) and len(training) == len(evaluation):
        return _same_sequence(training, [_merge_modes(*both) for both in zip(training, evaluation)])
    if isinstance(training, dict) and isinstance(evaluation, dict) and training.keys() == evaluation.keys():
        return {key: _merge_modes(value, evaluation[key]) for key, value in training.items()}
    same = isinstance(training, (torch.fx.Node, slice)) or training is evaluation or training == evaluation
    return training if same else ModeDependent(training, evaluation)


def _same_sequence(values, items):
    """Returns `items` in the type of tuple or list that `values` has."""
    return type(values)(*items) if hasattr(values, "_fields") else type(values)(items)


def _portable(target):
    """Returns (module, name) of a function of torch, because pickle does not accept all of them."""
    for module_name, module in _FUNCTION_MODULES.items() if callable(target) else ():
        name = getattr(target, "__name__", "")
        if getattr(module, name, None) is target:
            return module_name, name
    return target


def _function(target):
    return getattr(_FUNCTION_MODULES[target[0]], target[1]) if isinstance(target, tuple) else target


def _without_dead_steps(steps):
    read_later, kept = set(), []
    for step in reversed(steps):
        if step.op in ("placeholder", "output") or step.name in read_later:
            read = _value_names(step)
            step.unused = tuple(read - read_later)
            read_later |= read
            kept.append(step)
    return kept[::-1]


def _value_names(step):
    found = set()

    def visit(argument):
        if isinstance(argument, ValueRef):
            found.add(argument.name)
        if isinstance(argument, slice):
            argument = (argument.start, argument.stop, argument.step)
        for item in argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (tuple, list)) else ():
            visit(item)
    visit((step.args, step.kwargs))
    return found


def check_arguments(module, steps, inputs, named):
    """Raises WrongArguments for arguments that the forward does not have."""
    targets = [step.target for step in steps if step.op == "placeholder"]
    names = [name for name in targets if not name.startswith("*")]
    variadic = {target.count("*") for target in targets}  # 1: *args, 2: **kwargs
    wrong = [name for name in named if name in names[:len(inputs)] or (name not in names and 2 not in variadic)]
    if wrong or (len(inputs) > len(names) and 1 not in variadic):
        raise WrongArguments(f"{_class_name(module)} takes {', '.join(targets)}: it was given {len(inputs)} inputs"
                             + (f" and {', '.join(wrong)}" if wrong else ""))


def _class_name(module):
    return getattr(module, "origin", type(module)).__name__


def run_steps(module, steps, inputs, named, observe=None):
    """Returns the output for positional and keyword arguments. `observe(name, value)` is called with each value, and returns the value
    that later steps read."""
    check_arguments(module, steps, inputs, named)
    names = {step.target for step in steps if step.op == "placeholder"}
    values, given = {}, iter(inputs)
    for step in steps:
        values[_TRAINING] = functools.partial(_is_training, module, step.caller)
        args, kwargs = _resolve(values, step.args), _resolve(values, step.kwargs)
        if step.op == "output":
            return args[0]
        if step.op == "placeholder":
            value = _input(step, given, named, args[0] if args else _MISSING, names)
            if value is _MISSING:
                raise WrongArguments(f"{_class_name(module)} takes {step.target}, which was not given")
            _check_fixed(module, step.target, value)
        elif step.op == "get_attr":
            value = gathered(operator.attrgetter(step.target)(module))
        else:
            called = operator.attrgetter(step.target)(module) if step.op == "call_module" else None
            value = call_gathered(called, args, kwargs) if called is not None and is_managed(module) else _call(step, args, kwargs, called)
        values[step.name] = value if observe is None else observe(step.name, value)
        for name in step.unused:
            values.pop(name, None)
    raise AssertionError("a graph without an output")


def _check_fixed(module, name, value):
    """Raises ArgumentError if an input differs from the example: a value None, True or False that layers read, or a size that the forward
    depends on."""
    shape = module.fixed_shapes.get(name)
    if shape is not None and list(value.shape[1:]) != shape:
        raise _fq.ArgumentError(f"[fakequant.torch] '{name}' is {list(value.shape)}: the forward depends on the sizes, which are "
                                f"{['N', *shape]} in example_input. Quantize with an example of this size, or with whole=False")
    if name in module.fixed_inputs and value is not module.fixed_inputs[name]:
        known = module.fixed_inputs[name]
        raise _fq.ArgumentError(f"[fakequant.torch] '{name}' was {known} in example_input. Quantize with an example that has "
                                + ("it" if known is None else "the value of your calls"))


def _is_training(module, path):
    return (operator.attrgetter(path)(module) if path else module).training


def _call(step, args, kwargs, module=None):
    """Returns the result of a step that calls a module, a function or a method."""
    if step.op == "call_method":
        return getattr(args[0], step.target)(*args[1:], **kwargs)
    return (module or _function(step.target))(*args, **kwargs)


def run_constant(steps, values):
    """Returns the value of the last of some steps that call functions and methods. `values` are the values that they read, by name."""
    values = dict(values)
    for step in steps:
        values[step.name] = _call(step, _resolve(values, step.args), _resolve(values, step.kwargs))
    return values[steps[-1].name]


def _input(step, inputs, named, default, names):
    """Returns the argument of a placeholder. `inputs` is an iterator over the positional arguments."""
    if step.target.startswith("**"):
        return {name: value for name, value in named.items() if name not in names}
    if step.target.startswith("*"):
        return tuple(inputs)
    return named[step.target] if step.target in named else next(inputs, default)


def _resolve(values, argument):
    """Returns an argument with values instead of ValueRef."""
    if isinstance(argument, ValueRef):
        return values[argument.name]
    if isinstance(argument, ModeDependent):
        return argument.training if values[_TRAINING]() else argument.evaluation
    if isinstance(argument, (tuple, list)):
        items = [_resolve(values, item) for item in argument]
        if isinstance(argument, OrderedItems):
            return OrderedDict(zip(*items))
        return _same_sequence(argument, items) if hasattr(argument, "_fields") else tuple(items) if isinstance(argument, tuple) else items
    if isinstance(argument, dict):
        return {key: _resolve(values, item) for key, item in argument.items()}
    if isinstance(argument, slice):
        return slice(*(_resolve(values, item) for item in (argument.start, argument.stop, argument.step)))
    return argument
