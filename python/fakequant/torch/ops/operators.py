"""Translates nodes of torch.fx (modules, functions, methods of tensors) into layers of the library."""
import dataclasses
import inspect
import math

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from ..capture.interpreter import caller_path, make_step
from ..capture.nodes import (
    argument,
    base_parameters,
    fixed,
    function_name,
    is_constant,
    is_float,
    is_tensor,
    node_shape,
    tensor_inputs,
)
from . import shapes, weights
from .functions import ALONG_AXIS, ELEMENTWISE, POOLS, RANDOM, adaptive_pool, local_response_norm, pad, resize
from .layers import has_hooks, hooks_reason, mode_module, module_layer, module_layers, module_refs
from .refs import Constant, Expression, HelperNode, Lowering, TensorRef, Unsupported, constant, parametrized, require

#: Other names of functions and methods of torch, without the underscore of in-place forms.
_ALIASES = {"iadd": "add", "isub": "sub", "subtract": "sub", "imul": "mul", "multiply": "mul", "itruediv": "div", "truediv": "div",
            "true_divide": "div", "divide": "div", "concat": "cat", "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose",
            "maximum": "maximum", "fmax": "maximum", "fmin": "minimum", "less": "lt", "less_equal": "le", "greater": "gt",
            "greater_equal": "ge", "not_equal": "ne", "bmm": "matmul", "mm": "matmul", "bitwise_not": "invert", "logical_not": "invert",
            "bitwise_and": "and", "logical_and": "and", "and_": "and", "bitwise_or": "or", "logical_or": "or", "or_": "or",
            "upsample": "interpolate", "_threshold": "threshold", "ipow": "pow", "view_as": "reshape", "reshape_as": "reshape"}
_BINARY = {"add": "add", "sub": "sub", "mul": "multiply", "div": "div", "maximum": "maximum", "minimum": "minimum", "lt": "less",
           "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal", "matmul": "matmul", "pow": "pow"}
_RESHAPES = {"view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"}  # one size may be -1
_SIZED = {"flip", "roll", "repeat", "tile", "repeat_interleave", "expand", "expand_as"} | {f"adaptive_max_pool{axes}d" for axes in (1, 2, 3)}
_SIZED_MODULES = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}


def operator_name(node):
    """Returns the name of the operator of a function or method. Aliases and in-place forms have the same name."""
    name = function_name(node)
    name = name[:-1] if name.endswith("_") and name not in ("and_", "or_") else name
    return _ALIASES.get(name, name)


class OperatorLowering:
    """Translates the nodes of a model one by one."""

    def __init__(self, model):
        self.model, self.modules = model, dict(model.named_modules())
        self._constants = {}

    # References.

    def ref(self, node, **change):
        """Returns the TensorRef of a constant node."""
        if node.op == "get_attr":
            path, _, name = node.target.rpartition(".")
            module = self.modules[path]
            if is_parametrized(module, name):
                return dataclasses.replace(parametrized(module, name), **change)
            return TensorRef(module, name, **change)
        source, swapped = _transposed(node)
        if swapped:
            return self.ref(source, **change | {"transposed": not change.get("transposed", False)})
        if node not in self._constants:
            self._constants[node] = self._computed(node)
        module, name, expression = self._constants[node]
        return TensorRef(module, name, expression=expression, **change)

    def _computed(self, node):
        """Returns (module, name, Expression or None) of a constant that is computed from parameters, buffers and sizes."""
        bases, found = base_parameters(node), {}

        def visit(used):
            if used not in found and is_constant(used):
                for other in used.all_input_nodes if used.op != "get_attr" else ():
                    visit(other)
                found[used] = None
        visit(node)
        steps = [make_step(used) for used in found if used.op != "get_attr"]
        sizes = {size.name: size.meta["fixed"] for used in found for size in used.all_input_nodes if "fixed" in size.meta}
        refs = {base: self.ref(base) for base in bases}
        require(all(ref.expression is None for ref in refs.values()), "a function of a weight that is parametrized")
        expression = Expression(tuple(steps), "", {base.name: ref for base, ref in refs.items()}, sizes)
        if not bases:
            return Constant(expression.value(None)), "value", None
        main = next((base for base in bases if refs[base].is_trained()), bases[0])
        others = {base.name: ref for base, ref in refs.items() if base is not main}
        return refs[main].module, refs[main].name, Expression(tuple(steps), main.name, others, sizes)

    def value(self, node):
        """Returns the tensor of a constant node."""
        return self.ref(node).get().detach()

    # Nodes.

    def lower(self, node):
        """Returns the Lowering of a node. Raises Unsupported."""
        if node.op == "call_module":
            return self._module(node)
        require(is_tensor(node), "its value is not a tensor")
        call = Call(self, node)
        handler = OPERATORS.get(call.name)
        require(handler is not None, f"{call.function} has no layer here")
        args, kwargs = fixed(node.args), dict(fixed(node.kwargs))
        try:
            inspect.signature(handler).bind(call, *args, **kwargs)
        except TypeError:
            raise Unsupported(f"{call.function} with these arguments") from None
        if call.name not in RANDOM and call.name not in ("batch_norm", "scaled_dot_product_attention"):
            require("in_evaluation" not in node.meta, f"{call.function} with an argument that depends on the mode")
        return handler(call, *args, **kwargs)

    def keeps_sizes(self, node):
        """Returns whether the layer of a node would have sizes of the example, which other inputs may not have."""
        if node.op == "call_module":
            module = self.modules[node.target]
            return isinstance(module, _SIZED_MODULES) or getattr(module, "scale_factor", None) is not None
        name = operator_name(node)
        reads = name not in _RESHAPES and any(used.meta.get("sized") for used in node.all_input_nodes)
        return reads or name in _SIZED or (name == "interpolate" and argument(node, 1, "size") is None)

    def _module(self, node):
        module = self.modules[node.target]
        require(not has_hooks(module), hooks_reason(module))
        if isinstance(module, nn.MultiheadAttention):
            return weights.multihead(self, node)
        require(len(node.args) == 1 and not node.kwargs, f"{type(module).__name__} called with more than its input")
        (x,) = tensor_inputs(node) or [None]
        if isinstance(module, nn.RNNBase):
            return self._recurrent(node, module, x)
        require(x is not None and is_tensor(node) and is_tensor(x), f"{type(module).__name__} of a constant, or with several outputs")
        layers, owner = module_layers(module, node_shape(x), node_shape(node))
        return Lowering(layers, [x], module_refs(module), owner=owner, mode=mode_module(module, layers))


    def _recurrent(self, node, module, x):
        """Lowers a recurrent layer [N, L, C]. Its readers read the outputs, not the states."""
        layer = module_layer(module)
        require(x is not None and is_tensor(x) and len(node_shape(x)) == 3, f"{type(module).__name__} of an input without an axis of samples")
        require(all(function_name(user) == "getitem" and user.args[1] == 0 for user in node.users),
                f"{type(module).__name__} whose states are read other than the last hidden one")
        return Lowering([layer], [x], module_refs(module))


