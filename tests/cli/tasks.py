"""Losses and metrics on the command line: numbers, several labels, yes and no, classes of pixels; from training to an
exported network, and rejected input."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import events, fails, result, run  # noqa: E402

draw = np.random.default_rng(0)
W = draw.normal(size=(10, 3))


def data(name, make):
    with h5py.File(name, "w") as file:
        for group, count in (("train", 1024), ("test", 256)):
            file[group + "/x"], file[group + "/y"] = make(count)
    return ["--data", name]


def rows(count):
    return draw.normal(size=(count, 10)).astype("f4")


def numbers(count):
    x = rows(count)
    return x, np.tanh(x @ W) + x[:, :3]


def several(count):
    x = rows(count)
    return x, (x @ W > 1).astype("u1")


def yes(count):
    x = rows(count)
    return x, (x @ W)[:, 0] > 0.5


def pixels(count):
    x = draw.normal(size=(count, 1, 8, 8)).astype("f4")
    y = (x[:, 0] > 0).astype("u1")
    y[:, 0, 0] = 255  # nobody knows
    return x, y


def model(name, nodes):
    with open(name, "w") as file:
        json.dump({"nodes": nodes}, file)
    return ["--model", name]


MLP = model("mlp.json", [{"name": "first", "type": "linear", "options": {"out_features": 32}},
                         {"name": "relu", "type": "relu"},
                         {"name": "score", "type": "linear", "options": {"out_features": "classes"}}])
CONV = model("conv.json", [{"name": "first", "type": "conv2d",
                            "options": {"out_channels": 8, "kernel": 3, "padding": 1}},
                           {"name": "relu", "type": "relu"},
                           {"name": "map", "type": "conv2d", "options": {"out_channels": "classes", "kernel": 1}}])
REAL, SEVERAL, YES = data("real.h5", numbers), data("several.h5", several), data("yes.h5", yes)
PIXELS = data("pixels.h5", pixels)
SHORT = ["--epochs", "6", "--batch", "32", "--val-fraction", "0.1"]

# Numbers: the best epoch has the smallest rmse; qat and export use the task of the checkpoint.
report = events("train", *MLP, *REAL, "--loss", "huber,delta=2", *SHORT, "-o", "real.ck")
epochs = [event for event in report if event["event"] == "epoch"]
assert all({"val_loss", "val_rmse", "val_mae", "val_r2"} <= set(event) for event in epochs), epochs
assert not any("accuracy" in key for event in report for key in event), report
best = min(epochs, key=lambda event: event["val_rmse"])
assert report[-1]["best_epoch"] == best["epoch"] and report[-1]["best_score"] == -best["val_rmse"], report[-1]
found = result("evaluate", "real.ck", *REAL)
assert found["metrics"]["r2"] > 0.8 and set(found["metrics"]) == {"rmse", "mae", "r2"} and "classes" not in found, found
quantized = events("qat", "real.ck", *REAL, "--preset", "int8", *SHORT, "-o", "real8.ck")[-1]
assert "val_r2" in quantized and result("evaluate", "real8.ck", *REAL)["metrics"]["r2"] > 0.8, quantized
assert "loss" in run("fold", "real.ck", *REAL, "-o", "folded.ck").stdout
run("predict", "real8.ck", *REAL, "-o", "real.predictions.h5")
with h5py.File("real.predictions.h5") as file, h5py.File("real.h5") as truth:
    y, t = file["logits"][:].astype("f8"), truth["test/y"][:].astype("f4").astype("f8")
rmse = float(np.sqrt(np.mean((y - t) ** 2)))
assert abs(rmse - result("evaluate", "real8.ck", *REAL)["metrics"]["rmse"]) < 1e-9, rmse
run("export", "real8.ck", "-o", "real.onnx", "--format", "onnx")

# Other metrics may be requested; the loss stays that of the checkpoint.
assert set(result("evaluate", "real.ck", *REAL, "--metrics", "mae")["metrics"]) == {"mae"}

# Several labels; yes and no by one output; weights of classes.
run("train", *MLP, *SEVERAL, "--loss", "bce", *SHORT, "-o", "several.ck")
assert result("evaluate", "several.ck", *SEVERAL)["metrics"]["f1"] > 0.8
run("train", *MLP, *YES, "--loss", "bce,positive=2", *SHORT, "-o", "yes.ck")
assert result("evaluate", "yes.ck", *YES)["metrics"]["auc"] > 0.9
run("train", *MLP, *YES, "--loss", "focal,gamma=1", *SHORT, "-o", "focal.ck")
assert result("evaluate", "focal.ck", *YES)["metrics"]["auc"] > 0.9
run("train", *MLP, *YES, "--loss", "cross_entropy,weights=balanced", "--metrics", "f1,auc", *SHORT, "-o", "two.ck")
found = result("evaluate", "two.ck", *YES)
assert found["accuracy"] > 80 and found["metrics"]["auc"] > 0.9, found
f1 = np.mean([entry["f1"] for entry in found["classes"]])
assert abs(f1 - found["metrics"]["f1"]) < 1e-12, found

# Classes of pixels, one of which is ignored.
run("train", *CONV, *PIXELS, "--loss", "cross_entropy,ignore=255", *SHORT, "-o", "pixels.ck")
found = result("evaluate", "pixels.ck", *PIXELS)
assert found["metrics"]["iou"] > 0.8, found
run("qat", "pixels.ck", *PIXELS, "--preset", "int8", *SHORT, "-o", "pixels8.ck")
assert result("evaluate", "pixels8.ck", *PIXELS)["metrics"]["iou"] > 0.8

# A run resumes only with its own task.
more = ["--epochs", "7", *SHORT[2:], "--resume"]
run("train", *MLP, *SEVERAL, "--loss", "bce", *more, "-o", "several.ck")
fails(2, "its task differs", "train", *MLP, *SEVERAL, "--loss", "mse", *more, "-o", "several.ck")

# Combinations that do not fit are rejected before training.
out = ["-o", "no.ck", "--epochs", "1"]
fails(2, ["is f64", "such as mse"], "train", *MLP, *REAL, *out)
fails(2, "did you mean 'mse'", "train", *MLP, *REAL, "--loss", "msa", *out)
fails(2, "did you mean 'gamma'", "train", *MLP, *YES, "--loss", "focal,gama=1", *out)
fails(2, "huber has no 'gamma'", "train", *MLP, *YES, "--loss", "huber,gamma=1", *out)
fails(2, "use a number", "train", *MLP, *YES, "--loss", "huber,delta=x", *out)
fails(2, "use a whole number", "train", *MLP, *YES, "--loss", "cross_entropy,ignore=0.5", *out)
fails(2, "there is no metric 'f3'", "train", *MLP, *YES, "--metrics", "f3", *out)
fails(2, "class weights are f64 [3]", "train", *MLP, *YES, "--loss", "cross_entropy,weights=1:2:3", *out)
fails(2, "--label-smoothing", "train", *MLP, *REAL, "--loss", "mse", "--label-smoothing", "0.1", *out)
fails(2, "out_channels", "train", *MLP, *PIXELS, "--loss", "mse", *out)
fails(2, ["gives [3]", "huber"], "evaluate", "real.ck", *YES)

# A network of one output and labels of two classes, as an imported one may have: the loss is named, and taken.
run("train", *MLP, *YES, "--loss", "bce", *SHORT, "-o", "one.ck")
for command in (["evaluate", "one.ck"], ["qat", "one.ck", "--preset", "int8", *out]):
    fails(2, ["has one output", "Use --loss bce"], *command, *YES, "--loss", "cross_entropy")
wanted = result("evaluate", "one.ck", *YES)
assert result("evaluate", "one.ck", *YES, "--loss", "bce,positive=3")["loss"] > wanted["loss"]
fails(2, "not a classifier", "sensitivity", "real8.ck", *REAL)
print("tasks: ok")
