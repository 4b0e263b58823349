"""Linear layers that round their input as they run: DynamicQuantizeLinear and MatMulInteger in ONNX Runtime, bit by bit."""

import json

import onnx
from lib import DIGITS, fails, has_vnni, result, verified


def kinds(file):
    return [node.op_type for node in onnx.load(file).graph.node]


def no_difference(report):
    assert report["same"] and report["logits"] > 0, report
    assert report["logit_bits_different"] == report["flips"] == report["max_abs_diff"] == 0, report


result("train", "--model", "mlp", "--data", DIGITS, "--epochs", "3", "-o", "float.h5")
accuracy = result("evaluate", "float.h5", "--data", DIGITS)["accuracy"]
result("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8_dynamic", "-o", "ptq.h5")
result("qat", "ptq.h5", "--data", DIGITS, "--epochs", "1", "-o", "dynamic.h5")
assert result("evaluate", "dynamic.h5", "--data", DIGITS)["accuracy"] > accuracy - 15
exported = result("export", "dynamic.h5", "--format", "onnx", "-o", "dynamic.onnx")
assert exported["float_operators"] == [], exported
layers = kinds("dynamic.onnx").count("MatMulInteger")
assert layers >= 2 and kinds("dynamic.onnx").count("DynamicQuantizeLinear") == layers, kinds("dynamic.onnx")
no_difference(verified("dynamic.h5", "dynamic.onnx", "--level", "all"))
for level in ("basic", "disabled"):
    if has_vnni() is not False:
        no_difference(verified("dynamic.h5", "dynamic.onnx", "--level", level))
        continue
    found = verified("dynamic.h5", "dynamic.onnx", "--level", level, status=1)
    assert "pairs of products of fc1" in found["reasons"][0] and "--level all" in found["ways"][0], found
no_difference(verified("dynamic.h5", "dynamic.onnx", "--random", "1000"))

# One matrix of 4 bits is a matrix of bytes in the file; tokens of a sample share its range.
nodes = [{"name": "rows", "type": "reshape", "options": {"shape": [8, 8]}},
         {"name": "mix", "type": "linear", "options": {"out_features": 24}}, {"type": "relu"}, {"type": "flatten"},
         {"name": "out", "type": "linear", "options": {"out_features": "classes", "bias": False}}]
with open("rows.json", "w") as file:
    json.dump(nodes, file)
with open("narrow.json", "w") as file:
    json.dump({"preset": "int8_dynamic", "rules": [{"pattern": "mix.weight_quantizer", "num_bits": 4}]}, file)
result("train", "--model", "rows.json", "--data", DIGITS, "--epochs", "2", "-o", "rows.h5")
result("calibrate", "rows.h5", "--data", DIGITS, "--config", "narrow.json", "-o", "narrow.h5")
result("export", "narrow.h5", "--format", "onnx", "-o", "narrow.onnx")
no_difference(verified("narrow.h5", "narrow.onnx"))

fails(2, ["ort_dynamic", "tensorrt"], "export", "dynamic.h5", "--format", "onnx", "--target", "tensorrt", "-o", "none.onnx")
