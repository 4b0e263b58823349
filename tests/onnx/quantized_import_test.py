"""fakequant import of quantized ONNX files (ours, ONNX Runtime's static quantizer, ModelOpt, PyTorch): networks have the codes
and scales of the file, are exported unchanged, and train; tensors that no grid can represent are rejected with node and reason."""

import os

import numpy as np
import onnx
from lib import DIGITS, SOURCE, assert_identical, calibrated, fails, result, run, trained, verified
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

GIVEN = os.path.join(SOURCE, "tests", "data", "quantized")


def is_pair(node, kind):
    return node.op_type in (kind, "TRT_FP8" + kind)


def find_constants(graph):
    found = {value.name: value for value in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found[node.output[0]] = node.attribute[0].t
        if node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return {name: numpy_helper.to_array(value) for name, value in found.items()}


def grids(file):
    """The quantized values of a file: codes and scales of constants, in order, and scales of all other values."""
    graph = onnx.load(file).graph
    known = find_constants(graph)
    made = {node.output[0]: node for node in graph.node}
    weights, moving = [], set()
    for node in graph.node:
        if not is_pair(node, "DequantizeLinear"):
            continue
        codes, scale = known.get(node.input[0]), known[node.input[1]].reshape(-1)
        if codes is None:
            before = made[node.input[0]]
            before = made[before.input[0]] if before.op_type == "Clip" else before
            floats = known.get(before.input[0])
            if floats is None:
                moving.add(scale.tobytes())
                continue
            by = known[node.input[1]]
            by = by.reshape(-1, *[1] * (floats.ndim - 1)) if by.ndim else by
            codes = np.clip(np.rint(floats / by), -128, 127).astype(np.int8)
        weights.append((codes.ndim, codes.shape, codes.tobytes(), scale.tobytes()))
    return sorted(weights), moving


def back(file, name):
    """Imports a file and exports it again after no step."""
    report = result("import", file, "-o", name + ".h5")
    assert report["quantized"], report
    result("export", name + ".h5", "--format", "onnx", "-o", name + ".onnx")
    return name + ".h5", name + ".onnx"


def same(file, again, biases=True):
    (first, moving), (second, moved) = grids(file), grids(again)
    if not biases:
        first, second = ([each for each in all_ if each[0] > 1] for all_ in (first, second))
    assert first == second and moving == moved, (file, len(first), len(second), moving, moved)


# Ours: convolutions, pooling, a residual network; codes, scales and biases to the bit, and the engine's answers.
for network in ("digits_cnn", "mlp", "resnet20"):
    checkpoint, file = calibrated(network, "--preset", "int8")
    again, written = back(file, network + "_again")
    same(file, written)
    assert_identical(verified(again, written))
for flags in (["--preset", "int8", "--scale", "pow2"], ["--preset", "w4a4"], ["--preset", "int8", "--target", "tensorrt"],
              ["--preset", "fp8"], ["--preset", "int4_blockwise"]):
    checkpoint, file = calibrated("digits_cnn", *flags)
    again, written = back(file, "again_" + flags[-1])
    same(file, written)

# A transformer: its layers are quantized, norms are not; products within attention only on request.
with open("text.txt", "w", encoding="utf-8") as text:
    text.write("To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" * 20)
run("dataset", "from-text", "text.txt", "--windows", "16", "-o", "text.h5")
options = '{"layers": 1, "width": 32, "heads": 2, "context": 16}'
run("train", "--data", "text.h5", "--model", "gpt", "--model-options", options, "--epochs", "1", "-o", "gpt.h5")
run("calibrate", "gpt.h5", "--data", "text.h5", "--preset", "int8", "-o", "gpt8.h5")
run("export", "gpt8.h5", "--format", "onnx", "-o", "gpt8.onnx")
same("gpt8.onnx", back("gpt8.onnx", "gpt_again")[1])
run("calibrate", "gpt.h5", "--data", "text.h5", "--preset", "int8", "--attention", "int8", "-o", "gpt8a.h5")
run("export", "gpt8a.h5", "--format", "onnx", "-o", "gpt8a.onnx")
again, written = back("gpt8a.onnx", "gpt8a_again")
same("gpt8a.onnx", written)
first, second = (result("evaluate", name, "--data", "text.h5")["loss"] for name in ("gpt8a.h5", again))
assert first == second, (first, second)

# On from there: ranges stay, or are learned.
run("qat", "digits_cnn_again.h5", "--data", DIGITS, "--epochs", "1", "--amax", "frozen", "-o", "frozen.h5")
run("export", "frozen.h5", "--format", "onnx", "-o", "frozen.onnx")
first, second = grids("digits_cnn_again.onnx"), grids("frozen.onnx")
assert first[1] == second[1] and first[0] != second[0]
run("qat", "digits_cnn_again.h5", "--data", DIGITS, "--epochs", "1", "--amax", "learned", "-o", "learned.h5")
run("export", "learned.h5", "--format", "onnx", "-o", "learned.onnx")
assert grids("learned.onnx")[1] != first[1]


class Digits(CalibrationDataReader):
    def __init__(self):
        import h5py

        with h5py.File(DIGITS) as file:
            x = file["train/x"]
            values = x[:64].astype(np.float32) * np.float32(x.attrs.get("scale", 1.0))
        self.batches = iter([{"input": values[i:i + 16]} for i in range(0, 64, 16)])

    def get_next(self):
        return next(self.batches, None)


# ONNX Runtime's static quantizer, of floats that we wrote.
run("fold", trained("digits_cnn"), "-o", "folded.h5")
run("export", "folded.h5", "--format", "onnx", "-o", "floats.onnx")
SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}
for name, options in {"channels": {"per_channel": True, "activation_type": QuantType.QInt8},
                      "tensors": {"activation_type": QuantType.QInt8},
                      "unsigned": {"activation_type": QuantType.QUInt8, "per_channel": True}}.items():
    quantize_static("floats.onnx", f"ort_{name}.onnx", Digits(), quant_format=QuantFormat.QDQ, weight_type=QuantType.QInt8,
                    extra_options=SYMMETRIC, **options)
    again, written = back(f"ort_{name}.onnx", f"ort_{name}_again")
    same(f"ort_{name}.onnx", written)
    report = verified(again, written)
    assert report["codes_different"] == 0 and report["flips"] == 0, report
