"""Distillation from the float network: chosen by default if labels add no information, a checkpoint by flag, rejected if it does not
fit; lost accuracy is reported."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, result, run  # noqa: E402

numbers = np.random.default_rng(1)
centres = 2 * numbers.standard_normal((5, 12))
labels = numbers.integers(0, 5, 1500)
table = (centres[labels] + 0.6 * numbers.standard_normal((1500, 12))).astype(np.float32)


def write(path, y):
    with h5py.File(path, "w") as file:
        for split, rows in (("train", slice(0, 1200)), ("test", slice(1200, 1500))):
            file[f"{split}/x"], file[f"{split}/y"] = table[rows], y[rows]


write("table.h5", labels)
write("noise.h5", numbers.integers(0, 5, 1500))
write("six.h5", np.where(np.arange(1500) == 7, 5, labels))
DATA = ("--data", "table.h5")
HIDDEN = ("--model", "mlp", "--model-options")

run("train", *HIDDEN, '{"hidden": [32, 32]}', *DATA, "--epochs", "8", "-o", "float.h5")
run("train", *HIDDEN, '{"hidden": [96, 96]}', *DATA, "--epochs", "8", "-o", "large.h5")
run("train", *HIDDEN, '{"hidden": [32, 32]}', "--data", "six.h5", "--epochs", "1", "-o", "six_classes.h5")
calibrated = run("calibrate", "float.h5", *DATA, "--preset", "w2a2", "-o", "ptq.h5")
assert "of 512 training samples right" in calibrated.stdout and "chance" not in calibrated.stderr, calibrated

# By itself: the network has learnt its training images, and they stay the same.
QAT = ("qat", "ptq.h5", *DATA, "--epochs", "2")
report = run(*QAT, "-o", "qat.h5").stdout
assert "towards the float network (kl, temperature 2), a share of 1" in report, report
report = run(*QAT, "--teacher", "none", "-o", "plain.h5").stdout
assert "towards" not in report, report
report = run(*QAT, "--label-smoothing", "0.1", "-o", "smooth.h5").stdout
assert "towards" not in report, report
run("calibrate", "float.h5", "--data", "noise.h5", "--preset", "w2a2", "-o", "noise_ptq.h5")
report = run("qat", "noise_ptq.h5", "--data", "noise.h5", "--epochs", "1", "-o", "noise_qat.h5").stdout
assert "towards" not in report, report  # labels that the network does not know

# A larger network, half of the loss.
report = run(*QAT, "--teacher", "large.h5", "--set", "distillation.temperature=3", "--set", "distillation.weight=0.5", "-o", "large_qat.h5").stdout
assert "towards the teacher (kl, temperature 3), a share of 0.5" in report, report
assert result("evaluate", "large_qat.h5", *DATA)["accuracy"] > 95
report = run("train", *HIDDEN, '{"hidden": [16]}', *DATA, "--epochs", "4", "--teacher", "large.h5", "-o", "student.h5").stdout
assert result("evaluate", "student.h5", *DATA)["accuracy"] > 90, report

# A resumed run has equal bits. The evaluated model is the trained one: validation begins before the first step.
PARTS = ("--schedule", "constant", "--lr", "0.001")
run("qat", "ptq.h5", *DATA, "--epochs", "2", *PARTS, "-o", "whole.h5")
run("qat", "ptq.h5", *DATA, "--epochs", "1", *PARTS, "-o", "parts.h5")
run("qat", "ptq.h5", *DATA, "--epochs", "2", *PARTS, "-o", "parts.h5", "--resume")
with h5py.File("whole.h5") as whole, h5py.File("parts.h5") as parts:
    for name in whole["parameters"]:
        assert np.array_equal(whole["parameters"][name], parts["parameters"][name]), name
fails(2, "--distill is kl there, none here", "qat", "ptq.h5", *DATA, "--epochs", "3", *PARTS,
      "--teacher", "none", "-o", "parts.h5", "--resume")

# A learning rate that destroys the network is reported, and the best model is the initial one.
run("calibrate", "float.h5", *DATA, "--preset", "int8", "-o", "int8.h5")
lost = run("qat", "int8.h5", *DATA, "--epochs", "1", "--lr", "3", "--teacher", "none", "--val-fraction", "0.1", "-o", "lost.h5")
assert "no epoch was better in validation than the start of the run" in lost.stderr, lost.stderr
assert "of 512 training samples" in lost.stderr and "before it" in lost.stderr, lost.stderr
assert result("evaluate", "lost.best.h5", *DATA)["accuracy"] == result("evaluate", "int8.h5", *DATA)["accuracy"]

# Near chance after calibration.
near = run("calibrate", "float.h5", *DATA, "--preset", "w2a2", "--method", "max", "--weight-method", "max", "--edge-bits", "0", "-o",
           "near.h5")
found = result("evaluate", "near.h5", *DATA)["accuracy"]
assert ("and chance is" in near.stderr) == (found < 40), (found, near.stderr)
with h5py.File("bare.h5", "w") as file:  # calibration does not require labels
    file["train/x"] = table[:1200]
assert "training samples right" not in run("calibrate", "float.h5", "--data", "bare.h5", "--preset", "int8", "-o", "bare_ptq.h5").stdout

fails(2, "--teacher six_classes.h5 gives [6] for a sample, the network [5]", *QAT, "--teacher", "six_classes.h5", "-o", "no.h5")
fails(2, "nowhere.h5", *QAT, "--teacher", "nowhere.h5", "-o", "no.h5")
fails(2, "--distill", *QAT, "--teacher", "large.h5", "--distill", "kll", "-o", "no.h5")
fails(2, "--set distillation.temperature", *QAT, "--teacher", "large.h5", "--set", "distillation.temperature=0", "-o", "no.h5")
fails(2, "--set distillation.temperature is for a --teacher", *QAT, "--teacher", "none", "--set", "distillation.temperature=2", "-o", "no.h5")
fails(2, "longer than the run of 36 steps", *QAT, "--set", "freeze_bn_after=1000", "-o", "no.h5")
fails(2, "--set schedule.warm_up", *QAT, "--set", "schedule.warm_up=1000", "-o", "no.h5")
print("distillation: ok")
