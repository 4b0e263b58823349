"""Attention on codes: what ONNX Runtime runs of it, and how its codes and answers compare."""

import json

import onnx
import onnxruntime
from lib import english, result, run, session_options

with open("text.txt", "w", encoding="utf-8") as file:
    file.write(english(12000))
run("dataset", "from-text", "text.txt", "--windows", "16", "-o", "text.h5")


def kernels(path):
    options = session_options()
    options.optimized_model_filepath = path + ".optimised"
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(path + ".optimised").graph.node]


def exported(network, name, *flags):
    """Report of verify on the network's test windows, and the engine's kernels."""
    result("calibrate", f"{network}.h5", "--data", "text.h5", "--preset", "int8", *flags, "-o", f"{name}.h5")
    result("export", f"{name}.h5", "--format", "onnx", "-o", f"{name}.onnx")
    lines = run("verify", f"{name}.onnx", "--checkpoint", f"{name}.h5", "--data", "text.h5", "--split", "train", "--json",
                "--code-tolerance", "0.002", "--tolerance", "0.5").stdout
    return json.loads(lines.splitlines()[-1]), kernels(f"{name}.onnx")


# Softmax, layer norm and GELU are the engine's own: a code near a tie behind them may be off by one, and no answer changes.
for network, options in [("plain", {}), ("grouped", {"kv_heads": 2, "rotary": True})]:
    result("train", "--model", "gpt", "--model-options", json.dumps({"layers": 1, "width": 32, "heads": 4, "context": 16} | options),
           "--data", "text.h5", "--epochs", 3, "--batch", 8, "--lr", 0.005, "--seed", 2, "-o", f"{network}.h5")
    for name, flags in [("codes", ["--attention", "int8"]), ("kv", ["--kv", "int8"])]:
        found, ran = exported(network, f"{network}_{name}", *flags)
        assert found["flips"] == 0 and found["codes"] > 0 and not found["not_in_file"], found
        assert found["codes_different"] <= 1e-3 * found["codes"], found
        if name == "codes":
            assert ran.count("MatMulIntegerToFloat") == 1 and ran.count("QLinearMatMul") == 1, ran
            assert "MatMul" not in ran and "FusedMatMul" not in ran, ran
print("attention codes: ok")