quantize_static("floats.onnx", "asymmetric.onnx", Digits(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QInt8)
fails(2, ["asymmetric.onnx", "(QuantizeLinear): its zero point is", "ActivationSymmetric"], "import", "asymmetric.onnx", "-o", "none.h5")
quantize_static("floats.onnx", "operators.onnx", Digits(), quant_format=QuantFormat.QOperator, extra_options=SYMMETRIC)
fails(2, ["operators.onnx", "QLinearConv", "pairs of both"], "import", "operators.onnx", "-o", "none.h5")

# ModelOpt's and PyTorch's: tests/data/quantized/generate.py made them. Biases are floats there.
for name in ("modelopt_int8", "torch_int8", "modelopt_fp8"):
    again, written = back(os.path.join(GIVEN, name + ".onnx"), name)
    if name == "modelopt_fp8":
        assert grids(os.path.join(GIVEN, name + ".onnx"))[1] == grids(written)[1]
    else:
        same(os.path.join(GIVEN, name + ".onnx"), written, biases=False)


def changed(name, change):
    model = onnx.load("mlp_preset_int8.onnx")
    change(model.graph)
    onnx.save(model, name)
    return name


def replace(graph, name, value):
    [old] = [each for each in graph.initializer if each.name == name]
    graph.initializer.remove(old)
    graph.initializer.append(numpy_helper.from_array(value, name))


graph = onnx.load("mlp_preset_int8.onnx").graph
quantize = next(node for node in graph.node if node.op_type == "QuantizeLinear")
known = find_constants(graph)
scale, zero = quantize.input[1], quantize.input[2]
for expected, change in {
        "its scale is 0: it must be positive": lambda g: replace(g, scale, np.zeros_like(known[scale])),
        "its scale is nan": lambda g: replace(g, scale, np.full_like(known[scale], np.nan)),
        "its zero point is 7": lambda g: replace(g, zero, np.array(7, np.uint8)),
        "its scale or zero point differs from": lambda g: (
            g.initializer.append(numpy_helper.from_array(known[scale] * 2, "other")),
            next(n for n in g.node if n.op_type == "DequantizeLinear" and n.input[1] == scale).input.__setitem__(1, "other")),
        "nothing reads its codes": lambda g: g.node.append(
            helper.make_node("QuantizeLinear", [g.output[0].name, scale, zero], ["codes"], "last"))}.items():
    fails(2, ["changed.onnx", expected], "import", changed("changed.onnx", change), "-o", "none.h5")
with open("mlp_preset_int8.onnx", "rb") as file:
    whole = file.read()
for length in (10, len(whole) // 2, len(whole) - 3):
    with open("cut.onnx", "wb") as file:
        file.write(whole[:length])
    fails(2, ["cut.onnx"], "import", "cut.onnx", "-o", "none.h5")
