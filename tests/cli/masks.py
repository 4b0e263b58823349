"""--mask: padding of sequences does not enter the ranges of calibrate and of qat with running ranges."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, run  # noqa: E402

SAMPLES, LENGTH, WIDTH = 128, 6, 4
random = np.random.default_rng(0)
lengths = random.integers(1, LENGTH + 1, SAMPLES)
seen = (np.arange(LENGTH) < lengths[:, None]).astype("f4")


def data(name, padding):
    """Rows of values [LENGTH, WIDTH] and of the mask, side by side; the padding has any values."""
    x = random.normal(size=(SAMPLES, LENGTH, WIDTH)).astype("f4")
    labels = (x[:, 0, 0] > 0).astype(int)
    x[seen == 0] = padding
    with h5py.File(name, "w") as file:
        for group in ("train", "test"):
            file[group + "/x"] = np.concatenate([x.reshape(SAMPLES, -1), seen], 1)
            file[group + "/y"] = labels
    return ["--data", name]


def node(kind, called, inputs=None, **options):
    return {"type": kind, "name": called, "options": options} | ({"inputs": inputs} if inputs else {})


with open("net.json", "w") as file:
    json.dump({"nodes": [
        node("input_part", "values", ["input"], begin=0, shape=[LENGTH, WIDTH], name="values"),
        node("input_part", "mask", ["input"], begin=LENGTH * WIDTH, shape=[LENGTH], name="mask"),
        node("linear", "up", ["values"], out_features=8), node("relu", "act", ["up"]), node("linear", "down", ["act"], out_features=8),
        node("reshape", "column", ["mask"], shape=[LENGTH, 1]), node("multiply", "kept", ["down", "column"]),
        node("mean", "pooled", ["kept"], axes=[1]), node("linear", "head", ["pooled"], out_features="classes")]}, file)


def ranges(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if name.endswith("input_quantizer/amax") else None)
    assert found, path
    return found


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


state = random.bit_generator.state
small = data("small.h5", 0.0)
random.bit_generator.state = state
large = data("large.h5", 50.0)
run("train", "--model", "net.json", *small, "--epochs", "1", "--batch", "32", "-o", "float.h5")
mask = ["--mask", "mask"]
for method in ("max", "entropy", "one_pass_mse"):
    base = ["calibrate", "float.h5", "--preset", "int8", "--method", method]
    run(*base, *large, "-o", "padded.h5")
    run(*base, *large, *mask, "-o", "masked.h5")
    run(*base, *small, *mask, "-o", "wanted.h5")
    name = next(name for name in ranges("masked.h5") if "up." in name)
    assert ranges("padded.h5")[name] > 8 > ranges("masked.h5")[name], (method, ranges("masked.h5"))
    assert same(ranges("masked.h5"), ranges("wanted.h5")), method

set_mask = ["--set", "mask=mask"]
training = ["--epochs", "1", "--batch", "32", "--amax", "running"]
run("qat", "masked.h5", *large, *training, "-o", "followed.h5")
run("qat", "masked.h5", *large, *training, *set_mask, "-o", "running.h5")
run("qat", "wanted.h5", *small, *training, *set_mask, "-o", "trained.h5")
assert ranges("followed.h5")[name] > ranges("running.h5")[name] and same(ranges("running.h5"), ranges("trained.h5"))
run("qat", "float.h5", "--preset", "int8", *large, "--epochs", "1", "--batch", "32", *set_mask, "-o", "qat.h5")
assert ranges("qat.h5")[name] < 8

out = ["-o", "out.h5"]
fails(2, ["--mask", "'mosk'", "values, mask"], "calibrate", "float.h5", *large, "--mask", "mosk", *out)
fails(2, ["--mask", "'values'", "[6, 4]"], "calibrate", "float.h5", *large, "--mask", "values", *out)
fails(2, ["--set mask", "--amax running"], "qat", "masked.h5", *large, "--epochs", "1", *set_mask, *out)
fails(2, ["--mask", "--data"], "calibrate", "float.h5", *mask, "--merge", "x.h5", *out)
run("train", "--model", "mlp", *small, "--epochs", "1", "--batch", "32", "-o", "mlp.h5")
fails(2, ["--mask", "one input"], "calibrate", "mlp.h5", *small, *mask, *out)
