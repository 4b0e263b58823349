"""An exported ONNX file in ONNX Runtime on the CPU, and the codes of the graph that the engine makes of it."""
import os
import re

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto

from onnx_source import DYNAMIC, FLOAT8, INT4, MOVES, ON_GRIDS, Source  # noqa: F401

LEVELS = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
          "all": "ORT_ENABLE_ALL"}
CODES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16,
         "int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "float8e4m3fn": TensorProto.FLOAT8E4M3FN,
         "float8e5m2": TensorProto.FLOAT8E5M2}
TOKEN = re.compile(r"_token_\d+$")  # behind a node's name where the engine made it anew
FUSION = re.compile(r"/\w*Fusion\w*$")  # likewise, of several
INPUTS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int8)": np.int8,
          "tensor(uint8)": np.uint8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
          "tensor(bool)": np.bool_}
ABSORBED = {"Relu", "Clip", "Max", "Identity"}  # what an integer kernel takes into its rounding
EXACT = MOVES | ON_GRIDS | DYNAMIC | {"Relu", "Clip", "Max", "Min", "MaxPool", "Neg"}
# What rounds sums and products only: powers of two make them exact.
SUMS = {"Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulIntegerToFloat",
        "MatMulNBits", "Add", "Sub", "Mul", "AveragePool", "GlobalAveragePool"}
ELEMENTWISE = ABSORBED | {"QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu", "QuantizeLinear",
                          "DequantizeLinear"}


