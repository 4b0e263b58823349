"""An exported ONNX file in ONNX Runtime on the CPU, and the codes in the graph that the engine optimised."""
import os
import re

import numpy as np
import onnx
from onnx import TensorProto

from .onnx_session import count_different, open_session, session_inputs
from .onnx_source import DYNAMIC, FLOAT8, INT4, MOVES, ON_GRIDS

CODES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16,
         "int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "float8e4m3fn": TensorProto.FLOAT8E4M3FN,
         "float8e5m2": TensorProto.FLOAT8E5M2}
TOKEN = re.compile(r"_token_\d+$")  # suffix of the name of a node that the engine created
FUSION = re.compile(r"/\w*Fusion\w*$")  # suffix of the name of a node that the engine fused
ABSORBED = {"Relu", "Clip", "Max", "Identity"}  # operators that an integer kernel includes in its rounding
EXACT = MOVES | ON_GRIDS | DYNAMIC | {"Relu", "Clip", "Max", "Min", "MaxPool", "Neg"}
# Operators that round sums and products only. Scales of powers of two make them exact.
SUMS = {"Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulIntegerToFloat",
        "MatMulNBits", "Add", "Sub", "Mul", "AveragePool", "GlobalAveragePool"}
ELEMENTWISE = ABSORBED | {"Slice", "Split", "QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu", "QuantizeLinear",
                          "DequantizeLinear"}


