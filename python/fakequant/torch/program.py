"""What a module's forward does, as a list of steps that can be copied, pickled and run."""
import dataclasses
import operator
import typing
from collections import OrderedDict

import torch
from torch.fx.node import map_arg
from torch.nn import functional

from .. import _fakequant as _fq

_HOMES = (("operator", operator), ("torch", torch), ("functional", functional))


@dataclasses.dataclass(frozen=True)
class Value:
    """The value of an earlier step."""
    name: str


class OrderedItems(typing.NamedTuple):
    """An OrderedDict, which torch.fx would read as a dict."""
    keys: tuple
    values: tuple


@dataclasses.dataclass(frozen=True)
class ByMode:
    """A constant that the module's mode decides, as `training=self.training`."""
    training: object
    evaluation: object


_MISSING = object()
_MODE = "is it in training?"  # no name of a value has spaces


def _like(values, parts):
    """Other parts in the kind of tuple or list that `values` is."""
    return type(values)(*parts) if hasattr(values, "_fields") else type(values)(parts)


def by_mode(training, evaluation):
    """Arguments of one node as both modes have them."""
    if isinstance(training, (tuple, list)) and type(training) is type(evaluation) and len(training) == len(evaluation):
        return _like(training, [by_mode(*both) for both in zip(training, evaluation)])
    if isinstance(training, dict) and isinstance(evaluation, dict) and training.keys() == evaluation.keys():
        return {key: by_mode(value, evaluation[key]) for key, value in training.items()}
    same = isinstance(training, (torch.fx.Node, slice)) or training is evaluation or training == evaluation
    return training if same else ByMode(training, evaluation)


@dataclasses.dataclass
class Step:
    """One node, with Values in place of nodes; `dead` are the values that nobody reads after it."""
    name: str
    kind: str
    target: object
    args: tuple
    kwargs: dict
    dead: tuple = ()


def _portable(target):
    """A function by its home and name, where it has one: functions of torch cannot all be pickled."""
    for home, module in _HOMES if callable(target) else ():
        name = getattr(target, "__name__", "")
        if getattr(module, name, None) is target:
            return home, name
    return target


def _function(target):
    return getattr(dict(_HOMES)[target[0]], target[1]) if isinstance(target, tuple) else target


def steps_of(nodes):
    """The steps of nodes in order, the last one being the output."""
    def with_values(argument):
        return map_arg(argument, lambda node: Value(node.name))
    def both(node):
        args, kwargs = node.meta.get("in_evaluation", (node.args, node.kwargs))
        return with_values(by_mode(node.args, args)), with_values(by_mode(dict(node.kwargs), dict(kwargs)))
    last = {used: node for node in nodes for used in node.all_input_nodes}
    return [Step(node.name, node.op, _portable(node.target), *both(node),
                 tuple(used.name for used, by in last.items() if by is node)) for node in nodes]


def _with(values, argument):
    if isinstance(argument, Value):
        return values[argument.name]
    if isinstance(argument, ByMode):
        return argument.training if values[_MODE] else argument.evaluation
    if isinstance(argument, (tuple, list)):
        parts = [_with(values, part) for part in argument]
        if isinstance(argument, OrderedItems):
            return OrderedDict(zip(*parts))
        return _like(argument, parts) if hasattr(argument, "_fields") else tuple(parts) if isinstance(argument, tuple) else parts
    if isinstance(argument, dict):
        return {key: _with(values, part) for key, part in argument.items()}
    if isinstance(argument, slice):
        return slice(*(_with(values, part) for part in (argument.start, argument.stop, argument.step)))
    return argument


def _at(module, path):
    for part in path.split("."):
        module = getattr(module, part)
    return module


class WrongArguments(TypeError):
    """A call with other arguments than the forward has."""


def check_arguments(module, steps, inputs, named):
    """Raises WrongArguments as Python raises TypeError."""
    targets = [step.target for step in steps if step.kind == "placeholder"]
    names = [name for name in targets if not name.startswith("*")]
    others = {target.count("*") for target in targets}  # 1: *args, 2: **kwargs
    wrong = [name for name in named if name in names[:len(inputs)] or (name not in names and 2 not in others)]
    if wrong or (len(inputs) > len(names) and 1 not in others):
        raise WrongArguments(f"{_class_name(module)} takes {', '.join(targets)}: it was given {len(inputs)} inputs"
                             + (f" and {', '.join(wrong)}" if wrong else ""))


def _class_name(module):
    return getattr(module, "origin", type(module)).__name__


def _given(step, inputs, named, default, names):
    """Returns the argument of a placeholder. `inputs` is an iterator over the positional arguments."""
    if step.target.startswith("**"):
        return {name: value for name, value in named.items() if name not in names}
    if step.target.startswith("*"):
        return tuple(inputs)
    return named[step.target] if step.target in named else next(inputs, default)


def run(module, steps, inputs, named, watch=None):
    """Returns the output for positional and keyword arguments. `watch(name, value)` sees every value and may return another one."""
    check_arguments(module, steps, inputs, named)
    names = {step.target for step in steps if step.kind == "placeholder"}
    values, given = {_MODE: module.training}, iter(inputs)
    for step in steps:
        args, kwargs = _with(values, step.args), _with(values, step.kwargs)
        if step.kind == "output":
            return args[0]
        if step.kind == "placeholder":
            value = _given(step, given, named, args[0] if args else _MISSING, names)
            if value is _MISSING:
                raise WrongArguments(f"{_class_name(module)} takes {step.target}, which was not given")
            if value is not None and step.target in module.absent:
                raise _fq.ArgumentError(f"[fakequant.torch] '{step.target}' was None in example_input: quantize with one that has it")
        elif step.kind == "get_attr":
            value = _at(module, step.target)
        elif step.kind == "call_method":
            value = getattr(args[0], step.target)(*args[1:], **kwargs)
        else:
            value = (_at(module, step.target) if step.kind == "call_module" else _function(step.target))(*args, **kwargs)
        values[step.name] = value if watch is None else watch(step.name, value)
        for name in step.dead:
            values.pop(name, None)
    raise AssertionError("a program without an output")
