"""Runs the networks in engines. Each comparison is (name, outputs of training, outputs of the engine)."""
import os

import numpy as np
from fakequant.engines.processor import has_vnni


def onnxruntime(depth, x):
    """Static INT8 in ONNX Runtime; compared with codes, with a float simulation of the same ranges, and with a float bias."""
    import onnxruntime as ort

    checkpoint = depth.calibrated("ort", preset="int8")
    options = ort.SessionOptions()
    if has_vnni() is False:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(depth.exported(checkpoint, "onnx", ".onnx"), options, providers=["CPUExecutionProvider"])
    made = session.run(None, {session.get_inputs()[0].name: x})[0]
    simulated = depth.calibrated("simulated", preset="int8", arithmetic="reference")
    return [("ort", depth.forward(checkpoint), made), ("simulated in floats", depth.forward(simulated), made)]


def xnnpack(depth, x, name="xnnpack", preset="8da8w"):
    """The whole network is a program: dynamic INT8, or static."""
    import torch
    from fakequant.engines.executorch_program import Program

    checkpoint = depth.calibrated(name.replace(" ", "_"), preset=preset)
    with open(depth.exported(checkpoint, "executorch", ".pte"), "rb") as file:
        program = Program(file.read())
    made = np.concatenate([program(torch.from_numpy(x[i:i + 1]))[0] for i in range(len(x))])
    return [(name, depth.forward(checkpoint), made)]


def xnnpack_static(depth, x):
    return xnnpack(depth, x, "xnnpack static", "int8")


def ggml(depth, x, home):
    """Q4_0: llama.cpp knows no such architecture, so its products are called layer by layer, with ReLU between."""
    from fakequant.engines.llama import Products

    checkpoint = depth.calibrated("ggml", preset="q4_0")
    products = Products(home, depth.exported(checkpoint, "gguf", ".gguf"))
    values = x.reshape(len(x), -1)
    for i in range(depth.layers):
        weight, bias = depth.weights[f"fc{i}.weight"], depth.weights[f"fc{i}.bias"]
        made = products.product(f"fc{i}.weight", "repacked", values, len(weight))
        if made is None:
            made = products.product(f"fc{i}.weight", "plain", values, len(weight))
        values = made + bias
        if i < depth.layers - 1:
            values = np.maximum(values, np.float32(0))
    return [("ggml", depth.forward(checkpoint), values)]


def run_engines(depth, x, engines, home):
    found = []
    for name in engines:
        found += ggml(depth, x, os.path.join(home, "llama.cpp")) if name == "ggml" else {
            "ort": onnxruntime, "xnnpack": xnnpack, "xnnpack_static": xnnpack_static}[name](depth, x)
    return found