class Call:
    """One call of a function or method of torch. `name` is its operator."""

    def __init__(self, reader, node):
        self.reader, self.node, self.function, self.name = reader, node, function_name(node), operator_name(node)
        self.shape = node_shape(node)

    def data(self, x):
        """Checks that `x` is a tensor that depends on an input, and returns it."""
        require(isinstance(x, torch.fx.Node) and is_tensor(x) and not is_constant(x), f"{self.function} of a value that is not a tensor of data")
        require(len(node_shape(x)) > 0, f"{self.function} of one number")
        return x

    def layers(self, x, layers, refs=None, owner=-1):
        """Returns the Lowering for layers that read `x`. The result has the samples of `x`."""
        self.data(x)
        require(self.shape[:1] == node_shape(x)[:1], f"{self.function} that moves or reduces the axis of samples")
        return Lowering(layers, [x], refs or {}, owner=owner)

    def others(self, x):
        """Checks that no other argument than `x` is a node."""
        require(all(used is x or "fixed" in used.meta for used in self.node.all_input_nodes), f"{self.function} with tensors as arguments")

    def constant(self, value, rank, reads, name="constant"):
        """Returns the HelperNode of a constant node or a number, for operands of `rank` axes. Axis 0 of the constant has size 1."""
        if not isinstance(value, torch.fx.Node):
            ref, own = TensorRef(Constant(torch.tensor(float(value))), "value"), []
        else:
            ref, own = self.reader.ref(value), node_shape(value)
        require(len(own) < rank or (len(own) == rank and own[0] == 1), f"{self.function} with a constant that has an axis of samples")
        own = own[1:] if len(own) == rank else [1] * (rank - 1 - len(own)) + own
        return constant(TensorRef(ref.module, ref.name, shape=(1, *own), transposed=ref.transposed, expression=ref.expression), reads, name)

    def operands(self, values, layer, rank=None):
        """Returns the Lowering of a layer with several operands: tensors, constants and numbers."""
        data = [value for value in values if isinstance(value, torch.fx.Node) and not is_constant(value)]
        require(data and all(is_tensor(value) for value in data), f"{self.function} of values that are not tensors")
        shapes_, rank = [node_shape(value) for value in data], rank or len(self.shape)
        require(rank and self.shape[:1] == shapes_[0][:1] and all(len(shape) == rank and shape[0] == shapes_[0][0] for shape in shapes_),
                f"{self.function} of inputs without the samples as axis 0")
        helpers, operands = [], []
        for i, value in enumerate(values):
            if any(value is used for used in data):
                operands.append(value)
                continue
            helpers.append(self.constant(value, rank, data[0], "constant" if len(values) == 2 else f"constant_{i}"))
            operands.append(helpers[-1].name)
        return Lowering([layer], list(dict.fromkeys(data)), {}, helpers, operands)


