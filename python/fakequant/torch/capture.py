"""Traces a module with torch.fx, and reads nodes of the graph."""
import contextlib
import copy
import functools
import inspect
import io
import itertools
import sys
from collections import OrderedDict

import torch
from torch import nn
from torch.fx.immutable_collections import immutable_dict
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional

from .interpreter import OrderedItems
from .layers import Unsupported, has_hooks, is_conv1d, require

_LONGEST = 100  # characters of an error message


# Nodes.

def is_parameter(value):
    """Returns whether a value is a node that reads a parameter or a buffer of the model."""
    return isinstance(value, torch.fx.Node) and value.op == "get_attr"


def is_none_input(value):
    """Returns whether a value is an input that is None in the example."""
    return isinstance(value, torch.fx.Node) and value.op == "placeholder" and value.meta.get("type") is type(None)


def is_tensor(node):
    return isinstance(node.meta.get("tensor_meta"), torch.fx.passes.shape_prop.TensorMetadata)


def is_unpacked_split(node):
    """Returns whether a node is a chunk or split, and all its readers take one item. Readers slice its input instead."""
    is_split = node.op in ("call_function", "call_method") and function_name(node) in ("chunk", "split") and len(node.all_input_nodes) == 1
    return is_split and all(function_name(user) == "getitem" for user in node.users)


def transposed_parameter(node):
    """Returns the parameter [a, b] if a node is its transpose, else None."""
    if node.op not in ("call_method", "call_function") or not node.args or not is_parameter(node.args[0]):
        return None
    name, axes = function_name(node), node.args[1:]
    swaps = (name == "t" and not axes) or (name == "getattr" and axes in (("T",), ("mT",))) or (
        name == "transpose" and sorted(axis % 2 for axis in axes) == [0, 1])
    return node.args[0] if swaps and is_tensor(node.args[0]) and len(node_shape(node.args[0])) == 2 else None


def tensor_inputs(node):
    """Returns the nodes of the tensors that a node reads, without parameters and buffers of the model."""
    sources = [value.all_input_nodes[0] if is_unpacked_split(value) else value for value in node.all_input_nodes]
    return [value for value in dict.fromkeys(sources)
            if value.op != "get_attr" and transposed_parameter(value) is None and "tensor_meta" in value.meta]


def node_shape(node):
    return list(node.meta["tensor_meta"].shape)


def function_name(node):
    """Returns the name of the function or method that a node calls."""
    return node.target if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))


def argument(node, position, name, default=None):
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


# Modules of torch whose own forward torch.fx cannot trace (fast paths, lengths). `is_causal` is a hint there, which changes no output.

def _encoder_layer(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
    if self.norm_first:
        x = src + self._sa_block(self.norm1(src), src_mask, src_key_padding_mask)
        return x + self._ff_block(self.norm2(x))
    x = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
    return self.norm2(x + self._ff_block(x))


def _decoder_layer(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
                   tgt_is_causal=False, memory_is_causal=False):
    own, other = (tgt_mask, tgt_key_padding_mask), (memory_mask, memory_key_padding_mask)
    if self.norm_first:
        x = tgt + self._sa_block(self.norm1(tgt), *own)
        x = x + self._mha_block(self.norm2(x), memory, *other)
        return x + self._ff_block(self.norm3(x))
    x = self.norm1(tgt + self._sa_block(tgt, *own))
    x = self.norm2(x + self._mha_block(x, memory, *other))
    return self.norm3(x + self._ff_block(x))


def _encoder(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
    for layer in self.layers:
        src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
    return src if self.norm is None else self.norm(src)


def _decoder(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
             tgt_is_causal=None, memory_is_causal=False):
    for layer in self.layers:
        tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                    memory_key_padding_mask=memory_key_padding_mask)
    return tgt if self.norm is None else self.norm(tgt)


def _transformer(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None, tgt_key_padding_mask=None,
                 memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None, memory_is_causal=False):
    memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
    return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                        memory_key_padding_mask=memory_key_padding_mask)


_FORWARDS = {nn.TransformerEncoderLayer: _encoder_layer, nn.TransformerDecoderLayer: _decoder_layer,
            nn.TransformerEncoder: _encoder, nn.TransformerDecoder: _decoder, nn.Transformer: _transformer}


