"""Partitions a torch.fx graph into the subgraphs that the library runs, and makes their LoweredModules."""
import contextlib
import dataclasses
import re
from collections import OrderedDict

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._pytree import tree_leaves

from .. import _fakequant as _fq
from .capture.nodes import (
    LayerNames,
    base_parameters,
    fixed_inputs,
    is_constant,
    is_fixed_input,
    is_float,
    is_tensor,
    name_nodes,
    node_shape,
    tensor_inputs,
)
from .ops.layers import has_matrix, has_product, has_weight
from .ops.operators import OperatorLowering
from .ops.refs import TensorRef, Unsupported, require
from .parts import LoweredModule

_INPUT_TYPES = {torch.bool: "bool", torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64"}
#: Layer types whose options may come from the sizes of the example.
_WITH_SIZES = {"slice", "index_select", "resize", "expand", "pad", "reshape", "flatten", "adaptive_avg_pool", "max_pool", "parameter"}
_TOLERANCE = 1e-3  # of the largest value: float32 sums in another order, through a whole network


@dataclasses.dataclass
class Subgraph:
    """Nodes in execution order. They compute from `inputs` (one value, or all inputs of the model), and other nodes read the last one only."""
    inputs: list
    nodes: list


class Partition:
    """The nodes of a graph that the library can compute, and the other nodes.

    `lowered` is {node: Lowering}, `unsupported` is {node: reason}, `names` is {node: layer name}. `path` is the path of `model` in the whole
    model. `any_size` leaves operators to torch that would keep sizes of the example. `rejected` is {node: why it has no layer}.
    """

    def __init__(self, model, graph, path="", any_size=False, rejected=None):
        lowering, rejected = OperatorLowering(model), rejected or {}
        self._graph, self._modules = graph, lowering.modules
        self.lowered, self.unsupported = {}, {}
        for node in graph.nodes:
            if node.op in ("placeholder", "output") or is_constant(node):
                continue
            try:
                require(node not in rejected, rejected.get(node, ""))
                require(not any_size or not lowering.keeps_sizes(node), "its layer would have sizes of the example")
                self.lowered[node] = lowering.lower(node)
            except Unsupported as why:
                self.unsupported[node] = str(why)
        for node in [n for n, lowered in self.lowered.items() if not all(is_tensor(v) or v in self.lowered for v in lowered.inputs)]:
            del self.lowered[node]
            self.unsupported[node] = "it reads a value that is not a tensor"
        for node in reversed(list(self.unsupported)):  # sizes, which layers know from shapes
            if node not in rejected and node.users and "tensor_meta" not in node.meta and all(self._knows_size(user) for user in node.users):
                del self.unsupported[node]
        self.layer_names = LayerNames(model, path)
        self.names = name_nodes(model, graph, self.lowered, self.layer_names)

    def _knows_size(self, user):
        return user in self.lowered or (user.op != "output" and user not in self.unsupported)

    def module(self, node):
        """Returns the module that a node calls."""
        return self._modules[node.target]

    def find_node(self, subgraph, message):
        """Returns the node of a subgraph whose layer an error of the library names, or None."""
        named = re.match(r"\[model\] node '([^']+)'", message)
        found = [node for node in subgraph.nodes if named and (named[1] + ".").startswith(self.names[node] + ".")]
        return max(found, key=lambda node: len(self.names[node]), default=None)

    def readers_of_hidden_values(self, subgraphs):
        """Returns the nodes of torch that read a value within a subgraph, as the size of a tensor there."""
        inside = {node for subgraph in subgraphs for node in subgraph.nodes}
        hidden = inside - {subgraph.nodes[-1] for subgraph in subgraphs}
        needed = {next(iter(reversed(self._graph.nodes)))} | {used for subgraph in subgraphs for used in subgraph.inputs}
        found = []
        for node in reversed(self._graph.nodes):
            if node in needed and node not in inside:
                needed |= set(node.all_input_nodes)
                found += [node] if hidden & set(node.all_input_nodes) else []
        return found

    def attention_nodes(self, subgraphs):
        """Returns the nodes of attention that are in no subgraph."""
        inside = {node for subgraph in subgraphs for node in subgraph.nodes}
        return [node for node in self._graph.nodes if node not in inside and (node.target is scaled_dot_product_attention or (
            node.op == "call_module" and type(self.module(node)) is nn.MultiheadAttention))]

    def parameter_modules(self, node):
        """Returns the paths of the modules whose parameters a node reads."""
        if node.op == "call_module":
            return [node.target]
        bases = [base for used in node.all_input_nodes if is_constant(used) for base in base_parameters(used)]
        return [base.target.rpartition(".")[0] for base in dict.fromkeys(bases)]

    def whole(self):
        """Returns ([the subgraph that is all of a model of several inputs], "") or ([], why there is none)."""
        inputs = [node for node in self._graph.nodes if node.op == "placeholder" and node.users and not is_fixed_input(node)]
        nodes, (output,) = [node for node in self._graph.nodes if node in self.lowered], next(iter(reversed(self._graph.nodes))).args
        if len(inputs) < 2 or self.unsupported or not any(self._has_weight(node) for node in nodes):
            return [], ""
        for node in inputs:
            if not is_tensor(node) or node_shape(node)[:1] != node_shape(inputs[0])[:1] or node_shape(node) == []:
                return [], f"the input {node.target} is not a tensor with the number of samples of {inputs[0].target}"
        if output is not nodes[-1]:
            return [], "it returns something else than one tensor"
        if not _is_result(output, node_shape(inputs[0])[:1]):
            return [], "the rows of its output are not the samples, or it is no floating-point tensor"
        return [Subgraph(inputs, nodes)], ""

    def subgraphs(self):
        """Returns the largest subgraphs of one input that the library computes. Each has a layer with weights."""
        found, current = [], []
        for block, is_closed in self._blocks():
            if is_closed and all(node in self.lowered for node in block) and _is_one_tensor(self._inputs_of([*sum(current, []), *block])):
                current.append(block)
                continue
            found += [*self._runs(current), *self._chains(block)]
            current = []
        found += self._runs(current)
        return [Subgraph(list(self._inputs_of(nodes)), nodes) for nodes in found if any(self._has_weight(node) for node in nodes)]

    def _runs(self, blocks):
        """Returns lists of nodes of consecutive blocks. The result of each has the rows (axis 0) of its input."""
        found, begin = [], 0
        while begin < len(blocks):
            rows = self._rows_of_input(blocks[begin])
            end = next((i for i in reversed(range(begin, len(blocks))) if _is_result(blocks[i][-1], rows)), None)
            found += self._chains(blocks[begin]) if end is None else [sum(blocks[begin:end + 1], [])]
            begin = begin + 1 if end is None else end + 1
        return found

    def _chains(self, block):
        """Returns the chains of a block."""
        found, taken = [], set()
        for node in block:
            if node in self.lowered and node not in taken and _is_one_tensor(self.lowered[node].inputs):
                found.append(self._chain(node, taken, set(block)))
                taken.update(found[-1])
        return found

    def _rows_of_input(self, nodes):
        (used,) = self._inputs_of(nodes)
        return node_shape(used)[:1]

    def _blocks(self):
        """Yields (nodes in order, whether later nodes read the last one only). One value alone enters each block."""
        nodes = [node for node in self._graph.nodes
                 if node in self.lowered or node in self.unsupported or node.op in ("placeholder", "output")]
        last_reader = {}
        for i, node in enumerate(nodes):
            last_reader |= {value: i for value in (self.lowered[node].inputs if node in self.lowered else tensor_inputs(node))}
        block, alive = [], set()
        for i, node in enumerate(nodes[:-1]):
            alive = {value for value in alive if last_reader.get(value, -1) > i} | {node}
            if node.op != "placeholder":
                block.append(node)
            if alive == {node} and is_tensor(node):
                yield block, True
                block = []
        if block:
            yield block, False

    def _chain(self, node, taken, allowed):
        """Returns a chain of nodes. Each value in it has one reader, and each reader has one input."""
        chain = [node]
        while len(chain[-1].users) == 1:
            (user,) = chain[-1].users
            if user not in self.lowered or user not in allowed or user in taken or len(self.lowered[user].inputs) != 1:
                break
            chain.append(user)
        rows = self._rows_of_input(chain)
        while chain and not _is_result(chain[-1], rows):
            chain.pop()
        return chain

    def _inputs_of(self, nodes):
        return {used for node in nodes for used in self.lowered[node].inputs} - set(nodes)

    def _has_weight(self, node):
        return any(has_product(layer_type) for layer_type, _ in self.lowered[node].layers)

    def fixed_inputs(self):
        """Returns {name: value} of inputs of layers that are None, True or False in the example."""
        return {used.target: used.meta["fixed"] for node in self.lowered for used in fixed_inputs(node)}

    def edge_nodes(self):
        """Returns the first and the last node with a weight, or (None, None)."""
        nodes = [node for node in self._graph.nodes if self._is_weighted(node)]
        return (nodes[0], nodes[-1]) if nodes else (None, None)

    def _is_weighted(self, node):
        if node in self.lowered:
            return self._has_weight(node) or any(layer_type == "embedding" for layer_type, _ in self.lowered[node].layers)
        return node.op == "call_module" and any(has_weight(module) for module in self.module(node).modules())

    def unsupported_parent(self, attention):
        """Returns the path of an unsupported module whose submodules could be quantized one by one, or ""."""
        for node in self._graph.nodes:
            if node.op == "call_module" and node in self.unsupported and node not in attention:
                if any(has_matrix(module) for module in list(self.module(node).modules())[1:]):
                    return node.target
        return ""

    def reasons(self, attention):
        """Returns ({name of a node: why torch computes it}, {name of an attention node: why it is a part by itself})."""
        in_torch, by_itself = {}, {}
        for node, why in self.unsupported.items():
            if node in attention:
                by_itself[self.names.get(node, node.name)] = why
            elif not any(used in attention for used in node.all_input_nodes):  # items of (outputs, weights)
                in_torch[self.names.get(node, node.name)] = why
        return in_torch, by_itself


def _is_result(node, rows):
    """Returns whether a part can return a value: floating-point numbers with the rows (axis 0) of its input."""
    return is_tensor(node) and is_float(node) and node_shape(node)[:1] == rows


def _is_one_tensor(values):
    return [is_tensor(value) for value in values] == [True]


def model_nodes(subgraph, partition):
    """Returns the nodes of a model file for a subgraph, {parameter name: TensorRef}, and {layer name in state dicts of 0.1: layer name}.

    Each node is a dict of `name`, `type`, `options` and `inputs` (names of nodes; "input" is the input of the model).
    """
    names, inputs = partition.layer_names, subgraph.inputs
    nodes, refs, old_names = _input_slices(inputs, names) if len(inputs) > 1 else [], {}, {}

    def value_name(used):
        if used in inputs:
            return "input" if len(inputs) == 1 else names.input_name(used.name)
        return partition.names[used]
    for node in subgraph.nodes:
        lowering, name = partition.lowered[node], partition.names[node]
        operand = lambda used: names.child(name, used) if isinstance(used, str) else value_name(used)  # noqa: B023,E731
        for helper in lowering.helpers:
            old_names[f"{node.name}_{helper.name}"] = operand(helper.name)
            nodes.append({"name": operand(helper.name), "type": helper.type, "options": helper.options,
                          "inputs": [operand(used) for used in helper.inputs]})
            if helper.ref is not None:
                refs[f"{operand(helper.name)}.value"] = helper.ref
        reads = [operand(used) for used in (lowering.inputs if lowering.operands is None else lowering.operands)]
        for i, (layer_type, options) in enumerate(lowering.layers):
            is_last = i == len(lowering.layers) - 1
            step = name if is_last else names.child(name, str(i))
            old_names[node.name if is_last else f"{node.name}_{i}"] = step
            nodes.append({"name": step, "type": layer_type, "options": options, "inputs": reads})
            reads = [step]
            if i == lowering.owner % len(lowering.layers):
                refs |= {f"{step}.{parameter}": ref for parameter, ref in lowering.refs.items()}
    return nodes, refs, old_names


def _input_slices(inputs, names):
    """Returns the nodes that slice the inputs out of the rows of one input."""
    begin, out = 0, []
    for node in inputs:
        dtype, shape = _INPUT_TYPES.get(node.meta["tensor_meta"].dtype, "f32"), node_shape(node)[1:]
        out.append({"name": names.input_name(node.name), "type": "input_part", "inputs": ["input"],
                    "options": {"begin": begin, "shape": shape, "name": node.target, "type": dtype}})
        begin += torch.Size(shape).numel()
    return out


class MultiInputModule(LoweredModule):
    """All of a model of several inputs. `shapes` is {name of an input in exported files: shape of a sample}."""

    def __init__(self, shapes, nodes, refs, *arguments):
        self._shapes = shapes
        super().__init__(nodes, refs, [sum(torch.Size(shape).numel() for shape in shapes.values())], *arguments)

    def input_rows(self, inputs):
        """Returns the inputs as rows [N, elements of all inputs]. Raises ArgumentError for other shapes than in the example."""
        for (name, shape), x in zip(self._shapes.items(), inputs):
            if not isinstance(x, torch.Tensor) or list(x.shape) != [inputs[0].shape[0], *shape]:
                got = list(x.shape) if isinstance(x, torch.Tensor) else x
                raise _fq.ArgumentError(f"[fakequant.torch] the input '{name}' is {got}: use {['N', *shape]} as in example_input, with "
                                        "as many samples as the other inputs. quantize(.., whole=False) allows other lengths")
        return torch.cat([x.flatten(1).float() if x.dim() > 1 else x[:, None].float() for x in inputs], 1)

    def check_inputs(self, inputs):
        """Does nothing: `prepared` checks the shapes of all inputs."""

    def prepared(self, inputs):
        return [self.input_rows(inputs)]

    def file_inputs(self, inputs):
        return [self.input_rows(inputs)]

    def _samples(self, calls):
        return torch.cat([self.input_rows(inputs) for inputs in calls])


def lower(subgraph, partition, config):
    """Returns the LoweredModule of a subgraph."""
    nodes, refs, old_names = model_nodes(subgraph, partition)
    modes = {partition.names[node]: TensorRef(partition.lowered[node].mode, "training") for node in subgraph.nodes
             if partition.lowered[node].mode is not None}
    output = node_shape(subgraph.nodes[-1])
    arguments = output[1] if len(output) == 2 else 0, config, modes, old_names
    if len(subgraph.inputs) > 1:
        out = MultiInputModule({node.target: node_shape(node)[1:] for node in subgraph.inputs}, nodes, refs, *arguments)
    else:
        out = LoweredModule(nodes, refs, node_shape(subgraph.inputs[0])[1:], *arguments)
    out.output_type = subgraph.nodes[-1].meta["tensor_meta"].dtype
    return out


class SizeCheck:
    """Compares a Quantized with torch at the first call whose sizes differ from the example, without quantizers. Later calls are not compared."""

    def __init__(self, graph, partition, subgraphs):
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        self._names = [node.target for node in placeholders]
        self._shapes = {node.target: node_shape(node)[1:] for node in placeholders if is_tensor(node)}
        is_exact = any(len(subgraph.inputs) > 1 for subgraph in subgraphs)  # a part of several inputs checks their sizes itself
        self._is_general = is_exact or not any(_may_have_sizes(node, partition.lowered[node]) for subgraph in subgraphs for node in subgraph.nodes)

    def differs(self, inputs, named):
        """Returns whether the sizes of a call have to be checked."""
        if self._is_general:
            return False
        given = dict(zip(self._names, inputs)) | named
        return any(isinstance(given.get(name), torch.Tensor) and list(given[name].shape[1:]) != shape for name, shape in self._shapes.items())

    @torch.compiler.disable
    def check(self, model, inputs, named):
        """Raises ArgumentError if the layers compute other values than torch for these sizes."""
        modes = {module: module.training for module in model.modules()}
        try:
            for module in modes:
                module.training = False
            with torch.no_grad():
                wanted = model.run_float(*inputs, **named)
                found = _without_quantizers(model, inputs, named)
        finally:
            for module, mode in modes.items():
                module.training = mode
        if found is None or not _are_close(found, wanted):
            given = dict(zip(self._names, inputs)) | named
            sizes = "; ".join(f"'{name}' is {list(given[name].shape)}, and {['N', *shape]} in example_input" for name, shape in self._shapes.items()
                              if isinstance(given.get(name), torch.Tensor) and list(given[name].shape[1:]) != shape)
            raise _fq.ArgumentError(f"[fakequant.torch] {sizes}: layers have sizes of the example. Quantize with an example of the size of your "
                                    "calls, or with whole=False")
        self._is_general = True


def _may_have_sizes(node, lowering):
    """Returns whether a layer may have sizes of the example as options, or reads a constant that has them."""
    types = {layer_type for layer_type, _ in lowering.layers} | {helper.type for helper in lowering.helpers}
    return bool(types & _WITH_SIZES) or any("fixed" in used.meta and used.op != "placeholder" for used in node.all_input_nodes)


def _without_quantizers(model, inputs, named):
    """Returns the outputs of the layers without quantizers, or None if the library rejects the sizes."""
    try:
        with contextlib.ExitStack() as stack:
            for lowered in model.lowered_modules().values():
                stack.enter_context(lowered.network.quantizers_off("*"))
                stack.enter_context(_without_hooks(lowered))
            return model.run_layers(inputs, named)
    except _fq.ArgumentError as why:
        if "example_input" in str(why):
            raise
        return None


@contextlib.contextmanager
def _without_hooks(module):
    """Hides a call from observers, which compare outputs with quantizers."""
    hooks, module._forward_hooks = module._forward_hooks, OrderedDict()
    try:
        yield
    finally:
        module._forward_hooks = hooks


def _are_close(found, wanted):
    found, wanted = ([x for x in tree_leaves(value) if isinstance(x, torch.Tensor)] for value in (found, wanted))
    return len(found) == len(wanted) and all(
        a.shape == b.shape and (a.numel() == 0 or bool((a.float() - b.float()).abs().max() <= _TOLERANCE * b.float().abs().max() + 1e-6))
        for a, b in zip(found, wanted))