def _transposed(node):
    """Returns (node, True) of a matrix if a constant node is its transpose, else (None, False)."""
    if node.op not in ("call_method", "call_function") or not node.args or not is_constant(node.args[0]) or not is_tensor(node.args[0]):
        return None, False
    name, axes = function_name(node), fixed(node.args[1:])
    is_swap = (name == "t" and not axes) or (name == "getattr" and axes in (("T",), ("mT",))) or (
        name in ("transpose", "permute") and len(axes) == 2 and all(isinstance(axis, int) for axis in axes) and sorted(a % 2 for a in axes) == [0, 1]
        and (name == "transpose" or axes[0] % 2 == 1))
    is_swap = is_swap and len(node_shape(node.args[0])) == 2
    return (node.args[0], True) if is_swap else (None, False)


# Functions of one tensor.

def _elementwise(function):
    def lower(call, input, *args, **kwargs):
        call.others(input)
        require(is_float(call.node) and is_float(call.data(input)), f"{call.function} of integers")
        return call.layers(input, _called(call, function, args, kwargs))
    return lower


def _along_axis(function):
    def lower(call, input, *args, **kwargs):
        layers = _called(call, function, args, kwargs)
        axis = layers[-1][1]["axis"]
        require(type(axis) is int and axis % len(node_shape(call.data(input))) != 0, f"{call.function} along the axis of samples")
        return call.layers(input, layers)
    return lower


def _random(function):
    def lower(call, input, *args, **kwargs):
        require("in_evaluation" in call.node.meta or kwargs.get("training") is False,
                f"{call.function} that is active in evaluation too")
        out = call.layers(input, _called(call, function, args, kwargs))
        out.mode = call.reader.modules.get(caller_path(call.node)) if out.layers[0][0] != "identity" else None
        return out
    return lower


def _called(call, function, args, kwargs):
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        raise Unsupported(f"{call.function} with these arguments") from None
    return function(*args, **kwargs)


def _pool(axes, function):
    def lower(call, input, *args, **kwargs):
        require(len(node_shape(call.data(input))) == axes + 2, f"{call.function} of an input without an axis of samples")
        return call.layers(input, _called(call, function, args, kwargs))
    return lower


def _adaptive(kind, axes):
    def lower(call, input, output_size, return_indices=False):
        require(len(node_shape(call.data(input))) == axes + 2, f"{call.function} of an input without an axis of samples")
        return call.layers(input, adaptive_pool(kind, axes, node_shape(input), output_size, return_indices))
    return lower


