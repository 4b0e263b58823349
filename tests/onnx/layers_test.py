"""Every type of layer, and quantizers in other places than the presets put them."""

import json
import os

from lib import DIGITS, SOURCE, assert_identical, calibrated, result, trained, verified


def config(name, **fields):
    with open(name, "w") as file:
        json.dump(fields, file)
    return name


# Where the engine has no kernel of integers (softmax, layer norm, a transposed convolution, ..) it rounds floats of its own.
model = os.path.join(SOURCE, "tests", "data", "every_layer.json")
result("train", "--model", model, "--data", DIGITS, "--epochs", "1", "-o", "float.h5")
for target in ["ort", "tensorrt", "none"]:
    result("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "--target", target, "-o", f"{target}.h5")
    result("export", f"{target}.h5", "--format", "onnx", "-o", f"{target}.onnx")
    found = verified(f"{target}.h5", f"{target}.onnx", "--code-tolerance", 1e-4, "--tolerance", 1e-2)
    assert found["codes"] > 0 and found["not_in_file"] == [], found
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
