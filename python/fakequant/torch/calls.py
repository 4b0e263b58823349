"""Functions and methods of tensors as layers of a model file, and what a node of torch.fx is."""
import math

import torch
from torch import nn

from .attention_layers import dot_product, multihead
from .layers import (ROWS, Layer, NoLayer, Place, adaptive_avg_pool, avg_pool, constant, flatten, layer_of, max_pool, pair,
                     places_of, plain_function, require)
from .nodes import argument, has_hooks, is_own, is_tensor, name_of, shape_of, tensor_inputs, turned
from .reshapes import SHAPES

#: Of one tensor and constants: (type, options) by what is given behind the tensor.
FUNCTIONS = {
    **{name: plain_function(row) for row in ROWS.values() if row["inputs"] == 1 for name in row["torch"]},
    **dict.fromkeys(("contiguous", "clone"), lambda *_, **__: ("identity", {})),
    "softmax": lambda dim, *_, **__: ("softmax", {"axis": dim}),
    "dropout": lambda p=0.5, training=True, inplace=False: ("dropout", {"p": p}) if training else ("identity", {}),
    "stochastic_depth": lambda p, mode="row", training=True: (require(mode == "row", "a depth that is not of rows"),
                                                             ("drop_path", {"p": p}))[1],
    "max_pool1d": max_pool, "max_pool2d": max_pool, "avg_pool1d": avg_pool, "avg_pool2d": avg_pool,
    "adaptive_avg_pool1d": adaptive_avg_pool, "adaptive_avg_pool2d": adaptive_avg_pool, "flatten": flatten,
}
PAIRS = {name: row["name"] for row in ROWS.values() if row["inputs"] == 2 for name in row["torch"]}


def _with_number(name, first, second):
    """What it does to a tensor with a number on one side."""
    number, behind = (second, True) if type(second) in (int, float) else (first, False)
    require(math.isfinite(number) and not (name == "truediv" and number == 0), f"{name} with {number}")
    if name in ("mul", "imul", "truediv") and (behind or name != "truediv"):
        return [("scale", {"factor": 1 / number if name == "truediv" else float(number)})]
    require(name in ("add", "iadd", "add_", "sub"), f"{name} with a number")
    if name == "sub":
        return [("shift", {"by": -float(number)})] if behind else [("neg", {}), ("shift", {"by": float(number)})]
    return [("shift", {"by": float(number)})]