def _interpolate(call, input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    return call.layers(input, resize(node_shape(call.data(input)), call.shape[2:], scale_factor, mode, align_corners, recompute_scale_factor, antialias))


def _pad(call, input, pad_, mode="constant", value=None):
    return call.layers(input, pad(node_shape(call.data(input)), pad_, mode, value))


def _cast(call, input, *args, **kwargs):
    """Conversions between floating-point types, which the library computes in float32. Bool values are 0 and 1 there."""
    source, target = call.data(input).meta["tensor_meta"].dtype, call.node.meta["tensor_meta"].dtype
    require(target.is_floating_point and (source.is_floating_point or source == torch.bool), f"{call.function} from {source} to {target}")
    of_model = {node.meta["tensor_meta"].dtype for node in call.node.graph.nodes if node.op in ("placeholder", "get_attr") and is_tensor(node)}
    require(target in (torch.float32, source) or target in of_model - {torch.float64}, f"{call.function} to {target} in a model of other types")
    return call.layers(input, [("identity", {})])


def _shuffle(layer):
    def lower(call, input, factor):
        require(len(call.shape) == 4, f"{call.function} of other inputs than images")
        return call.layers(input, [(layer, {"factor": factor})])
    return lower


def _invert(call, input):
    require(call.data(input).meta["tensor_meta"].dtype == torch.bool, f"{call.function} of values that are not bool")
    return call.layers(input, [("neg", {}), ("shift", {"by": 1})])


# Functions of several tensors.

def _binary(call, input, other, *, alpha=1, rounding_mode=None, out=None):
    require(alpha == 1 and rounding_mode is None and out is None, f"{call.function} with these arguments")
    numbers = [type(value) in (int, float) for value in (input, other)]
    if any(numbers) and call.name not in _COMPARISONS and call.name not in ("maximum", "minimum"):
        require(is_float(call.node), f"{call.function} of integers with a number")
        return call.layers(other if numbers[0] else input, _with_number(call, input, other))
    require(call.name in _COMPARISONS or is_float(call.node), f"{call.function} of integers")
    return call.operands([input, other], (_BINARY[call.name], {}))


def _with_number(call, first, second):
    """Returns the layers of a binary function of a tensor and a number."""
    number, is_second = (second, True) if type(second) in (int, float) else (first, False)
    name = call.name
    require(math.isfinite(number) and not (name == "div" and is_second and number == 0), f"{call.function} with {number}")
    if name == "mul" or (name == "div" and is_second):
        return [("scale", {"factor": 1 / number if name == "div" else float(number)})]
    if name == "div":
        return [("reciprocal", {}), ("scale", {"factor": float(number)})]
    if name == "sub":
        return [("shift", {"by": -float(number)})] if is_second else [("neg", {}), ("shift", {"by": float(number)})]
    if name == "pow" and is_second:
        return [("power", {"exponent": float(number)})]
    require(name == "add", f"{call.function} with a number")
    return [("shift", {"by": float(number)})]


def _rsub(call, input, other, *, alpha=1):
    require(alpha == 1 and type(other) in (int, float), "rsub with these arguments")
    return call.layers(input, [("neg", {}), ("shift", {"by": float(other)})])


def _extremum(call, input, other=None, keepdim=False, *, dim=None):
    require(isinstance(other, torch.fx.Node) or type(other) is float, f"{call.function} with these arguments")
    return call.operands([input, other], (call.name + "imum", {}))


def _and(call, input, other):
    require(all(value.meta["tensor_meta"].dtype == torch.bool for value in (input, other)), f"{call.function} of values that are not bool")
    return call.operands([input, other], ("multiply" if call.name == "and" else "maximum", {}))


def _where(call, condition, input, other):
    return call.operands([condition, input, other], ("where", {}))


def _masked_fill(call, input, mask, value):
    return call.operands([mask, value, input], ("where", {}))


def _matmul(call, input, other, *, out=None):
    if is_constant(other) and len(node_shape(other)) == 2 and not is_constant(input):
        own, size = node_shape(other)
        weight = call.reader.ref(other, transposed=True)
        return call.layers(input, [("linear", {"out_features": size, "in_features": own, "bias": False})], {"weight": weight})
    require(len(call.shape) > 2, f"{call.function} of matrices without the samples as axis 0")
    out = call.operands([input, other], ("matmul", {}))
    for i, value in enumerate(out.operands):  # the library does not repeat matrices
        leading = node_shape(value)[1:-2] if isinstance(value, torch.fx.Node) else call.shape[1:-2]
        if leading != call.shape[1:-2]:
            out.helpers.append(HelperNode(f"repeat_{i}", "expand", {"shape": call.shape[1:-2] + node_shape(value)[-2:]}, [value]))
            out.operands[i] = out.helpers[-1].name
    return out


def _cat(call, tensors, dim=0):
    dim = dim % len(call.shape)
    require(dim > 0 and isinstance(tensors, (tuple, list)), "a concat along the axis of samples, or of items that are not listed")
    if len(tensors) == 1:
        return call.layers(tensors[0], [("identity", {})])
    data = [value for value in tensors if not is_constant(value)]
    require(data and all(call.data(value) and node_shape(value)[0] == call.shape[0] for value in data), "a concat of values without the samples as axis 0")
    require(len(data) == len(tensors), "a concat with a parameter")
    return Lowering([("concat", {"axis": dim})], list(dict.fromkeys(tensors)), operands=list(tensors))


def _local_response_norm(call, input, size, alpha=1e-4, beta=0.75, k=1.0):
    return call.layers(input, local_response_norm(size, alpha, beta, k))


#: Functions that lower a call, by the name of the operator: f(call, arguments of the function of torch).
OPERATORS = {
    **{name: _elementwise(function) for name, function in ELEMENTWISE.items()},
    **{name: _along_axis(function) for name, function in ALONG_AXIS.items()},
    **{name: _random(function) for name, function in RANDOM.items()},
    **{name: _pool(*entry) for name, entry in POOLS.items()},
    **{f"adaptive_{kind}_pool{axes}d": _adaptive(kind, axes) for axes in (1, 2, 3) for kind in ("avg", "max")},
    **dict.fromkeys(_BINARY, _binary), **shapes.OPERATORS, **weights.OPERATORS,
    **dict.fromkeys(("to", "float", "type", "type_as", "double", "half", "bfloat16"), _cast),
    "interpolate": _interpolate, "pad": _pad, "pixel_shuffle": _shuffle("pixel_shuffle"), "pixel_unshuffle": _shuffle("pixel_unshuffle"),
    "invert": _invert, "rsub": _rsub, "max": _extremum, "min": _extremum, "and": _and, "or": _and, "where": _where, "masked_fill": _masked_fill,
    "matmul": _matmul, "cat": _cat, "local_response_norm": _local_response_norm,
}
