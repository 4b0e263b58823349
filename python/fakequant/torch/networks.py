"""quantize: networks of torch on the library's codes."""
import copy

import torch
from torch import nn

from .. import _fakequant as _fq
from .codes import Codes
from .defaults import completed, without_edges
from .layers import NoLayer
from .parts import Layers, read
from .program import Step, Value, run, steps_of


class Quantized(nn.Module):
    """What `quantize` makes: the model's own children and parameters under their own names, and a forward that runs the parts
    that the library has as `Codes`, everything else by torch.

    `floats` says of each operation that stays with torch why it does.
    """

    def __init__(self, model, inputs, config):
        super().__init__()
        for name, child in model.named_children():
            self.add_module(name, child)
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in model.named_buffers(recurse=False):
            self.register_buffer(name, buffer)
        graph = read(model, inputs)
        layers = Layers(model, graph)
        parts = layers.parts(graph)
        self.floats = {node.name: why for node, why in layers.reasons.items()}
        if not parts:
            raise NoLayer("the model has no layer that can be quantized: " + listed(self.floats))
        self._in_float = steps_of(list(graph.nodes))
        self._parts = {f"codes_{i}": part.source.name for i, part in enumerate(parts)}
        for name, part in zip(self._parts, parts):
            self.add_module(name, Codes(part, layers, config))
        self._steps = _with_codes(graph, dict(zip(self._parts, parts)))
        self.train(model.training)
        self.watch = None  # what calibration sees the values with

    def forward(self, *inputs):
        return run(self, self._steps, inputs) if self.watch is None else run(self, self._in_float, inputs, self.watch)

    def in_float(self, *inputs):
        """What the model gives without quantizers."""
        return run(self, self._in_float, inputs)

    def codes(self):
        """The parts that the library runs, by name."""
        return {name: getattr(self, name) for name in self._parts}

    def extra_repr(self):
        return listed(self.floats)


def listed(floats):
    return "; ".join(f"{name} stays with torch: {why}" for name, why in floats.items())


def _with_codes(graph, parts):
    """The steps of a graph in which parts are calls of the modules of those names."""
    inside = {node: name for name, part in parts.items() for node in part.nodes}
    nodes = [node for node in graph.nodes if node not in inside or node is parts[inside[node]].nodes[-1]]
    steps = []
    for node, step in zip(nodes, steps_of(nodes)):
        name = inside.get(node)
        steps.append(step if name is None else
                     Step(node.name, "call_module", name, (Value(parts[name].source.name),), {}))
    return _without_unread(steps)


def _read_by(step):
    found = []

    def look(argument):
        if isinstance(argument, Value):
            found.append(argument.name)
        for part in argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (tuple, list)) else ():
            look(part)
    look((step.args, step.kwargs))
    return set(found)


def _without_unread(steps):
    read_later, kept = set(), []
    for step in reversed(steps):
        if step.kind in ("placeholder", "output") or step.name in read_later:
            step.dead = tuple(_read_by(step) - read_later)
            read_later |= _read_by(step)
            kept.append(step)
    return kept[::-1]


def _inputs_of_modules(model, inputs):
    """What each module is called with first, where that is tensors alone."""
    found, hooks, modes = {}, [], {module: module.training for module in model.modules()}

    def keep(module, args, kwargs):
        if not kwargs and args and all(isinstance(value, torch.Tensor) for value in args):
            found.setdefault(module, args)

    try:
        hooks = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in model.modules()]
        with torch.no_grad():
            model.eval()(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes.items():
            module.training = mode
    return found


def _by_children(model, inputs_of, config):
    """A copy of a module that torch.fx cannot read, of the same parameters, in which those below are quantized that it can."""
    out = copy.copy(model)
    out._modules = {}
    for name, child in model.named_children():
        out._modules[name] = child
        try:
            if child in inputs_of:
                out._modules[name] = Quantized(child, inputs_of[child], config)
                continue
        except NoLayer:
            pass
        out._modules[name] = _by_children(child, inputs_of, config)
    return out


def parts_of(model):
    """What is quantized in a model, in the order of its modules."""
    return [part for part in model.modules() if isinstance(part, Quantized)]


def quantize(model, config="int8", example_input=None):
    """The model with its layers on codes: the name of a preset or a config (a dict or JSON), and an input, or a tuple of them, by
    which shapes are known. Parameters are shared with `model`, which is not changed; what the library has not stays with torch
    (`floats` of each `Quantized` says why). Where torch.fx cannot read the model's forward, its submodules are quantized one by
    one. Calibrate it before its first use.

    A preset of few bits gets what `fakequant qat` gives it: 8 bits in the first and the last layer of the model, ranges of least
    squared error, and ranges that are parameters after `calibrate`; rates are those of `parameter_groups`.
    """
    if not isinstance(model, nn.Module):
        raise _fq.ArgumentError(f"[quantize] model is a {type(model).__name__}: give an nn.Module")
    if example_input is None:
        raise _fq.ArgumentError("[quantize] example_input is None: give an input of the model, such as next(iter(loader))[0]")
    inputs = tuple(example_input) if isinstance(example_input, (tuple, list)) else (example_input,)
    config, learned = completed(config)
    return _with_edges(_quantized(model, inputs, config), config, learned)


def _with_edges(model, config, learned):
    """Of several parts only the first has the network's first layer, and only the last its last one."""
    codes = [codes for part in parts_of(model) for codes in part.codes().values()]
    for i, one in enumerate(codes):
        one.take_defaults(without_edges(config, i > 0, i < len(codes) - 1), learned)
    return model


def _quantized(model, inputs, config):
    try:
        return Quantized(model, inputs, config)
    except NoLayer as why:
        out = _by_children(model, _inputs_of_modules(model, inputs), config)
        if not parts_of(out):
            raise _fq.ArgumentError(f"[quantize] {why}") from why
        return out
