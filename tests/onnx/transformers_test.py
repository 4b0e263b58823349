"""Imported transformers as ONNX files: ids stay int64, and int8, dynamic int8 and int4 weights answer in ONNX Runtime as here."""

import os

import h5py
import numpy as np
import onnx
import onnxruntime
from lib import SOURCE, result, run, session_options

random = np.random.default_rng(0)
with h5py.File("text.h5", "w") as file:
    for split, count in (("train", 64), ("test", 32)):
        windows = random.integers(0, 20, (count, 10))
        file[f"{split}/x"], file[f"{split}/y"] = windows[:, :9], windows[:, 1:]

# Largest differences of logits up to 2. int8: none was seen, where one sum of floats that rounds to the other side is a step
# of a grid; int8_dynamic, whose scales are of such sums: 0.0054; weights alone: 4e-6, sums of floats in another order.
ALLOWED = {"int8": 0.05, "int8_dynamic": 0.02, "int4_blockwise": 1e-5}
options = '{"layers": 1, "width": 32, "heads": 2, "context": 9}'
run("train", "--data", "text.h5", "--model", "gpt", "--model-options", options, "--epochs", "1", "-o", "gpt.h5")
for name in ("gpt2", "llama", "gpt"):
    if name != "gpt":
        run("import", os.path.join(SOURCE, "tests", "data", "transformers", name), "--input-shape", "9", "-o", f"{name}.h5")
    for preset, most in ALLOWED.items():
        file, checkpoint = f"{name}_{preset}.onnx", f"{name}_{preset}.h5"
        run("calibrate", f"{name}.h5", "--data", "text.h5", "--preset", preset, "-o", checkpoint)
        run("export", checkpoint, "--format", "onnx", "-o", file)
        given = onnx.load(file).graph.input[0].type.tensor_type
        assert given.elem_type == onnx.TensorProto.INT64, given
        report = result("verify", file, "--checkpoint", checkpoint, "--data", "text.h5", "--tolerance", "0.05", "--code-tolerance", "1e-3")
        assert report["flips"] == 0 and report["max_abs_diff"] <= most, (name, preset, report)

# The engine makes MatMulNBits of weights of 4 bits in blocks of 16 and more as it opens the file.
options = session_options()
options.optimized_model_filepath = "optimised.onnx"
onnxruntime.InferenceSession("gpt_int4_blockwise.onnx", options, providers=["CPUExecutionProvider"])
kinds = [node.op_type for node in onnx.load("optimised.onnx").graph.node]
assert kinds.count("MatMulNBits") == 7, kinds  # four projections, two layers and the head
kinds = {node.op_type for node in onnx.load("llama_int8_dynamic.onnx").graph.node}
assert {"DynamicQuantizeLinear", "MatMulInteger"} <= kinds, kinds
print("imported transformers: ok")
