"""The networks of onnx's model zoo as the package `onnx` has them: graphs whose weights are to be made."""

import glob
import os

import numpy as np
import onnx


def light_files():
    """Their files by name."""
    folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    return {os.path.basename(path)[6:-5]: path for path in sorted(glob.glob(os.path.join(folder, "light_*.onnx")))}


def filled(source, path):
    """One of onnx's light files, whose weights are ConstantOfShape, with weights."""
    model = onnx.load(source)
    random, graph = np.random.default_rng(0), model.graph
    sizes = {value.name: onnx.numpy_helper.to_array(value) for value in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in sizes:
            nodes.append(node)
            continue
        shape = sizes[node.input[0]]
        values = random.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        values = np.abs(values) + 0.5 if len(shape) == 1 else values
        graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, path)