# Tracing.

class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return is_conv1d(m) or has_hooks(m) or (type(m) not in _FORWARDS and super().is_leaf_module(m, module_qualified_name))

    def call_module(self, m, forward, args, kwargs):
        return super().call_module(m, functools.partial(_FORWARDS[type(m)], m) if type(m) in _FORWARDS else forward, args, kwargs)

    def create_arg(self, a):
        if type(a) is OrderedDict:
            return OrderedItems(tuple(a), tuple(map(self.create_arg, a.values())))
        require(not isinstance(a, dict) or type(a) in (dict, immutable_dict), f"torch.fx reads its {type(a).__name__} as a dict")
        return super().create_arg(a)

    def iter(self, obj):
        """Iterates over the items of a chunk, whose number is an argument. torch.fx cannot iterate over other values."""
        node = obj.node
        if function_name(node) == "chunk":
            return (obj[i] for i in range(node.args[1] if len(node.args) > 1 else node.kwargs["chunks"]))
        return super().iter(obj)


def trace(model, inputs):
    """Returns the torch.fx graph of a model, with the shapes of its values for these inputs. The model does not change.

    Raises Unsupported if torch.fx cannot trace the forward of the model.
    """
    kinds = {parameter.kind for parameter in inspect.signature(model.forward).parameters.values()}
    require(not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY} <= kinds, "its forward has *args and keyword-only arguments")
    modes = {module: module.training for module in model.modules()}
    try:
        graph = _trace_both_modes(model)
        model.eval()
        with torch.no_grad(), _without_traceback():
            ShapeProp(graph).propagate(*inputs)
    except Unsupported:
        raise
    except Exception as error:  # of the model's own code
        raise Unsupported(_trace_error(model, error)) from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    return graph.graph


def _trace_both_modes(model):
    """Returns the graph of training mode. The metadata of each node has its arguments in evaluation mode."""
    training, evaluation = _trace_mode(model, True), _trace_mode(model, False)
    twins = {}
    for node, other in itertools.zip_longest(training.graph.nodes, evaluation.graph.nodes):
        if node is None or other is None or (node.op, node.target) != (other.op, other.target):
            raise Unsupported(f"{type(model).__name__} runs other functions in training than in evaluation")
        twins[other] = node
        node.meta["in_evaluation"] = tuple(map_arg(arguments, twins.get) for arguments in (other.args, other.kwargs))
    return training


def _trace_mode(model, training):
    model.train(training)
    traced = torch.fx.GraphModule(model, _graph(model))
    for node in list(traced.graph.nodes):
        if node.target is torch._assert:
            traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()
    return traced


def _graph(model):
    if type(model) in _FORWARDS:  # a copy with the same children
        twin = copy.copy(model)
        twin.__class__ = type(type(model).__name__, (type(model),), {"forward": _FORWARDS[type(model)]})
        return _Tracer().trace(twin)
    if not is_conv1d(model):
        return _Tracer().trace(model)
    graph = torch.fx.Graph()  # its own forward reshapes samples and rows
    x, weight, bias = graph.placeholder("x"), graph.get_attr("weight"), graph.get_attr("bias")
    graph.output(graph.call_function(functional.linear, (x, graph.call_method("t", (weight,)), bias)))
    return graph


@contextlib.contextmanager
def _without_traceback():
    """Drops the traceback that ShapeProp prints before it raises. Output of the model's own code is kept."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        yield
    sys.stderr.write(printed.getvalue())


def is_torch_layer(module):
    """Returns whether a module is a class of torch.nn."""
    return type(module).__module__.startswith("torch.nn.")


def _trace_error(model, error):
    """Returns the reason in one line."""
    name, text = type(model).__name__, (str(error).strip() or "no message").splitlines()[0]
    if is_torch_layer(model) or all(parameter.dim() < 2 for parameter in model.parameters()):
        return f"{name} is not quantized"
    return f"torch.fx cannot read {name}, {type(error).__name__}: {text[:_LONGEST]}{'..' if len(text) > _LONGEST else ''}"