class Optimised:
    """The graph that the engine made of it."""

    def __init__(self, path, source):
        self.path = path
        self.exported = {node.name for node in source.producers.values()}
        self.model = onnx.load(path, load_external_data=False)
        self.nodes = self.model.graph.node
        self.producers = {name: node for node in self.nodes for name in node.output}

    def tensor_of(self, source, name):
        """The tensor with a quantizer's codes, and whether it is channels last, or the order that its axes are brought to.
        It has the quantizer's name, or is what the kernel writes that took the quantizer in, or has the codes turned; None
        where there is none of these."""
        if name in self.producers:
            return name, self.channels_last(name)
        for codes, order in source.turned(name):
            if codes in self.producers:
                return codes, order
        value = name
        while value in source.producers:
            node = source.producers[value]
            kernel = next(iter(self.kernels_of([node])), None)
            if kernel is not None:
                found = self.quantized(kernel.output[0])
                return found, self.channels_last(found)
            if node.op_type not in ABSORBED | {"QuantizeLinear"}:
                return None
            value = node.input[0]
        return None

    def kernels_of(self, nodes):
        """What runs these nodes of the file: a kernel has the name of one that it took in, or of its output."""
        names = {node.name for node in nodes} | {f"{name}_nchwc" for node in nodes for name in node.output}
        return [kernel for kernel in self.nodes
                if {kernel.name, TOKEN.sub("", kernel.name), FUSION.sub("", kernel.name)} & names]

    def in_floats(self, kinds):
        """The kernels that read floats and round what they compute of them otherwise than evaluation may. One rounding of a
        sum of two floats is none of these, unless such a kernel made one of them or both are codes; nor is one of an
        integer's product with a constant."""
        found, rounded, codes = [], set(), set()
        constants = {tensor.name for tensor in self.model.graph.initializer}
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
        """Whether the floats are what a kernel of integers made."""
        maker = self.producers.get(name)
        return maker is not None and maker.op_type == "Cast" and kinds.get(maker.input[0]) == "int32"

    def quantized(self, name):
        after = (node.output[0] for node in self.nodes if node.op_type == "QuantizeLinear" and node.input[0] == name)
        return next(after, name)

    def channels_last(self, name):
        """As the kernel says that writes it; elementwise ones keep the order of their input."""
        node = self.producers.get(name)
        if node is None:
            return False
        if node.op_type == "Transpose":
            order = list(node.attribute[0].ints)
            last = node.name not in self.exported and order == [0, *range(2, len(order)), 1]
            return last and not self.channels_last(node.input[0])  # of three axes the way back is the same order
        if node.op_type.startswith("Nhwc") or any(a.name == "channels_last" and a.i for a in node.attribute):
            return True
        first = 2 if node.op_type == "QLinearConcat" else 0
        return node.op_type in ELEMENTWISE and self.channels_last(node.input[first])

    def exposed(self, tensors, casts):
        """Writes the graph with these tensors as outputs too, some of them cast, and gives its path."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for name in tensors:
            if name in casts:
                model.graph.node.append(onnx.helper.make_node("Cast", [name], [f"verify.{name}"], to=casts[name]))
            model.graph.output.append(onnx.ValueInfoProto(name=f"verify.{name}" if name in casts else name))
        path = self.path + ".exposed"
        onnx.save(model, path)
        return path


def converted(declared, x):
    """The samples in the type that the file declares: token ids are integers in one file and whole numbers in another."""
    wanted = x.astype(INPUTS.get(declared.type, x.dtype))
    if not np.array_equal(wanted, x):
        raise ValueError(f"its input {declared.name} is {declared.type}, which the samples are not: "
                         + ("0 and 1 are" if wanted.dtype == np.bool_ else "whole numbers within its range are"
                            if wanted.dtype.kind in "iu" else "its floats are"))
    return wanted


def fed(session, x):
    """What the session reads; of several inputs each is a part of the rows, in their order."""
    declared = session.get_inputs()
    if len(declared) == 1:
        return {declared[0].name: converted(declared[0], x)}
    sizes = [int(np.prod(part.shape[1:], dtype=np.int64)) for part in declared]
    if x.ndim != 2 or sum(sizes) != x.shape[1]:
        raise ValueError(f"its inputs have {sum(sizes)} elements a sample, the samples are {list(x.shape[1:])}")
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
    return {part.name: converted(part, own.reshape(len(x), *part.shape[1:])) for part, own in zip(declared, parts)}


class Engine:
    """The session as users have it, and one that shows the codes. `absent` names the quantizers that the file has not,
    `missing` those whose codes the engine does not make, `found` gives tensor, order and type of the others;
    `float_kernels` are the nodes of the optimised graph that round floats. `alone_different` and `exposed_different` are
    logits that came out otherwise for a sample alone and where codes were read."""

    def __init__(self, source, model, names, level, options, threads, folder):
        self.level, self.options, self.threads = level, options, threads
        self.alone_different = self.exposed_different = 0
        saved = os.path.join(folder, "optimised.onnx")
        self.session = self.open(model, level, saved)
        self.graph = Optimised(saved, source)
        kinds = self.kinds()
        self.float_kernels = self.graph.in_floats(kinds)
        self.absent = [name for name in names if name not in source.producers]
        places = {name: self.graph.tensor_of(source, name) for name in names if name in source.producers}
        self.found = {name: (*place, CODES[kinds[place[0]]])
                      for name, place in places.items() if place and kinds.get(place[0]) in CODES}
        self.missing = [name for name in places if name not in self.found]
        types = {tensor: kind for tensor, _, kind in self.found.values()}
        casts = {name: TensorProto.FLOAT for name, kind in types.items() if kind in FLOAT8}
        casts |= {name: TensorProto.INT8 for name, kind in types.items() if kind in INT4}
        self.inside = self.open(self.graph.exposed(sorted(types), casts), "disabled")

    def open(self, path, level, saved=None):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
        options.intra_op_num_threads, options.log_severity_level = self.threads, 3
        for key, value in self.options.items():
            options.add_session_config_entry(key, value)
        if saved:
            options.optimized_model_filepath = saved
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.data")
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def kinds(self):
        """The type of every tensor, "float" or "uint8"; the saved graph does not tell."""
        known = {value.name for value in self.graph.model.graph.output}
        inside = self.open(self.graph.exposed([name for name in self.graph.producers if name and name not in known], {}),
                           "disabled")
        return {value.name: value.type[len("tensor("):-1] for value in [*inside.get_inputs(), *inside.get_outputs()]}

    def logits(self, x):
        return self.session.run([self.session.get_outputs()[0].name], fed(self.session, x))[0]

    def codes(self, x):
        """By tensor, and the logits of that run."""
        first, *names = [output.name for output in self.inside.get_outputs()]
        logits, *values = self.inside.run([first, *names], fed(self.inside, x))
        return {name.removeprefix("verify."): value for name, value in zip(names, values)}, logits