class Optimised:
    """The graph that the engine optimised."""

    def __init__(self, path, source):
        self.path = path
        self.exported = {node.name for node in source.producers.values()}
        self.model = onnx.load(path, load_external_data=False)
        self.nodes = self.model.graph.node
        self.producers = {name: node for node in self.nodes for name in node.output}
        self.constants = {tensor.name: tensor for tensor in self.model.graph.initializer}

    def find_tensor(self, source, name):
        """Returns (tensor, order) for the codes of a quantizer, None if the engine has no tensor with these codes.

        The tensor has the name of the quantizer, is the output of the kernel that includes the quantizer, or has the codes with permuted
        axes. `order` says whether channels are last, or is the order that permutes the axes back.
        """
        if name in self.producers:
            return name, self.channels_last(name)
        for codes, order in source.permuted_codes(name):
            if codes in self.producers:
                return codes, order
        value = name
        while value in source.producers:
            node = source.producers[value]
            output = self.kernel_output(source, node, value)
            if output is not None:
                found = self.quantized(output)
                return found, self.channels_last(found)
            if node.op_type == "DequantizeLinear" and source.same_grid(node, source.quantizer(name)):
                return self.find_tensor(source, node.input[0])
            if node.op_type not in ABSORBED | {"QuantizeLinear"}:
                return self.moved(source, name)
            value = node.input[0]
        return None

    def kernel_output(self, source, node, value):
        """Returns the output of the kernel of the engine that computes `value`, an output of a node of the file."""
        if node.op_type == "Slice" and (part := self.split_part(source, node)) is not None:
            return part
        kernel = next(iter(self.find_kernels([node])), None)
        place = list(node.output).index(value)
        if kernel is None or place >= len(kernel.output) or (kernel.op_type == "Split" and node.op_type != "Split"):
            return None
        return kernel.output[place]

    def split_part(self, source, node):
        """Returns the output of the Split that replaces several slices of one tensor in the engine. Its outputs have new names and
        the order of the slices. None if there is no such Split."""
        begin, end = (source.values(name) for name in node.input[1:3])
        if begin is None or end is None or begin.size != 1:
            return None
        for kernel in self.find_kernels(source.find_readers(node.input[0], "Slice")):
            sizes = self.values(kernel.input[1]) if kernel.op_type == "Split" and len(kernel.input) > 1 else None
            if sizes is None:
                continue
            ends = np.cumsum(sizes)
            wanted = [int(at) + int(ends[-1]) * (at < 0) for at in (begin.flat[0], end.flat[0])]
            for last, size, output in zip(ends, sizes, kernel.output):
                if wanted[0] == last - size and min(wanted[1], ends[-1]) == last:
                    return output
        return None

    def moved(self, source, name):
        """Returns the output of the engine's copy of a node that only moves codes. The copy has a new name."""
        node = source.producers.get(source.quantizer(name).input[0])
        floats = source.producers.get(node.input[0]) if node is not None and node.op_type in MOVES - {"Concat"} else None
        if floats is None or floats.op_type != "DequantizeLinear" or floats.input[1:] != source.quantizer(name).input[1:]:
            return None
        place = self.find_tensor(source, floats.input[0])
        if place is None or place[1]:
            return None
        found = [copy.output[0] for copy in self.nodes if copy.op_type == node.op_type and copy.input[0] == place[0]
                 and len(copy.output) == 1 and same_attributes(copy, node)
                 and all(np.array_equal(self.values(own), source.values(other))
                         for own, other in zip(copy.input[1:], node.input[1:], strict=True))]
        return (found[0], False) if len(found) == 1 else None

    def values(self, name):
        """Returns the values of a constant, None if `name` is not a constant."""
        return onnx.numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def find_kernels(self, nodes):
        """Returns the kernels of these nodes of the file. A kernel has the name of a node that it includes, or of its output."""
        names = {node.name for node in nodes} | {f"{name}_nchwc" for node in nodes for name in node.output}
        return [kernel for kernel in self.nodes
                if {kernel.name, TOKEN.sub("", kernel.name), FUSION.sub("", kernel.name)} & names]

    def find_float_kernels(self, kinds):
        """Returns the kernels whose float results may be rounded differently than in evaluation. The sum of two floats is excluded,
        unless such a kernel computed one of them or both are codes. The product of an integer and a constant is excluded."""
        found, rounded, codes = [], set(), set()
        constants = set(self.constants)
        for node in self.nodes:
            if all(name in constants for name in node.input):
                constants |= set(node.output)
            floats = any(kinds.get(name) == "float" for name in node.input)
            sums = node.op_type == "Add" and not rounded & set(node.input) and not codes >= set(node.input)
            scaled = node.op_type == "Mul" and all(name in constants or self.is_integer(name, kinds) for name in node.input)
            if node.op_type not in EXACT and floats and not sums and not scaled:
                found.append(node)
                rounded |= set(node.output)
            elif node.op_type != "QuantizeLinear" and rounded & set(node.input):
                rounded |= set(node.output)
            if node.op_type == "DequantizeLinear" or (node.op_type in MOVES | ABSORBED and node.input[0] in codes):
                codes |= set(node.output)
        return found

    def is_integer(self, name, kinds):
        """Returns whether an integer kernel computed the floats."""
        maker = self.producers.get(name)
        return maker is not None and maker.op_type == "Cast" and kinds.get(maker.input[0]) == "int32"

    def quantized(self, name):
        after = (node.output[0] for node in self.nodes if node.op_type == "QuantizeLinear" and node.input[0] == name)
        return next(after, name)

    def channels_last(self, name):
        """Returns whether the kernel that writes the tensor has channels last. Elementwise kernels keep the order of their input."""
        node = self.producers.get(name)
        if node is None:
            return False
        if node.op_type == "Transpose":
            order = list(node.attribute[0].ints)
            last = node.name not in self.exported and order == [0, *range(2, len(order)), 1]
            return last and not self.channels_last(node.input[0])  # for three axes the inverse permutation has the same order
        if node.op_type.startswith("Nhwc") or any(a.name == "channels_last" and a.i for a in node.attribute):
            return True
        first = 2 if node.op_type == "QLinearConcat" else 0
        return node.op_type in ELEMENTWISE and self.channels_last(node.input[first])

    def exposed(self, tensors, casts):
        """Writes the graph with these tensors as additional outputs, some of them cast. Returns its path."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for name in tensors:
            if name in casts:
                model.graph.node.append(onnx.helper.make_node("Cast", [name], [f"verify.{name}"], to=casts[name]))
            model.graph.output.append(onnx.ValueInfoProto(name=f"verify.{name}" if name in casts else name))
        path = self.path + ".exposed"
        onnx.save(model, path)
        return path


def same_attributes(a, b):
    return {one.name: one for one in a.attribute} == {one.name: one for one in b.attribute}


def _expected_codes(source, name, kind, stored):
    """Returns the codes of the library in the form of the engine's tensor, which includes the zero point. The engine adds 128 to the zero
    point if it converts a signed tensor to unsigned."""
    node = source.quantizer(name)
    if kind in FLOAT8:
        return stored.view(FLOAT8[kind]).astype(np.float32).view(np.int32)
    moved = kind == TensorProto.UINT8 and source.code_type(node) == TensorProto.INT8
    return stored.astype(np.int32) + source.zero_point(node) + (128 if moved else 0)


def _logical(expected, value, order):
    """Returns the values with the channels first. `order` is a list of axes, or whether the kernel says that channels are last.
    The shapes decide if they fit one way only, because the optimiser also moves the network's own transpositions. If the shapes
    fit both ways, the order with fewer different codes is used."""
    if isinstance(order, list):
        return np.ascontiguousarray(np.transpose(value, order))
    if value.ndim < 3:
        return value
    channels_last = order
    moved = np.moveaxis(value, -1, 1)
    first, last = value.shape == expected.shape, moved.shape == expected.shape
    orders = [np.ascontiguousarray(order) for order in ([moved, value] if channels_last else [value, moved])]
    if first and last:
        return min(orders, key=lambda order: count_different(expected, order))
    return orders[0] if first == last or (last if channels_last else first) else orders[1]


class Engine:
    """The session as users run it, and a session with the codes as outputs.

    `absent` are the quantizers that the file lacks, `missing` the quantizers whose codes the engine does not compute. `found` has the
    tensor, order and type of the other quantizers. `float_kernels` are the nodes of the optimised graph that round floats.
    `alone_different` and `exposed_different` count logits that differ for a sample alone, and when codes are outputs.
    """

    def __init__(self, source, model, predictions, level, options, threads, folder):
        self.source, self.level, self.options, self.threads = source, level, options, threads
        self.alone_different = self.exposed_different = 0
        saved = os.path.join(folder, "optimised.onnx")
        self.session = self.open(model, level, saved)
        self.graph = Optimised(saved, source)
        kinds = self.kinds()
        self.float_kernels = self.graph.find_float_kernels(kinds)
        self.absent, computed, constants = source.sorted_quantizers(predictions)
        places = {name: self.graph.find_tensor(source, name) for name in computed}
        self.found = {name: (*place, CODES[kinds[place[0]]])
                      for name, place in places.items() if place and kinds.get(place[0]) in CODES}
        self.missing = constants + [name for name in places if name not in self.found]
        types = {tensor: kind for tensor, _, kind in self.found.values()}
        casts = {name: TensorProto.FLOAT for name, kind in types.items() if kind in FLOAT8}
        casts |= {name: TensorProto.INT8 for name, kind in types.items() if kind in INT4}
        self.inside = self.open(self.graph.exposed(sorted(types), casts), "disabled")

    def open(self, path, level, saved=None):
        return open_session(path, level, self.options, self.threads, saved)

    def kinds(self):
        """Returns {name of a tensor: its type}, for example "float". The saved graph does not contain types."""
        known = {value.name for value in self.graph.model.graph.output}
        inside = self.open(self.graph.exposed([name for name in self.graph.producers if name and name not in known], {}),
                           "disabled")
        return {value.name: value.type[len("tensor("):-1] for value in [*inside.get_inputs(), *inside.get_outputs()]}

    def logits(self, x):
        return self.session.run([self.session.get_outputs()[0].name], session_inputs(self.session, x))[0]

    def codes(self, x):
        """Returns the codes by tensor, and the logits of the same run."""
        first, *names = [output.name for output in self.inside.get_outputs()]
        logits, *values = self.inside.run([first, *names], session_inputs(self.inside, x))
        return {name.removeprefix("verify."): value for name, value in zip(names, values)}, logits

    def compared_codes(self, file, rows, values):
        """Yields (name, type, codes of the library, codes of the engine) for each quantizer of `found`, in the order of the file.

        `file` has `codes(name, rows)`, the codes of some samples. `values` is the result of `codes`.
        """
        order_of = {name: at for at, name in enumerate(self.source.producers)}
        for name in sorted(self.found, key=order_of.get):
            tensor, order, kind = self.found[name]
            wanted = _expected_codes(self.source, name, kind, file.codes(name, rows))
            yield name, kind, wanted, _logical(wanted, values[tensor], order)
