"""A checkpoint that format version 1 wrote (int8, ranges in motion) evaluates to the same logits, bit for bit, and trains
on. tests/data keeps one of each format version, and a quantized network whose LSTM is in floats, from before there were
quantizers for it: it stays so."""

import hashlib
import os
import sys

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SOURCE, result, run  # noqa: E402

OLD = os.path.join(SOURCE, "tests", "data", "checkpoint_v1.h5")
LOGITS = "2ef6da56edfe1b6a19b432ca0e971bdc2d78f11eddf0cb9846dca9c7e8fd44d1"

run("predict", OLD, "--data", DIGITS, "-o", "logits.h5")
with h5py.File("logits.h5") as file:
    logits = file["logits"][()]
assert logits.shape == (360, 10)
assert hashlib.sha256(logits.tobytes()).hexdigest() == LOGITS, logits[0]

run("qat", OLD, "--data", DIGITS, "-o", "more.h5", "--epochs", "1", "--optimizer", "sgd", "--lr", "0.01")
assert result("evaluate", "more.h5", "--data", DIGITS)["accuracy"] > 50
FLOAT_LSTM = os.path.join(SOURCE, "tests", "data", "float_lstm.h5")
assert abs(result("evaluate", FLOAT_LSTM, "--data", DIGITS)["accuracy"] - 80.0) < 0.3
run("qat", FLOAT_LSTM, "--data", DIGITS, "-o", "lstm.h5", "--epochs", "1", "--lr", "0.0005")
with h5py.File("lstm.h5") as file:
    assert {name.split(".")[0] for name in file["quantizers"]} <= {"out"}, list(file["quantizers"])
assert result("evaluate", "lstm.h5", "--data", DIGITS)["accuracy"] > 75
print("old checkpoint: ok")
