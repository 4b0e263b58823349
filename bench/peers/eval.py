"""Peers of the rows eval.*: one call is the evaluation of a batch by the deployed engine, from floats to floats."""

import os

import numpy as np
import torch
from onnx import TensorProto, checker, helper, numpy_helper
from peer import Side, read_array, row

LAYERS = {"conv1": (32, 1, 3, 3), "conv2": (64, 32, 3, 3), "conv3": (64, 64, 3, 3), "fc": (10, 64 * 7 * 7)}
BATCH, INPUT = 64, (1, 28, 28)


class QdqGraph:
    """ONNX's quantize and dequantize nodes around the nodes of a float network."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, values):
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def add_grid(self, value, name, scale, zero_point):
        grid = [self.constant(f"{name}.scale", scale), self.constant(f"{name}.zero", np.uint8(zero_point))]
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [value, *grid], f"{name}.q"), *grid], f"{name}.dq")

    def dequantized(self, name, codes, scales):
        """A constant with a scale for each output channel."""
        inputs = [self.constant(f"{name}.codes", codes), self.constant(f"{name}.scales", scales),
                  self.constant(f"{name}.zeros", np.zeros(len(scales), codes.dtype))]
        return self.add("DequantizeLinear", inputs, f"{name}.dq", axis=0)

    def model(self, output):
        graph = helper.make_graph(
            self.nodes, "cnn", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *INPUT])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", 10])], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class Layer:
    """A layer from our side's arrays: float parameters and scales. The peer computes the codes."""

    def __init__(self, folder, name, shape):
        def read(what):
            return read_array(folder, f"{name}.{what}").numpy()

        self.name, self.scale, self.zero_point = name, read("scale")[0], int(read("zero_point")[0])
        self.scales = read("weight_scale")
        rows = read("weight").reshape(len(self.scales), -1) / self.scales[:, None]
        self.weight = np.clip(np.rint(rows), -127, 127).astype(np.int8).reshape(shape)
        self.bias_scales = self.scale * self.scales
        self.bias = np.rint(read("bias") / self.bias_scales).astype(np.int32)

    def grid(self, graph, value, name=None):
        return graph.add_grid(value, name or f"{self.name}.x", self.scale, self.zero_point)

    def product(self, graph, kind, x, **attributes):
        weight = graph.dequantized(f"{self.name}.weight", self.weight, self.scales)
        bias = graph.dequantized(f"{self.name}.bias", self.bias, self.bias_scales)
        return graph.add(kind, [x, weight, bias], f"{self.name}.y", **attributes)


def cnn(layers):
    """The pools and the flattening between quantizers of one grid."""
    graph = QdqGraph()
    conv1, conv2, conv3, fc = layers

    def conv_relu(layer, x):
        return graph.add("Relu", [layer.product(graph, "Conv", x, pads=[1, 1, 1, 1])], f"{layer.name}.relu")

    def pooled(x, reader):
        pool = graph.add("MaxPool", [reader.grid(graph, x, f"{reader.name}.before")], f"{reader.name}.pool",
                         kernel_shape=[2, 2], strides=[2, 2])
        return reader.grid(graph, pool)

    x = conv2.grid(graph, conv_relu(conv1, conv1.grid(graph, "x")))
    x = pooled(conv_relu(conv2, x), conv3)
    x = pooled(conv_relu(conv3, x), fc)
    x = fc.grid(graph, graph.add("Flatten", [x], "flat"), "flat.x")
    return graph.model(fc.product(graph, "Gemm", x, transB=1))


def session(model, settings):
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before it is loaded
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = settings.threads, 1
    options.optimized_model_filepath = os.path.join(settings.exchange, "optimized.onnx")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def kinds(path):
    import onnx

    return [node.op_type for node in onnx.load(path).graph.node]


@row("eval.cnn.int8/onnxruntime_int8")
def onnxruntime_int8(_name, settings):
    model = cnn([Layer(settings.exchange, name, shape) for name, shape in LAYERS.items()])
    checker.check_model(model, full_check=True)
    running = session(model, settings)
    used = kinds(os.path.join(settings.exchange, "optimized.onnx"))
    if used.count("QLinearConv") != 3 or "QGemm" not in used:
        raise AssertionError(f"ONNX Runtime does not run integers: {', '.join(used)}")
    inputs = {"x": read_array(settings.exchange, "x").numpy().reshape(BATCH, *INPUT)}

    def run():
        return running.run(None, inputs)

    return Side(run, lambda: {"y": torch.from_numpy(run()[0])}, variant=", ".join(dict.fromkeys(used)))
