"""Sequences of labels: a network of convolutions and an LSTM that reads rows of digits by --loss ctc, from training to
an exported network, and rejected input."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, fails, result, run  # noqa: E402

MOST, PLACES = 4, 40
draw = np.random.default_rng(1)
with h5py.File(DIGITS) as file:
    digits = {group: (file[group]["x"][:] / 16.0, file[group]["y"][:]) for group in ("train", "test")}


def line(x, y):
    """Two to four digits side by side with gaps between them: an image and its labels, 1 to 10, filled by -1."""
    image, labels, at = np.zeros((1, 8, PLACES), "f4"), np.full(MOST, -1), 0
    for i in range(draw.integers(2, MOST + 1)):
        at += draw.integers(0, 2)
        row = draw.integers(len(x))
        image[:, :, at:at + 8], labels[i], at = x[row], y[row] + 1, at + 8
    return image, labels


def data(name, change=lambda y: y):
    with h5py.File(name, "w") as file:
        for group, count in (("train", 1500), ("test", 200)):
            lines = [line(*digits[group]) for _ in range(count)]
            file[group + "/x"] = np.stack([x for x, _ in lines])
            file[group + "/y"] = change(np.stack([y for _, y in lines]))
    return ["--data", name]


def node(kind, name, **options):
    return {"type": kind, "name": name, "options": options}


with open("crnn.json", "w") as file:
    json.dump([node("conv2d", "conv1", out_channels=16, kernel=3, padding=1, bias=False), node("batch_norm", "bn1"),
               {"type": "relu"}, node("max_pool", "pool", kernel=2),
               node("conv2d", "conv2", out_channels=32, kernel=3, padding=1, bias=False), node("batch_norm", "bn2"),
               {"type": "relu"}, node("transpose", "places", axes=[0, 3, 1, 2]), node("flatten", "rows", start_axis=2),
               node("lstm", "lstm", hidden_size=32, bidirectional=True),
               node("linear", "scores", out_features="classes"), node("transpose", "out", axes=[0, 2, 1])], file)
MODEL, FIRST = ["--model", "crnn.json"], data("lines.h5")
run("train", *MODEL, *FIRST, "--loss", "ctc", "--epochs", "15", "--batch", "32", "--lr", "0.01", "--val-fraction", "0.1",
    "--seed", "1", "-o", "crnn.ck")
found = result("evaluate", "crnn.ck", *FIRST)
assert set(found["metrics"]) == {"ler", "exact"} and found["metrics"]["ler"] < 0.15, found
run("qat", "crnn.ck", *FIRST, "--preset", "int8", "--epochs", "1", "--batch", "32", "-o", "crnn8.ck")
quantized = result("evaluate", "crnn8.ck", *FIRST)["metrics"]
assert quantized["ler"] < 0.15, quantized
run("export", "crnn8.ck", "--format", "onnx", "-o", "crnn8.onnx")

# Predictions match the counts of evaluate.
run("predict", "crnn8.ck", *FIRST, "-o", "read.h5")
with h5py.File("read.h5") as file, h5py.File("lines.h5") as truth:
    read, wanted = file["sequences"][:], truth["test/y"][:]
assert read.shape == (200, PLACES // 2) and read.dtype == np.int64
exact = np.mean([[c for c in a if c >= 0] == [c for c in b if c >= 0] for a, b in zip(read, wanted)])
assert abs(exact - quantized["exact"]) < 1e-12, (exact, quantized)

# The blank is the last class, labels are bytes padded by 255.
last = data("last.h5", lambda y: np.where(y < 0, 255, y - 1).astype("u1"))
run("train", *MODEL, *last, "--loss", "ctc,blank=10,ignore=255", "--epochs", "1", "--batch", "32", "-o", "last.ck")
assert set(result("evaluate", "last.ck", *last)["metrics"]) == {"ler10", "exact10"}
assert set(result("evaluate", "last.ck", *last, "--metrics", "exact")["metrics"]) == {"exact10"}

# Data that does not fit is rejected before training.
out = ["--epochs", "1", "-o", "no.ck"]
fails(2, "after padding", "train", *MODEL, *data("holes.h5", lambda y: y[:, ::-1].copy()), "--loss", "ctc", *out)
fails(2, "--label-smoothing", "train", *MODEL, *FIRST, "--loss", "ctc", "--label-smoothing", "0.1", *out)
fails(2, "did you mean 'blank'", "train", *MODEL, *FIRST, "--loss", "ctc,blanc=1", *out)
many = data("many.h5", lambda y: np.tile(np.where(y < 0, 1, y), (1, 6)))
assert "of the batch require" in run("train", *MODEL, *many, "--loss", "ctc", *out, status=2).stderr
print("sequences: ok")
