"""Every type of layer, and quantizers in other places than the presets put them."""

import json
import os

from lib import DIGITS, SOURCE, assert_identical, calibrated, has_vnni, result, trained, unpack_checkpoint, verified


def config(name, **fields):
    with open(name, "w") as file:
        json.dump(fields, file)
    return name


# Operators that the engine computes in floats are listed, and only there a code or a bit of a logit may differ. The shares of codes
# that differed, and the largest differences of logits, were measured on 10,360 samples, the most of two trained networks
# (with free scales one has 3,298 codes near a tie that another has not). They are tested on one that is kept.
FLOATS = {"grouped_relu6", "depthwise_silu", "strided_leaky", "cut_gelu", "gate", "gated", "joined_norm", "mixed_clip",
          "token_norm", "up_tanh", "weights", "mixed_tokens"}
UNROUNDED = {"averaged", "sum", "residual"}  # read by the gate, the product and the softmax
STREAM = {"residual"}  # an addition that the softmax and a product of floats read alone: presets leave it in floats
PRODUCTS = {"wider"}  # a transposed convolution
NO_CODES = {"sequence", "global"}  # without a target averages are of floats
MEASURED = {("ort", "free"): (FLOATS | UNROUNDED | PRODUCTS, 5.1e-5, 8.4e-4),
            ("ort", "pow2"): (FLOATS | UNROUNDED, 1.6e-6, 4.3e-4),
            ("tensorrt", "free"): (FLOATS | STREAM, 2.1e-4, 1.3e-3), ("tensorrt", "pow2"): (FLOATS | STREAM, 4.2e-7, 2.2e-4),
            ("none", "free"): (FLOATS | UNROUNDED | PRODUCTS | NO_CODES, 7.5e-5, 9.4e-4),
            ("none", "pow2"): (FLOATS | UNROUNDED | {"global"}, 7.4e-7, 2.7e-4)}
NO_VNNI = {("tensorrt", "pow2"): (1.1e-6, 2.2e-4), ("none", "pow2"): (2.1e-6, 2.7e-4)}  # on a processor with AVX2

model = os.path.join(SOURCE, "tests", "data", "every_layer.json")
result("train", "--model", model, "--data", DIGITS, "--epochs", "1", "-o", "float.h5")


def exported(checkpoint, floats, *flags):
    """Report of verify for a file with these float operators."""
    operators = result("export", checkpoint, "--format", "onnx", "-o", "layers.onnx")["float_operators"]
    assert {entry["path"] for entry in operators} == floats, (checkpoint, floats, operators)
    found = verified(checkpoint, "layers.onnx", "--code-tolerance", 1, "--tolerance", 1e6, *flags)
    assert found["codes"] > 0 and found["not_in_file"] == [], found
    return found


unpack_checkpoint("every_layer")
for (target, scale), (floats, codes, logits) in MEASURED.items():
    if has_vnni() is False:
        codes, logits = NO_VNNI.get((target, scale), (codes, logits))
    flags = ["--data", DIGITS, "--preset", "int8", "--target", target, "--scale", scale]
    result("calibrate", "float.h5", *flags, "-o", "layers.h5")
    exported("layers.h5", floats)
    if scale == "free":
        unpack_checkpoint(f"every_layer_{target}")
    else:
        result("calibrate", "every_layer.h5", *flags, "-o", f"every_layer_{target}.h5")
    found = exported(f"every_layer_{target}.h5", floats, "--random", 2000)
    assert found["codes_different"] <= codes * found["codes"] and found["max_abs_diff"] <= logits, found
result("fold", "float.h5", "-o", "folded.h5")
result("export", "folded.h5", "--format", "onnx", "-o", "float.onnx")
assert verified("folded.h5", "float.onnx", "--tolerance", 1e-5)["codes"] == 0

narrow = config("narrow.json", preset="int8", rules=[{"pattern": "*input_quantizer*", "narrow_range": True}])
assert_identical(verified(*calibrated("resnet20", "--config", narrow, name="narrow")))
output = config("output.json", preset="int8", rules=[{"pattern": "*output_quantizer", "num_bits": 8, "enable": True}])
assert_identical(verified(*calibrated("digits_cnn", "--config", output, name="output")))

result("calibrate", trained("digits_cnn"), "--data", DIGITS, "--preset", "int8", "-o", "before.h5")
result("qat", "before.h5", "--data", DIGITS, "--epochs", "1", "--amax", "learned", "-o", "learned.h5")
result("export", "learned.h5", "--format", "onnx", "-o", "learned.onnx")
assert_identical(verified("learned.h5", "learned.onnx"))

# Float sums equal the engine's bit for bit if their inputs do: linear layers, and sums of sums.
nodes = [{"name": "flat", "type": "flatten"}]
for name, kind, inputs in [("a", "linear", ["flat"]), ("b", "linear", ["flat"]), ("sum", "add", ["a", "b"]), ("c", "linear", ["sum"]),
                           ("again", "add", ["c", "sum"]), ("d", "linear", ["again"])]:
    nodes.append({"name": name, "type": kind, "inputs": inputs, "options": {"out_features": 32} if kind == "linear" else {}})
nodes.append({"name": "e", "type": "linear", "options": {"out_features": 10}})
with open("sums.json", "w") as file:
    json.dump({"nodes": nodes}, file)
rules = [{"pattern": f"{name}.*", "enable": False} for name in ("sum", "again")]
result("train", "--model", "sums.json", "--data", DIGITS, "--epochs", "1", "-o", "sums.h5")
result("calibrate", "sums.h5", "--data", DIGITS, "--config", config("sums_int8.json", preset="int8", rules=rules), "-o", "sums8.h5")
exported_sums = result("export", "sums8.h5", "--format", "onnx", "-o", "sums.onnx")
assert exported_sums["float_operators"] == [], exported_sums
found = verified("sums8.h5", "sums.onnx", "--random", 2000)
assert_identical(found, samples=2360)
assert found["kernels"]["Add"] == 2, found["kernels"]

# A sum that two quantizers round otherwise is written twice, and linear layers may have one weight: each product has constants of
# its own, as the engine makes others of them on a processor without VNNI.
nodes = [{"name": "conv", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}}, {"name": "cut", "type": "relu"},
         {"name": "sum", "type": "add", "inputs": ["cut", "conv"]}, {"name": "flat", "type": "flatten"},
         {"name": "first", "type": "linear", "options": {"out_features": 144}}, {"name": "relu", "type": "relu"},
         {"name": "second", "type": "linear", "options": {"out_features": 144, "weight_of": "first"}},
         {"name": "third", "type": "linear", "options": {"out_features": 10}}]
with open("shared.json", "w") as file:
    json.dump({"nodes": nodes}, file)
result("train", "--model", "shared.json", "--data", DIGITS, "--epochs", "1", "-o", "shared.h5")
result("calibrate", "shared.h5", "--data", DIGITS, "--preset", "int8", "-o", "shared8.h5")
result("export", "shared8.h5", "--format", "onnx", "-o", "shared.onnx")
assert_identical(verified("shared8.h5", "shared.onnx", "--random", 2000), samples=2360)
found = verified("shared8.h5", "shared.onnx", "--session", "session.x64quantprecision=1")
assert_identical(found)
assert found["kernels"]["QLinearConv"] == 2 and found["kernels"]["QGemm"] == 3, found["kernels"]
