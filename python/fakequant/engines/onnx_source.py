"""An exported ONNX file, and its tensors with codes of quantizers."""
import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from .onnx_session import keeping_numbers

INT4 = {TensorProto.INT4, TensorProto.UINT4}
FLOAT8 = {TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2}
ON_GRIDS = {"QuantizeLinear", "DequantizeLinear"}
MOVES = {"Transpose", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Split", "Concat", "Gather", "Identity", "Pad",
         "ReorderInput", "ReorderOutput"}
# Operators that compute ranges from their input. The library has the same arithmetic.
DYNAMIC = {"DynamicQuantizeLSTM", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat"}


class Source:
    """The exported file: the node that writes each tensor, and the types of its codes."""

    def __init__(self, path):
        graph = onnx.load(path, load_external_data=False).graph
        self.nodes = list(graph.node)
        self.output = graph.output[0].name if graph.output else ""
        self.producers = {name: node for node in self.nodes for name in node.output}
        self.readers = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.activations = [node for node in graph.node if node.op_type == "QuantizeLinear"]
        weights = [node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in self.constants]
        self.blocks = any(a.name == "block_size" and a.i for node in weights for a in node.attribute)
        self.types = {self.code_type(node) for node in self.activations}
        self.types |= {self.constants[node.input[0]].data_type for node in weights}

    def values(self, name):
        """Returns the values of a constant, None if `name` is not a constant."""
        return onnx.numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def same_grid(self, a, b):
        """Returns whether two QuantizeLinear or DequantizeLinear have the same constants as scale and zero point."""
        pairs = [(self.values(one), self.values(other)) for one, other in zip(a.input[1:], b.input[1:])]
        return len(a.input) == len(b.input) and all(
            one is not None and other is not None and one.dtype == other.dtype and np.array_equal(one, other) for one, other in pairs)

    def sorted_quantizers(self, predictions):
        """Returns (absent, computed, constant): quantizers of predictions that the file lacks, that it computes, and whose codes do not
        depend on the samples."""
        fixed = [name for name in predictions.names if predictions.is_constant(name) or name in self.constants]
        others = [name for name in predictions.names if name not in fixed]
        return ([name for name in others if name not in self.producers],
                [name for name in others if name in self.producers], fixed)

    def quantizer(self, name):
        """Returns the QuantizeLinear that computes the codes `name`. A Clip after it may remove the lowest code."""
        node = self.producers[name]
        return self.producers[node.input[0]] if node.op_type == "Clip" else node

    def find_readers(self, name, op):
        return [node for node in self.readers.get(name, []) if node.op_type == op]

    def permuted_codes(self, name):
        """Yields (name, order): the same codes with permuted axes, and the order that permutes them back. Engines merge two
        permutations, which removes the codes between them."""
        for floats in self.find_readers(name, "DequantizeLinear"):
            for turn in self.find_readers(floats.output[0], "Transpose"):
                back = [int(axis) for axis in np.argsort(turn.attribute[0].ints)]
                yield turn.output[0] + "_q_to_dq", back  # the engine's name for permuted codes
                for codes in self.find_readers(turn.output[0], "QuantizeLinear"):
                    if codes.input[1:] == floats.input[1:]:
                        yield codes.output[0], back

    def find_upstream_nodes(self, value, quantizers):
        """Returns the nodes that compute a value from the codes of these quantizers or the input, in order of execution."""
        wanted, seen = [value], set(quantizers)
        while wanted:
            if (name := wanted.pop()) in self.producers and name not in seen:
                seen.add(name)
                wanted.extend(self.producers[name].input)
        return [node for node in self.nodes
                if node.op_type not in ON_GRIDS and node.output[0] in seen and node.output[0] not in quantizers]

    def powers_of_two(self):
        """Returns whether every scale is a power of two."""
        names = {node.input[1] for node in self.producers.values() if node.op_type in ON_GRIDS}
        scales = [onnx.numpy_helper.to_array(self.constants[name]) for name in names if name in self.constants]
        return all((np.frexp(scale.astype(np.float64))[0] == 0.5).all() for scale in scales)

    def zero(self, node):
        return self.constants.get(node.input[2]) if len(node.input) > 2 else None

    def code_type(self, node):
        return TensorProto.UINT8 if self.zero(node) is None else self.zero(node).data_type

    def zero_point(self, node):
        zero = self.zero(node)
        return 0 if zero is None or zero.data_type in FLOAT8 else int(onnx.numpy_helper.to_array(zero).ravel()[0])

    def batch(self, usual):
        """Returns the batch size: 1 if each input sets its ranges."""
        return 1 if any(node.op_type in DYNAMIC for node in self.nodes) else usual

    def settings(self):
        """Returns the level and the options of a session that loads the file and keeps its numbers."""
        few_bits = any(self.code_type(node) in INT4 for node in self.activations)
        return keeping_numbers(bool(self.types & set(FLOAT8)), few_bits, not self.integer())

    def bytes(self):
        """Returns whether some products are of 8-bit integers."""
        dynamic = any(node.op_type == "MatMulInteger" for node in self.nodes)
        return dynamic or bool(self.activations) and bool(self.types & {TensorProto.INT8, TensorProto.UINT8})

    def integer(self):
        """Returns whether every product is of 8-bit integers. Other products are float sums in the engine's own order."""
        dynamic = any(node.op_type == "MatMulInteger" for node in self.nodes)
        return (bool(self.activations) or dynamic) and not self.blocks and not self.types & (INT4 | set(FLOAT8))
