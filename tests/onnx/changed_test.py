"""verify detects files that differ from the checkpoint, and fails with one line if it cannot compare."""

import os

import numpy as np
import onnx
from lib import DIGITS, calibrated, fails, run, verified
from onnx import numpy_helper

os.environ["TMPDIR"] = os.path.abspath("temporary")
os.mkdir("temporary")
checkpoint, file = calibrated("digits_cnn", "--preset", "int8", name="net")
model = onnx.load(file)
weights = [node.input[0] for node in model.graph.node if node.op_type == "DequantizeLinear"]
constants = {tensor.name: tensor for tensor in model.graph.initializer}
weight = next(name for name in weights if name in constants and len(constants[name].dims) == 4)
scale = next(node.input[1] for node in model.graph.node if node.output[0] == "conv3.input_quantizer")


def changed(name, change):
    """The file with one constant changed."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    tensor = next(tensor for tensor in other.graph.initializer if tensor.name == name)
    values = numpy_helper.to_array(tensor).copy()
    values.flat[0] = change(values.flat[0])
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    onnx.save(other, "changed.onnx")
    return "changed.onnx"


found = verified(checkpoint, changed(weight, lambda code: code + 1 if code < 127 else code - 1), status=1)
assert 0 < found["codes_different"] == sum(found["different"].values()), found
found = verified(checkpoint, changed(scale, lambda value: np.nextafter(value, np.float32(1))), status=1)
assert found["codes_different"] > 0, found
found = verified(checkpoint, changed(scale, lambda value: value * np.float32(1 + 1e-5)), status=1)
assert found["codes_different"] > 0 and set(found["different"]) & {"conv3.input_quantizer"}, found
line = run("verify", "changed.onnx", "--checkpoint", checkpoint, "--data", DIGITS, status=1)
assert line.stderr.startswith(f"fakequant: [verify] changed.onnx does not compute what {checkpoint} does: "), line.stderr
assert "first difference: conv3.input_quantizer, " in line.stdout, line.stdout
first = found["first_difference"]
assert first["quantizer"] == "conv3.input_quantizer" and first["codes_different"] == found["different"][first["quantizer"]], first
assert first["largest_steps"] == 1 and not first["in_floats"] and first["codes"] == found["compared"][first["quantizer"]], first
assert [node["node"] for node in first["nodes"]] == ["conv2", "relu2", "pool"], first
assert "integers" in found["reasons"][0] and found["ways"][-1].startswith("export it again"), found
assert found["float_kernels"] == [] and not found["same"], found

last = next(node.input[1] for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in constants
            and len(constants[node.input[0]].dims) == 2)
found = verified(checkpoint, changed(last, lambda value: np.float32(np.nan)), status=1)  # logits that are no numbers
assert found["max_abs_diff"] is None and found["logit_bits_different"] >= 360, found

other = onnx.ModelProto()
other.CopyFrom(model)
for node in other.graph.node:  # another name for a quantizer's codes
    for names in [node.input, node.output]:
        names[:] = ["elsewhere" if name == "conv2.input_quantizer" else name for name in names]
onnx.save(other, "renamed.onnx")
found = verified(checkpoint, "renamed.onnx", status=1)
assert found["not_in_file"] == ["conv2.input_quantizer"] and found["logit_bits_different"] == 0, found
assert "no codes of conv2.input_quantizer" in found["reasons"][0], found

with open(file, "rb") as whole, open("cut.onnx", "wb") as cut:
    cut.write(whole.read()[:2000])
same = ["--checkpoint", checkpoint, "--data", DIGITS]
fails(2, ["verify", "cut.onnx"], "verify", "cut.onnx", *same)
fails(2, "cut off", "verify", "cut.onnx", "--target", "tensorrt")
calibrated("mlp", "--preset", "int8", name="mlp")
fails(1, "does not compute", "verify", "mlp.onnx", *same)
assert os.listdir("temporary") == []
