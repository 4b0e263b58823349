"""Low-bit presets without other flags: choices are reported, trained networks are far above chance, every choice has a flag."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import events, fails, result, run  # noqa: E402

# A table of 12 numbers and five classes: the nearest of five points, in units of each column's own.
numbers = np.random.default_rng(1)
centres = numbers.standard_normal((5, 12))
labels = numbers.integers(0, 5, 3000)
table = (centres[labels] + 0.6 * numbers.standard_normal((3000, 12))).astype(np.float32)
with h5py.File("table.h5", "w") as file:
    for split, rows in (("train", slice(0, 2400)), ("test", slice(2400, 3000))):
        file[f"{split}/x"], file[f"{split}/y"] = table[rows], labels[rows]

run("train", "--model", "mlp", "--model-options", '{"hidden": [32, 32]}', "--data", "table.h5", "--epochs", "12", "-o", "float.h5")


def accuracy(checkpoint):
    return result("evaluate", checkpoint, "--data", "table.h5")["accuracy"]


reference = accuracy("float.h5")
assert reference > 90, reference
for preset, loss in (("w2a2", 4), ("w3a3", 3), ("w4a4", 2), ("w4a8", 2), ("ternary", 2), ("binary", 2), ("int8", 1)):
    run("calibrate", "float.h5", "--data", "table.h5", "--preset", preset, "-o", "ptq.h5", "--force")
    report = run("qat", "ptq.h5", "--data", "table.h5", "--epochs", "3", "-o", "qat.h5", "--force").stdout
    ranges = {"int8": "ranges frozen;", "ternary": "ranges frozen, of weights learned (lsq);",
              "w2a2": "ranges learned (lsq), of weights too at 3 times the rate;"}
    ranges["binary"] = ranges["ternary"]  # of the edges, which have 8 bits
    assert ranges.get(preset, "ranges learned (lsq), of weights too;") in report, report
    found = accuracy("qat.h5")
    assert found > reference - loss and found > accuracy("ptq.h5") - 1, (preset, found, reference)

report = run("calibrate", "float.h5", "--data", "table.h5", "--preset", "w2a2", "-o", "ptq.h5", "--force").stdout
assert "scale free; ranges by one_pass_mse; 8 bits in the first and the last layer" in report, report
assert report.count("int2") >= 2 and report.count("int8") >= 4, report  # three layers, the middle one has two bits
same = run("calibrate", "float.h5", "--data", "table.h5", "--preset", "w2a2", "--edge-bits", "0", "--method", "max",
           "--weight-method", "max", "-o", "same.h5").stdout
assert "last layer" not in same and "int8" not in same and "ranges by" not in same, same
report = run("qat", "same.h5", "--data", "table.h5", "--epochs", "1", "--amax", "frozen", "--lr", "0.0005", "-o", "frozen.h5").stdout
assert "ranges frozen; learning rate 0.0005" in report, report
report = run("qat", "ptq.h5", "--data", "table.h5", "--epochs", "1", "--set", "learn_weight_ranges=false", "-o", "half.h5").stdout
assert "ranges learned (lsq) at 3 times the rate; learning rate" in report, report

# Binary weights: signs, and the mean magnitude as their scale, in files too.
report = run("calibrate", "float.h5", "--data", "table.h5", "--preset", "binary", "-o", "signs_ptq.h5").stdout
assert report.count("int2") == 1 and "8 bits in the first and the last layer" in report, report  # three layers
run("qat", "signs_ptq.h5", "--data", "table.h5", "--epochs", "2", "-o", "signs.h5")
run("compress", "signs.h5", "-o", "signs_small.h5")
assert accuracy("signs_small.h5") == accuracy("signs.h5")
run("export", "signs.h5", "-o", "signs")
with h5py.File("signs.h5") as file, h5py.File("signs_scales.h5") as scales:
    weights = {name.removesuffix(".weight_quantizer"): scales[name]["scale"][()] for name in scales if "weight" in name}
    middle = sorted(weights)[1]
    weight = file["parameters"][middle + ".weight"][()].astype(np.float64)
    assert np.array_equal(weights[middle], np.abs(weight).mean(axis=1).astype(np.float32)), (middle, list(weights))

# A run that learns the ranges of weights resumes where it was stopped. The default rate follows the length of the run.
CONSTANT = ["--data", "table.h5", "--schedule", "constant", "--lr", "0.001"]
run("qat", "ptq.h5", *CONSTANT, "--epochs", "2", "-o", "whole.h5")
run("qat", "ptq.h5", *CONSTANT, "--epochs", "1", "-o", "parts.h5")
run("qat", "ptq.h5", *CONSTANT, "--epochs", "2", "-o", "parts.h5", "--resume")
with h5py.File("whole.h5") as whole, h5py.File("parts.h5") as parts:
    ranges = [name for name in whole["parameters"] if name.endswith("amax")]
    assert ranges, list(whole["parameters"])
    for name in whole["parameters"]:
        assert np.array_equal(whole["parameters"][name], parts["parameters"][name]), name

fails(2, "--edge-bits is 1", "calibrate", "float.h5", "--data", "table.h5", "--preset", "w2a2", "--edge-bits", "1", "-o", "no.h5")
fails(2, "--edge-bits is for integers", "calibrate", "float.h5", "--data", "table.h5", "--preset", "mxfp8", "--edge-bits", "8",
      "-o", "no.h5")
fails(2, "use 8 (E4M3) or 0", "calibrate", "float.h5", "--data", "table.h5", "--preset", "nvfp4", "--edge-bits", "4", "-o", "no.h5")
report = run("calibrate", "float.h5", "--data", "table.h5", "--preset", "nvfp4", "--target", "none", "-o", "blocks.h5").stdout
assert "E4M3 in the first and the last layer" in report, report
assert "layer" not in run("calibrate", "float.h5", "--data", "table.h5", "--preset", "nvfp4", "--target", "none", "--edge-bits", "0",
                          "-o", "blocks.h5").stdout.splitlines()[0]
with open("rules.json", "w") as file:
    file.write('{"preset": "w2a2"}')
fails(2, "write a rule into rules.json", "calibrate", "float.h5", "--data", "table.h5", "--config", "rules.json", "--edge-bits", "8",
      "-o", "no.h5")
fails(2, "--weight-amax", "qat", "ptq.h5", "--data", "table.h5", "--weight-amax", "running", "-o", "no.h5")
assert events("calibrate", "float.h5", "--data", "table.h5", "--config", "rules.json", "-o", "rules.h5")[-1]["event"] == "result"
print("low bits: ok")
