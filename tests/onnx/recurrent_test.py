"""Recurrent layers in integers: what ONNX Runtime's DynamicQuantizeLSTM computes, bit by bit; and those it has none for."""

import json

import numpy as np
import onnx
from lib import DIGITS, assert_identical, fails, result, run, session_options, verified


def network(name, kind, **options):
    """The rows of an image as a sequence."""
    nodes = [{"name": "rows", "type": "reshape", "options": {"shape": [8, 8]}},
             {"name": "layers", "type": kind, "options": {"hidden_size": 24, **options}},
             {"name": "flat", "type": "flatten"},
             {"name": "out", "type": "linear", "options": {"out_features": "classes"}}]
    with open(name + ".json", "w") as file:
        json.dump(nodes, file)
    result("train", "--model", name + ".json", "--data", DIGITS, "--epochs", "3", "-o", name + ".h5")
    return name + ".h5"


def quantized(name, checkpoint, *flags):
    result("calibrate", checkpoint, "--data", DIGITS, *flags, "-o", name + "_ptq.h5")
    result("qat", name + "_ptq.h5", "--data", DIGITS, "--epochs", "1", "--lr", "0.0005", "-o", name + "_qat.h5")
    exported = result("export", name + "_qat.h5", "--format", "onnx", "-o", name + ".onnx")
    return name + "_qat.h5", name + ".onnx", exported


def kinds(file):
    return [node.op_type for node in onnx.load(file).graph.node]


deep = network("deep", "lstm", bidirectional=True, layers=2, dropout=0.2)
accuracy = result("evaluate", deep, "--data", DIGITS)["accuracy"]
checkpoint, file, exported = quantized("int8", deep, "--preset", "int8")
assert kinds(file).count("DynamicQuantizeLSTM") == 4 and exported["float_operators"] == [], exported
assert result("evaluate", checkpoint, "--data", DIGITS)["accuracy"] > accuracy - 15
assert_identical(verified(checkpoint, file))


def largest_code(file):
    """Largest code of the weights of the first layer."""
    return max(abs(onnx.numpy_helper.to_array(tensor)).max() for tensor in onnx.load(file).graph.initializer
               if tensor.name.startswith("layers.weight_ih_l0") and tensor.data_type == onnx.TensorProto.INT8)


# The edges of a network have 8 bits, the matrices of recurrent layers there too.
checkpoint, file, _ = quantized("w4a8", deep, "--preset", "w4a8")
assert largest_code(file) == 127
assert_identical(verified(checkpoint, file))
checkpoint, file, _ = quantized("w4a8_edges", deep, "--preset", "w4a8", "--edge-bits", "0")
assert largest_code(file) == 7
found = verified(checkpoint, file)  # the last layer multiplies floats of 4-bit weights
assert found["codes"] > 0 and found["codes_different"] == 0 and found["max_abs_diff"] < 1e-5, found

fails(2, ["com.microsoft.DynamicQuantizeLSTM", "the checkpoint"], "import", file, "-o", "again.h5")

# Compressed, the same bits.
result("compress", checkpoint, "-o", "small.h5")
result("export", "small.h5", "--format", "onnx", "-o", "small.onnx")
assert open("small.onnx", "rb").read() == open(file, "rb").read()

# A plan of mixed formats has recurrent layers too.
plan = result("sensitivity", deep, "--data", DIGITS, "--effective-bits", "6", "-o", "plan.json")
layer = next(layer for layer in plan["layers"] if layer["layer"] == "layers")
assert layer["weights"] == 2 * 96 * (8 + 24 + 48 + 24) and layer["bits"] < 32, layer

# One range for the whole batch: the engine on one thread, with that batch.
with open("batch.json", "w") as config:
    json.dump({"preset": "int8", "rules": [{"pattern": "layers.input_quantizer", "axis": None}]}, config)
checkpoint, file, _ = quantized("batch", network("one", "lstm"), "--config", "batch.json")
run("predict", checkpoint, "--data", DIGITS, "--batch", 64, "-o", "batch_predictions.h5")
import h5py  # noqa: E402
import onnxruntime  # noqa: E402

with h5py.File(DIGITS) as data, h5py.File("batch_predictions.h5") as ours:
    x = data["test/x"][:64].astype(np.float32) * np.float32(data["test/x"].attrs.get("scale", 1))
    options = session_options()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    y = session.run(None, {"input": x})[0]
    assert np.array_equal(y.view(np.int32), ours["logits"][:64].view(np.int32))

# Other layers: dequantized weights, in floats.
for kind, options in [("gru", {"bidirectional": True}), ("rnn", {}), ("rnn", {"nonlinearity": "relu"})]:
    name = kind + "".join(options.get("nonlinearity", ""))
    checkpoint, file, exported = quantized(name, network("float_" + name, kind, **options), "--preset", "int8")
    assert kind.upper() in kinds(file) and {entry["path"] for entry in exported["float_operators"]} == {"layers"}, exported
    found = verified(checkpoint, file, "--code-tolerance", 1e-3, "--tolerance", 1e-3)
    assert found["not_in_file"] == [] and found["flips"] == 0, found
checkpoint, file, _ = quantized("trt", deep, "--preset", "int8", "--target", "tensorrt")
assert kinds(file).count("LSTM") == 4
verified(checkpoint, file, "--code-tolerance", 1e-3, "--tolerance", 1e-3)
fails(2, "recurrent", "export", checkpoint, "--format", "safetensors", "-o", "no.safetensors")
