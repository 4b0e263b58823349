"""A module's forward as torch.fx reads it, cut into the parts that the library has."""
import contextlib
import copy
import dataclasses
import functools
import inspect
import io
import itertools
import sys
from collections import OrderedDict

import torch
from torch.fx.immutable_collections import immutable_dict
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional

from .calls import Reader
from .forwards import FORWARDS
from .layers import NoLayer, has_product, has_weight, is_conv1d, require
from .names import Names, name_layers
from .program import OrderedItems
from .nodes import has_hooks, is_absent, is_tensor, name_of, readers_skip, shape_of, tensor_inputs, turned


_LONGEST = 100  # characters of an error message


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return is_conv1d(m) or has_hooks(m) or (type(m) not in FORWARDS and super().is_leaf_module(m, module_qualified_name))

    def call_module(self, m, forward, args, kwargs):
        return super().call_module(m, functools.partial(FORWARDS[type(m)], m) if type(m) in FORWARDS else forward, args, kwargs)

    def create_arg(self, a):
        if type(a) is OrderedDict:
            return OrderedItems(tuple(a), tuple(map(self.create_arg, a.values())))
        require(not isinstance(a, dict) or type(a) in (dict, immutable_dict), f"torch.fx reads its {type(a).__name__} as a dict")
        return super().create_arg(a)

    def iter(self, obj):
        """Parts of a tensor in a loop: torch.fx cannot know how many, a chunk says it."""
        node = obj.node
        if name_of(node) == "chunk":
            return (obj[i] for i in range(node.args[1] if len(node.args) > 1 else node.kwargs["chunks"]))
        return super().iter(obj)


def _traced(model, training):
    """As torch.fx reads it in that mode."""
    model.train(training)
    read = torch.fx.GraphModule(model, _graph_of(model))
    graph = read.graph
    for node in list(graph.nodes):
        if node.target is torch._assert:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return read


def _graph_of(model):
    if type(model) in FORWARDS:  # a twin of the same children
        twin = copy.copy(model)
        twin.__class__ = type(type(model).__name__, (type(model),), {"forward": FORWARDS[type(model)]})
        return _Tracer().trace(twin)
    if not is_conv1d(model):
        return _Tracer().trace(model)
    graph = torch.fx.Graph()  # its own forward joins samples and rows
    x, weight, bias = graph.placeholder("x"), graph.get_attr("weight"), graph.get_attr("bias")
    graph.output(graph.call_function(functional.linear, (x, graph.call_method("t", (weight,)), bias)))
    return graph


def _read_modes(model):
    """The graph of training, whose nodes know their arguments in evaluation."""
    read, evaluation = _traced(model, True), _traced(model, False)
    twins = {}
    for node, other in itertools.zip_longest(read.graph.nodes, evaluation.graph.nodes):
        if node is None or other is None or (node.op, node.target) != (other.op, other.target):
            raise NoLayer(f"{type(model).__name__} runs other functions in training than in evaluation")
        twins[other] = node
        node.meta["in_evaluation"] = tuple(map_arg(arguments, twins.get) for arguments in (other.args, other.kwargs))
    return read


@contextlib.contextmanager
def _quiet_failure():
    """ShapeProp prints what a node raises, beside raising it; what the model's own code prints comes through."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        yield
    sys.stderr.write(printed.getvalue())


def read(model, inputs):
    """The torch.fx graph of `model` with the shapes that `inputs` give its values. The model stays as it is. Raises NoLayer where
    torch.fx cannot follow its forward."""
    kinds = {parameter.kind for parameter in inspect.signature(model.forward).parameters.values()}
    require(not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY} <= kinds, "its forward has *args and keyword-only arguments")
    modes = {module: module.training for module in model.modules()}
    try:
        graph = _read_modes(model)
        model.eval()
        with torch.no_grad(), _quiet_failure():
            ShapeProp(graph).propagate(*inputs)
    except NoLayer:
        raise
    except Exception as error:  # of the model's own code
        raise NoLayer(_why_unread(model, error)) from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    return graph.graph


def is_torchs_own(module):
    """Whether it is a layer of torch, whose code is not the user's."""
    return type(module).__module__.startswith("torch.nn.")


def _why_unread(model, error):
    """One line."""
    name, text = type(model).__name__, (str(error).strip() or "no message").splitlines()[0]
    if is_torchs_own(model) or all(parameter.dim() < 2 for parameter in model.parameters()):
        return f"{name} is not quantized"
    return f"torch.fx cannot read {name}, {type(error).__name__}: {text[:_LONGEST]}{'..' if len(text) > _LONGEST else ''}"


@dataclasses.dataclass
class Part:
    """Nodes in order that follow from `sources`, one value or all inputs, and of which the last alone is read by others."""
    sources: list
    nodes: list


