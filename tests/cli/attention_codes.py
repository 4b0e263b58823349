"""Attention on codes in a classifier: its row in a sensitivity report, its tensors in exported files, compressed
weights, algorithms on weights, and the other target."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import result, run  # noqa: E402

random = np.random.default_rng(0)
with h5py.File("data.h5", "w") as file:
    for split, count in (("train", 400), ("test", 100)):
        labels = random.integers(0, 3, count)
        file[f"{split}/x"] = (random.standard_normal((count, 8, 16)) + 0.3 * labels[:, None, None]).astype(np.float32)
        file[f"{split}/y"] = labels
with open("model.json", "w") as file:
    json.dump([{"name": "attention", "type": "attention", "options": {"heads": 2}}, {"type": "flatten"},
               {"name": "fc", "type": "linear", "options": {"out_features": "classes"}}], file)
DATA = ["--data", "data.h5"]
CODES = [*DATA, "--preset", "int8", "--attention", "int8"]
run("train", "--model", "model.json", *DATA, "--epochs", "3", "-o", "float.h5")
run("calibrate", "float.h5", *CODES, "-o", "codes.h5")

rows = {entry["layer"]: entry for entry in result("sensitivity", "codes.h5", *DATA)["layers"]}
assert rows["attention"]["format"] == "q_bmm int8, k_bmm int8, v_bmm int8, softmax uint8", rows
assert rows["attention"]["weights"] == 0 and abs(rows["attention"]["loss_change"]) < 0.01, rows
assert {"attention.q_proj", "attention.out_proj", "fc"} <= set(rows), rows

loss = result("evaluate", "codes.h5", *DATA)["loss"]
assert abs(loss - result("evaluate", "float.h5", *DATA)["loss"]) < 0.02
run("compress", "codes.h5", "-o", "packed.h5")
assert result("evaluate", "packed.h5", *DATA)["loss"] == loss
for output in (["--format", "safetensors", "-o", "codes.safetensors"], ["--format", "scales", "-o", "codes"]):
    run("export", "codes.h5", *output)
with open("codes_scales.json") as file:
    assert "attention.k_bmm_quantizer" in file.read()
run("calibrate", "float.h5", *CODES, "--algorithm", "smoothquant", "-o", "smooth.h5")
assert abs(result("evaluate", "smooth.h5", *DATA)["loss"] - loss) < 0.02
assert "softmax_quantizer          int8, amax 1" in run("calibrate", "float.h5", *CODES, "--target", "tensorrt", "-o", "signed.h5").stdout
run("export", "signed.h5", "--format", "onnx", "-o", "signed.onnx")
print("attention codes: ok")
