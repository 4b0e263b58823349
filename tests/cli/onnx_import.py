"""A network that PyTorch exported: imported, run, calibrated, fine-tuned and exported again."""

import os
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SOURCE, fails, result, run  # noqa: E402

FILES = os.path.join(SOURCE, "tests", "golden", "onnx_import")
report = run("import", os.path.join(FILES, "resnet_script_whole.onnx"), "-o", "resnet.h5").stdout
assert "73 layers, 4520 parameters: 9 add, 21 batch_norm" in report and "1 global pooling" in report, report
made = result("import", os.path.join(FILES, "vgg_dynamo.onnx"), "-o", "vgg.h5")
assert made["layers"]["conv2d"] == 3 and made["sample_shape"] == [1, 8, 8] and made["classes"] == 10, made

with h5py.File(os.path.join(FILES, "answers.h5")) as references:
    x, logits = references["resnet/x"][()], references["resnet/logits"][()]
with h5py.File("data.h5", "w") as file:
    file["test/x"], file["test/y"] = x, np.arange(len(x)) % 10
result("predict", "resnet.h5", "--data", "data.h5", "-o", "predictions.h5")
with h5py.File("predictions.h5") as file:
    assert np.abs(file["logits"][()] - logits).max() <= 1e-5 * np.abs(logits).max()

result("train", "--checkpoint", "vgg.h5", "--data", DIGITS, "--epochs", "4", "--lr", "0.01", "--seed", "1", "-o", "trained.h5")
trained = result("evaluate", "trained.h5", "--data", DIGITS)["accuracy"]
assert trained > 60, trained
for name, start in [("resnet", "resnet.h5"), ("vgg", "trained.h5")]:
    assert result("inspect", start)["parameters"] > 1000
    result("calibrate", start, "--data", DIGITS, "--preset", "int8", "-o", f"{name}_ptq.h5", "--samples", "256")
    result("qat", f"{name}_ptq.h5", "--data", DIGITS, "--epochs", "1", "--seed", "1", "-o", f"{name}_int8.h5")
    result("export", f"{name}_int8.h5", "-o", f"{name}_")
    result("export", f"{name}_int8.h5", "--format", "onnx", "-o", f"{name}_int8.onnx")
assert result("evaluate", "vgg_int8.h5", "--data", DIGITS)["accuracy"] > trained - 15

again = result("export", "resnet.h5", "--format", "onnx", "-o", "again.onnx")
result("import", "again.onnx", "-o", "again.h5")
result("predict", "again.h5", "--data", "data.h5", "-o", "again_predictions.h5")
with h5py.File("again_predictions.h5") as file:
    assert np.abs(file["logits"][()] - logits).max() <= 1e-5 * np.abs(logits).max()

result("import", "vgg_int8.onnx", "-o", "back.h5")  # on the grids of the file
assert result("evaluate", "back.h5", "--data", DIGITS)["accuracy"] == result("evaluate", "vgg_int8.h5", "--data", DIGITS)["accuracy"]
fails(2, "--input-shape is '3,x'", "import", "again.onnx", "-o", "no.h5", "--input-shape", "3,x")
fails(2, "[3, 8, 8] does not fit", "import", "again.onnx", "-o", "no.h5", "--input-shape", "3,8,8")
fails(2, "nothing.onnx", "import", "nothing.onnx", "-o", "no.h5")
fails(2, "output is missing", "import", "again.onnx")
with open("cut.onnx", "wb") as cut, open("again.onnx", "rb") as whole:
    cut.write(whole.read()[:5000])
fails(2, "cut.onnx", "import", "cut.onnx", "-o", "no.h5")
shutil.copy(DIGITS, "data.onnx")
fails(2, "data.onnx", "import", "data.onnx", "-o", "no.h5")
print("onnx import: ok")