class Layers:
    """The layers of the nodes of a graph. `found` is the Layer of a node, `reasons` why a node has none, `names` the name of a node.

    `path` is the path of `model` in the whole model."""

    def __init__(self, model, graph, path=""):
        self.found, self.reasons, reader = {}, {}, Reader(model)
        self._modules = reader.modules
        for node in graph.nodes:
            if node.op in ("placeholder", "output", "get_attr") or readers_skip(node) or turned(node) is not None:
                continue
            try:
                self.found[node] = reader.layer(node)
            except NoLayer as why:
                self.reasons[node] = str(why)
        for node in [node for node, layer in self.found.items() if not all(is_tensor(v) or v in self.found for v in layer.inputs)]:
            del self.found[node]
            self.reasons[node] = "it reads what is no tensor"
        for node in reversed(list(self.reasons)):  # numbers that only layers read, which know them from shapes
            if node.users and "tensor_meta" not in node.meta and all(self._knows(user) for user in node.users):
                del self.reasons[node]
        self.paths = Names(model, path)
        self.names = name_layers(model, graph, self.found, self.paths)

    def module(self, node):
        """Of a node that calls one."""
        return self._modules[node.target]

    def modules_of(self, node):
        """The paths of the modules whose parameters a node reads."""
        if node.op == "call_module":
            return [node.target]
        read = [turned(used) or used for used in node.all_input_nodes]
        return [used.target.rpartition(".")[0] for used in read if used.op == "get_attr"]

    def _knows(self, user):
        return user in self.found or (user.op != "output" and user not in self.reasons)

    def _chain(self, node, taken, allowed):
        """A node and those behind it, while each value has one reader, which reads nothing else."""
        part = [node]
        while len(part[-1].users) == 1:
            (user,) = part[-1].users
            if user not in self.found or user not in allowed or user in taken or len(self.found[user].inputs) != 1:
                break
            part.append(user)
        return part

    def _blocks(self, graph):
        """(nodes in order, whether the last alone is read behind them): runs of nodes, each entered by one value alone."""
        nodes = [node for node in graph.nodes
                 if node in self.found or node in self.reasons or node.op in ("placeholder", "output")]
        last = {}
        for i, node in enumerate(nodes):
            last |= {value: i for value in self._inputs(node)}
        block, alive = [], set()
        for i, node in enumerate(nodes[:-1]):
            alive = {value for value in alive if last.get(value, -1) > i} | {node}
            if node.op != "placeholder":
                block.append(node)
            if alive == {node}:
                yield block, True
                block = []
        if block:
            yield block, False

    def _inputs(self, node):
        return self.found[node].inputs if node in self.found else tensor_inputs(node)

    def whole(self, graph):
        """([the part that is all of a network of several inputs], ""), or ([], why it is none)."""
        inputs = [node for node in graph.nodes if node.op == "placeholder" and node.users and not is_absent(node)]
        nodes, (end,) = [node for node in graph.nodes if node in self.found], next(iter(reversed(graph.nodes))).args
        if len(inputs) < 2 or self.reasons or not any(self._has_weight(node) for node in nodes):
            return [], ""
        for node in inputs:
            if not is_tensor(node) or shape_of(node)[:1] != shape_of(inputs[0])[:1] or shape_of(node) == []:
                return [], f"the input {node.target} is no tensor of samples as {inputs[0].target} is"
        if end is not nodes[-1]:
            return [], "it gives other than one tensor"
        return [Part(inputs, nodes)], ""

    def absent(self):
        """The names of inputs that are None in the example, as layers take them."""
        return {used.target for node in self.found for used in node.all_input_nodes if is_absent(used)}

    def parts(self, graph):
        """The parts that the library can run whole and that have a layer with weights."""
        joined, whole = [], []
        for block, closed in self._blocks(graph):
            if closed and all(node in self.found for node in block) and [is_tensor(used) for used in self._sources(whole + block)] == [True]:
                whole.extend(block)
                continue
            joined.append(whole)
            whole, taken = [], set()
            for node in block:
                if node in self.found and node not in taken and [is_tensor(used) for used in self.found[node].inputs] == [True]:
                    chain = self._chain(node, taken, set(block))
                    taken.update(chain)
                    joined.append(chain)
        joined.append(whole)
        return [Part(list(self._sources(nodes)), nodes) for nodes in joined if any(self._has_weight(node) for node in nodes)]

    def edges(self, graph):
        """The first and the last node of a layer with a weight, None where there is none."""
        nodes = [node for node in graph.nodes if self._weighs(node)]
        return (nodes[0], nodes[-1]) if nodes else (None, None)

    def _weighs(self, node):
        if node in self.found:
            return self._has_weight(node) or any(kind == "embedding" for kind, _ in self.found[node].kinds)
        return node.op == "call_module" and any(has_weight(module) for module in self.module(node).modules())

    def _sources(self, nodes):
        return {used for node in nodes for used in self.found[node].inputs} - set(nodes)

    def _has_weight(self, node):
        return any(has_product(kind) for kind, _ in self.found[node].kinds)
