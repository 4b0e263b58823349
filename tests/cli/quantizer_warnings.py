"""Quantizers with wrong settings are reported by name with a remedy; correct ones are not."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import result, run  # noqa: E402

numbers = np.random.default_rng(1)
centres = 2 * numbers.standard_normal((5, 12))
labels = numbers.integers(0, 5, 1200)
table = (centres[labels] + 0.6 * numbers.standard_normal((1200, 12))).astype(np.float32)


def write(path, x):
    with h5py.File(path, "w") as file:
        file["train/x"], file["train/y"] = x, labels


write("table.h5", table)
outlier = table.copy()
outlier[700, 3] = 1e7  # one value takes the range of the first layer
write("outlier.h5", outlier)
DATA = ("--data", "table.h5")

run("train", "--model", "mlp", "--model-options", '{"hidden": [32, 32]}', *DATA, "--epochs", "4", "-o", "float.h5")
for preset in ("int8", "w2a2", "ternary", "binary"):
    report = run("calibrate", "float.h5", *DATA, "--preset", preset, "-o", f"{preset}.h5").stderr
    report += run("qat", f"{preset}.h5", *DATA, "--epochs", "1", "-o", f"{preset}_qat.h5").stderr
    assert "_quantizer:" not in report, (preset, report)

report = run("calibrate", "float.h5", "--data", "outlier.h5", "--preset", "int8", "--method", "max", "-o", "collapsed.h5").stderr
assert "of its values have one code, its range is 1e+07" in report and "use another --method" in report, report

# A learning rate that would change ranges without limit: they are limited, and this is reported.
lost = run("qat", "w2a2.h5", *DATA, "--epochs", "1", "--lr", "20", "--schedule", "constant", "-o", "held.h5")
assert "the ranges were limited" in lost.stderr, lost.stderr
assert result("qat", "w2a2.h5", *DATA, "--epochs", "1", "--lr", "20", "--schedule", "constant", "-o", "held.h5", "--force")[
    "ranges_held"] > 0
print("quantizer warnings: ok")
