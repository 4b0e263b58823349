"""Traces a module with torch.fx."""
import contextlib
import copy
import functools
import inspect
import io
import itertools
import logging
import sys
import types
from collections import OrderedDict

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.immutable_collections import immutable_dict
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations
from torch.utils._pytree import tree_leaves

from ..ops.functions import RANDOM
from ..ops.layers import has_hooks, is_conv1d, is_drop_path
from ..ops.refs import Unsupported, require
from .interpreter import OrderedItems
from .nodes import TensorLiteral, autocast_types, differ_in_constants, function_name, mark_constants, replace_writes, same_arguments

_LONGEST = 100  # characters of an error message
#: Attributes of every module that a forward does not change.
_OF_MODULES = vars(nn.Module()).keys() - {"training", "_buffers", "_parameters", "_modules"}


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

class _AttributeProxy(torch.fx.Proxy):
    """A parameter or buffer, whose sizes are numbers."""

    def __init__(self, node, tracer, tensor):
        super().__init__(node, tracer)
        self._tensor = tensor

    shape = property(lambda self: self._tensor.shape)
    ndim = property(lambda self: self._tensor.dim())
    dtype = property(lambda self: self._tensor.dtype)

    def size(self, dim=None):
        return self._tensor.size() if dim is None else self._tensor.size(dim)

    def dim(self):
        return self._tensor.dim()

    def numel(self):
        return self._tensor.numel()


class _Tracer(torch.fx.Tracer):
    proxy_buffer_attributes = True  # else a function of buffers runs now, and writes to them

    def trace(self, root, concrete_args=None):
        self._tensors = dict(root.named_parameters(remove_duplicate=False)) | dict(root.named_buffers(remove_duplicate=False))
        self._autocast = autocast_types()
        return super().trace(root, concrete_args)

    def proxy(self, node):
        return _AttributeProxy(node, self, self._tensors[node.target]) if node.target in self._tensors else super().proxy(node)

    def create_node(self, *args, **kwargs):
        require(autocast_types() == self._autocast, "its forward calls torch.autocast, which torch.fx does not record")
        return super().create_node(*args, **kwargs)

    def is_leaf_module(self, m, module_qualified_name):
        return is_conv1d(m) or is_drop_path(m) or has_hooks(m) or (
            type(m) not in _FORWARDS and super().is_leaf_module(m, module_qualified_name))

    def call_module(self, m, forward, args, kwargs):
        return super().call_module(m, functools.partial(_FORWARDS[type(m)], m) if type(m) in _FORWARDS else forward, args, kwargs)

    def create_arg(self, a):
        if type(a) is OrderedDict:
            return OrderedItems(tuple(a), tuple(map(self.create_arg, a.values())))
        require(not isinstance(a, dict) or type(a) in (dict, immutable_dict), f"torch.fx reads its {type(a).__name__} as a dict")
        if isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter):
            return self.create_node("call_function", TensorLiteral(a), (), {})
        return super().create_arg(a)

    def iter(self, obj):
        """Iterates over the items of a chunk or split, whose number is an argument. torch.fx cannot iterate over other values."""
        node, count = obj.node, None
        if function_name(node) in ("chunk", "split"):
            given = node.args[1] if len(node.args) > 1 else node.kwargs.get("chunks", node.kwargs.get("split_size_or_sections"))
            count = len(given) if isinstance(given, (tuple, list)) else given if function_name(node) == "chunk" else None
        return super().iter(obj) if count is None else (obj[i] for i in range(count))


def is_wrapped(kind, target):
    """Returns whether a call is a function that torch.fx.wrap hides, as the window attention of torchvision."""
    return kind == "call_function" and isinstance(target, types.FunctionType) and target.__name__ not in RANDOM and (
        target.__module__.partition(".")[0] != "torch")


def _has_proxy(arguments):
    return any(isinstance(leaf, torch.fx.Proxy) for leaf in tree_leaves(arguments))