class Reader:
    """Nodes of a model as layers."""

    def __init__(self, model):
        self.model, self.modules = model, dict(model.named_modules())

    def place(self, node, **change):
        """Where a node of the model's own is."""
        path, _, name = node.target.rpartition(".")
        return Place(self.modules[path], name, **change)

    def _module(self, node):
        module = self.modules[node.target]
        require(not has_hooks(module), f"{type(module).__name__} has hooks, which torch runs")
        kind = layer_of(module)
        if isinstance(module, nn.MultiheadAttention):
            return multihead(self, node)
        require(len(node.args) == 1 and not node.kwargs, f"{type(module).__name__} called with more than its input")
        return Layer([kind], tensor_inputs(node), places_of(module))

    def _pair(self, node, name):
        if sum(type(value) in (int, float) for value in node.args) == 1 and len(node.args) == 2 and not node.kwargs:
            require(node.meta["tensor_meta"].dtype.is_floating_point, f"{name} of integers with a number")
            require(tuple(node.meta["in_evaluation"][0]) == tuple(node.args), f"{name} with a number that the mode decides")
            return Layer(_with_number(name, *node.args), tensor_inputs(node))
        constants = [value for value in node.all_input_nodes if value.op == "get_attr" or turned(value) is not None]
        operands = [value for value in node.args[:2] if isinstance(value, torch.fx.Node)]
        require(len(operands) == 2 and len(node.args) == 2 and not node.kwargs, f"{name} of other than two values")
        values = [value for value in operands if value not in constants]
        shapes = [shape_of(value) for value in values]
        require(values and all(len(shape) == len(shape_of(node)) and shape[0] == shapes[0][0] for shape in shapes),
                f"{name} of shapes that are no batch each")
        if not constants:
            return Layer([(PAIRS[name], {})], operands)
        if name == "matmul" and node.args[0] not in constants and len(shape_of(constants[0])) == 2:
            own, out = shape_of(constants[0])
            weight = self.place(turned(constants[0]) or constants[0], turned=turned(constants[0]) is None)
            return Layer([("linear", {"out_features": out, "in_features": own, "bias": False})], values, {"weight": weight})
        require(name in ("add", "iadd", "mul", "imul") and is_own(constants[0]), f"{name} with a parameter")
        rank, own = len(shapes[0]), shape_of(constants[0])
        require(len(own) < rank or (len(own) == rank and own[0] == 1), f"{name} with a parameter that has the batch")
        own = own[1:] if len(own) == rank else [1] * (rank - 1 - len(own)) + own
        return Layer([(PAIRS[name], {})], values, {}, [constant(self.place(constants[0], shape=(1, *own)), values[0])],
                     [*values, "constant"])

    def _repeated(self, node):
        """A parameter [1, ..] as often as the batch is long."""
        own, batch = shape_of(node.args[0]), [value for value in node.all_input_nodes if value.op != "get_attr"]
        require(own[0] == 1 and own[1:] == shape_of(node)[1:] and len(batch) == 1, "an expand that is no batch of one parameter")
        source = batch[0]
        while not is_tensor(source):
            source = source.all_input_nodes[0]
        return Layer([("parameter", {"shape": own[1:], "repeat": True})], [source], {"value": self.place(node.args[0])})

    def _norm(self, node):
        inputs, shape = tensor_inputs(node), argument(node, 1, "normalized_shape")
        weights = {"weight": argument(node, 2, "weight"), "bias": argument(node, 3, "bias")}
        require(all(is_own(w) for w in weights.values()), "a layer norm without weights of its own")
        return Layer([("layer_norm", {"shape": list(shape), "eps": argument(node, 4, "eps", 1e-5)})], inputs,
                     {key: self.place(value) for key, value in weights.items()})

    def _product(self, node, name):
        """F.linear and F.conv, whose weights are the model's."""
        weight, bias = argument(node, 1, "weight"), argument(node, 2, "bias")
        given = {"weight": weight} | ({} if bias is None else {"bias": bias})
        require(all(is_own(w) or turned(w) is not None for w in given.values()), f"{name} without weights of its own")
        out, own, *kernel = shape_of(weight)
        if name == "linear":
            options = {"out_features": out, "in_features": own}
        else:
            groups = argument(node, 6, "groups", 1)
            options = {"out_channels": out, "in_channels": own * groups, "kernel": kernel, "groups": groups}
            for place, key, otherwise in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1)):
                options[key] = pair(argument(node, place, key, otherwise))
        return Layer([(name, options | {"bias": bias is not None})], tensor_inputs(node),
                     {key: self.place(value) if turned(value) is None else self.place(turned(value), turned=True)
                      for key, value in given.items()})

    def tensor(self, node):
        """What a node of the model's own is."""
        path, _, name = node.target.rpartition(".")
        return getattr(self.modules[path], name)

    def layer(self, node):
        """The Layer of a node. Raises NoLayer."""
        if node.op == "call_module":
            return self._module(node)
        require(is_tensor(node), "its value is no tensor")
        name, inputs = name_of(node), tensor_inputs(node)
        if name in PAIRS:
            return self._pair(node, name)
        if name == "layer_norm":
            return self._norm(node)
        if name == "scaled_dot_product_attention":
            return dot_product(self, node)
        if name in ("linear", "conv1d", "conv2d", "conv3d"):
            return self._product(node, name)
        if name in ("cat", "concat"):
            dim = argument(node, 1, "dim", 0) % len(shape_of(node))
            require(dim > 0 and all(value.op != "get_attr" for value in node.args[0]), "a concat of batches, or with a parameter")
            return Layer([("concat", {"axis": dim}) if len(node.args[0]) > 1 else ("identity", {})], list(node.args[0]))
        if name == "expand" and node.args[0].op == "get_attr":
            return self._repeated(node)
        require(len(inputs) == 1, f"{name} of other than one value")
        if name in ("invert", "bitwise_not", "logical_not"):
            require(inputs[0].meta["tensor_meta"].dtype == torch.bool, f"{name} of other than booleans")
            return Layer([("neg", {}), ("shift", {"by": 1})], inputs)
        if name in SHAPES:
            return Layer(SHAPES[name](node, inputs[0]), inputs)
        require(name in FUNCTIONS and node.args[:1] == (inputs[0],), f"{name} has no layer here")
        try:
            kind = FUNCTIONS[name](*node.args[1:], **node.kwargs)
        except TypeError:
            raise NoLayer(f"{name} with such arguments") from None
        require(not kind[0].startswith("drop") or node.meta["in_evaluation"] != (node.args, node.kwargs), f"{name} in evaluation too")
        return Layer([kind], inputs)
