"""What a module's forward does, as a list of steps that can be copied, pickled and run."""
import dataclasses
import operator

import torch
from torch.fx.node import map_arg
from torch.nn import functional

_HOMES = (("operator", operator), ("torch", torch), ("functional", functional))


@dataclasses.dataclass(frozen=True)
class Value:
    """The value of an earlier step."""
    name: str


@dataclasses.dataclass(frozen=True)
class Training:
    """Whether the module is in training mode: what `training=self.training` was."""


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
    def keywords(node):
        return {key: Training() if key == "training" else with_values(value) for key, value in node.kwargs.items()}
    last = {used: node for node in nodes for used in node.all_input_nodes}
    return [Step(node.name, node.op, _portable(node.target), with_values(node.args), keywords(node),
                 tuple(used.name for used, by in last.items() if by is node)) for node in nodes]


def _with(values, argument):
    if isinstance(argument, Value):
        return values[argument.name]
    if isinstance(argument, Training):
        return values[argument]
    if isinstance(argument, (tuple, list)):
        return type(argument)(_with(values, part) for part in argument)
    if isinstance(argument, dict):
        return {key: _with(values, part) for key, part in argument.items()}
    if isinstance(argument, slice):
        return slice(*(_with(values, part) for part in (argument.start, argument.stop, argument.step)))
    return argument


def _at(module, path):
    for part in path.split("."):
        module = getattr(module, part)
    return module


def run(module, steps, inputs, watch=None):
    """The output for `inputs`; `watch(name, value)` sees every value."""
    values, given = {Training(): module.training}, iter(inputs)
    for step in steps:
        args, kwargs = _with(values, step.args), _with(values, step.kwargs)
        if step.kind == "output":
            return args[0]
        if step.kind == "placeholder":
            value = next(given, *args)
        elif step.kind == "get_attr":
            value = _at(module, step.target)
        elif step.kind == "call_method":
            value = getattr(args[0], step.target)(*args[1:], **kwargs)
        else:
            value = (_at(module, step.target) if step.kind == "call_module" else _function(step.target))(*args, **kwargs)
        if watch is not None:
            watch(step.name, value)
        values[step.name] = value
        for name in step.dead:
            values.pop(name, None)
    raise AssertionError("a program without an output")