class SizedTracer(_Tracer):
    """Traces with the sizes of an example. Sizes are numbers, except the number of samples (axis 0), which stays a value of the graph."""

    def __init__(self, example):
        super().__init__()
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._inputs, self.values, self._is_paused, self._forward = iter(example), {}, False, None

    def call_module(self, m, forward, args, kwargs):
        if self._is_paused:  # computes a value
            return forward(*args, **kwargs)
        self._forward = forward
        return super().call_module(m, forward, args, kwargs)

    def create_arg(self, a):
        arg = super().create_arg(a)
        if isinstance(a, torch.Tensor):
            self.values[arg] = a
        return arg

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        return attr_val if self._is_paused else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_proxy(self, kind, target, args, kwargs, *rest, **named):
        if is_wrapped(kind, target):
            return target(*args, **kwargs)
        if kind == "call_method" and target in ("new_zeros", "new_ones", "new_full") and not _has_proxy((args[1:], kwargs)):
            like = self.values[args[0].node]  # a mask that the forward then writes to
            return getattr(torch.empty(0, dtype=like.dtype, device=like.device), target)(*args[1:], **kwargs)
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **named)
        self.values[proxy.node] = self._value(proxy.node, kind)
        return proxy

    def proxy(self, node):
        proxy = super().proxy(node)
        return proxy if isinstance(proxy, _AttributeProxy) else _SizedProxy(node, self)

    def _value(self, node, kind):
        """Returns the value of a node for the example: a tensor without data, a size, or None if there is none."""
        if kind == "placeholder":
            value = next(self._inputs, None)
            return self._mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        if kind == "get_attr":
            return self._tensors.get(node.target)
        args, kwargs = map_arg(node.args, self.values.get), map_arg(node.kwargs, self.values.get)
        self._is_paused = True
        try:
            with self._mode, torch.no_grad():
                if kind == "call_method":
                    return getattr(args[0], node.target)(*args[1:], **kwargs)
                return None if kind == "output" else (self._forward if kind == "call_module" else node.target)(*args, **kwargs)
        finally:
            self._is_paused = False


class _SizedProxy(torch.fx.Proxy):
    """A value of the graph, whose sizes are numbers."""

    @property
    def shape(self):
        value = self.tracer.values.get(self.node)
        if not isinstance(value, torch.Tensor):
            return torch.fx.proxy.Attribute(self, "shape")
        return (self.tracer.create_proxy("call_method", "size", (self, 0), {}), *value.shape[1:]) if value.dim() else ()

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def __getattr__(self, name):
        value = self.tracer.values.get(self.node)
        is_known = name in ("device", "dtype", "ndim") and isinstance(value, torch.Tensor)
        return getattr(value, name) if is_known else super().__getattr__(name)

    def dim(self):
        return self.tracer.values[self.node].dim()


def trace(model, inputs, fixed_sizes=False):
    """Returns the torch.fx graph of a model, with the shapes of its values for these inputs. The model does not change.

    `fixed_sizes` makes all sizes but the number of samples numbers, so that the forward may depend on them. Raises Unsupported if torch.fx
    cannot trace the forward of the model.
    """
    if is_parametrized(model) and is_torch_layer(model):
        model = _plain_layer(model)
    kinds = {parameter.kind for parameter in inspect.signature(model.forward).parameters.values()}
    require(not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY} <= kinds, "its forward has *args and keyword-only arguments")
    modes = {module: module.training for module in model.modules()}
    attributes = [(module, dict(vars(module)), [(value, copy.copy(value)) for name, value in vars(module).items()
                                                if type(value) in (dict, list) and name not in _OF_MODULES]) for module in modes]
    try:
        return _trace_both_modes(model, inputs, fixed_sizes)
    except Unsupported:
        raise
    except Exception as error:  # of the model's own code
        raise Unsupported(_trace_error(model, error)) from error
    finally:
        for module, own, containers in attributes:
            _restore(module, own, containers)


def _check_kept_values(known):
    """Raises Unsupported if the forward set a buffer or an attribute, which the next call may read. `known` is {module: values before}."""
    for module, before in known.items():
        for name, value in (vars(module) | module._buffers).items():
            require(value is before.get(name, value) or not _has_proxy(value),
                    f"the forward of {type(module).__name__} sets '{name}', which torch.fx does not record")


def _restore(module, own, containers):
    """Restores the attributes of a module, and the contents of its dicts and lists. A forward may have stored proxies there."""
    for name in vars(module).keys() - own.keys():
        delattr(module, name)
    vars(module).update(own)
    for value, before in containers:
        if isinstance(value, list):
            value[:] = before
        else:
            value.clear()
            value.update(before)


def _trace_both_modes(model, inputs, fixed_sizes):
    """Returns the graph of training mode. The metadata of each node has its shape in evaluation, and its arguments there if they differ."""
    example = inputs if fixed_sizes else None
    training, evaluation = _trace_mode(model, True, example), _trace_mode(model, False, example)
    pairs = list(itertools.zip_longest(training.graph.nodes, evaluation.graph.nodes))
    if any(node is None or other is None or (node.op, node.target) != (other.op, other.target) for node, other in pairs):
        raise Unsupported(f"{type(model).__name__} runs other functions in training than in evaluation")
    with torch.no_grad(), _without_traceback():
        _Shapes(evaluation).propagate(*inputs)
    twins = {other: node for node, other in pairs}
    for node, other in pairs:
        node.meta |= {key: other.meta[key] for key in ("tensor_meta", "type", "value") if key in other.meta}
        args, kwargs = (map_arg(arguments, twins.get) for arguments in (other.args, other.kwargs))
        if not same_arguments((args, dict(kwargs)), (node.args, dict(node.kwargs))):
            require(differ_in_constants((args, dict(kwargs)), (node.args, dict(node.kwargs))),
                    f"{type(model).__name__} reads or returns other values in training than in evaluation")
            node.meta["in_evaluation"] = args, kwargs
    replace_writes(training.graph, dict(model.named_modules()))
    training.graph.eliminate_dead_code()
    mark_constants(training.graph)
    return training.graph


def _trace_mode(model, training, example=None):
    model.train(training)
    known = {module: vars(module) | module._buffers for module in model.modules()}
    traced = torch.fx.GraphModule(model, _graph(model, example))
    _check_kept_values(known)
    counted = set()  # batch norms that count their batches
    for node in reversed(list(traced.graph.nodes)):
        is_counting = _is_counting(node) and not node.users
        if is_counting:
            counted.add(node.args[0].target.rpartition(".")[0])
        is_unused_attribute = (node.op == "get_attr" or node.target is getattr) and not node.users  # one mode may not read it
        if node.target is torch._assert or is_counting or is_unused_attribute:
            traced.graph.erase_node(node)
    for node in traced.graph.nodes:
        if node.op == "get_attr" and node.target.endswith("running_mean"):
            node.meta["counted"] = node.target.rpartition(".")[0] in counted
    return traced


def _is_counter(node):
    return node.op == "get_attr" and node.target.rpartition(".")[2] == "num_batches_tracked"


def _is_counting(node):
    return node.op == "call_method" and node.target == "add_" and _is_counter(node.args[0])


class _Shapes(ShapeProp):
    """Records the shapes of tensors, and the values of sizes and other attributes of tensors."""

    def run_node(self, n):
        result = super().run_node(n)
        if n.op in ("call_function", "call_method", "placeholder") and "tensor_meta" not in n.meta:
            n.meta["value"] = result
        return result


def _graph(model, example):
    if example is not None:
        with _without_log("torch._subclasses.fake_tensor"):
            graph = SizedTracer(example).trace(model)
        for node in graph.nodes:  # torch.fx marks the results of functions that were traced
            node.meta.pop("is_wrapped", None)
        return graph
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


def _plain_layer(model):
    """Returns a copy whose weights are parameters, for a layer whose weights torch computes."""
    twin = object.__new__(type_before_parametrizations(model))
    twin.__dict__ = dict(vars(model))
    twin._parameters = model._parameters | {name: nn.Parameter(getattr(model, name).detach()) for name in model.parametrizations}
    return twin


@contextlib.contextmanager
def _without_log(name):
    """Drops the messages of a logger. Errors are raised in addition."""
    logger = logging.getLogger(name)
    logger.disabled, before = True, logger.disabled
    try:
        yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def _without_traceback():
    """Drops the traceback that ShapeProp prints before it raises. Output of the model's own code is kept."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        yield
    sys.stderr.write(printed.getvalue())


def is_torch_layer(module):
    """Returns whether a module is a class of torch.nn."""
    return type_before_parametrizations(module).__module__.startswith("torch.nn.")


def _trace_error(model, error):
    """Returns the reason in one line."""
    name, text = type(model).__name__, (str(error).strip() or "no message").splitlines()[0]
    if is_torch_layer(model) or all(parameter.dim() < 2 for parameter in model.parameters()):
        return f"{name} is not quantized"
    return f"torch.fx cannot read {name}, {type(error).__name__}: {text[:_LONGEST]}{'..' if len(text) > _LONGEST else ''}"
