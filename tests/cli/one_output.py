"""A network of one output has nothing to learn by cross entropy: it is refused, not trained to 100 %."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import TINY, fails, run  # noqa: E402


def data(name, labels, **attributes):
    with h5py.File(name, "w") as file:
        file.attrs.update(attributes)
        for group in ("train", "test"):
            file[group + "/x"] = np.random.default_rng(0).random((128, 1, 8, 8), np.float32)
            file[group + "/y"] = labels
    return name


def model(outputs):
    with open("model.json", "w") as file:
        json.dump({"nodes": [{"name": "flatten", "type": "flatten"},
                             {"name": "score", "type": "linear", "options": {"out_features": outputs}}]}, file)
    return ["--model", "model.json"]


same, two = data("same.h5", np.zeros(128, int)), data("two.h5", np.arange(128) % 2)
rest = ["--epochs", "1", "-o", "out.h5"]
for network in (TINY, model(1), model("classes")):
    fails(2, ["one output", "two outputs", "--data", "classes", "--loss"], "train", *network, "--data", same, *rest)
fails(2, "score", "train", *model(1), "--data", same, *rest)
fails(2, ["[1]", "2 classes"], "train", *model(1), "--data", two, *rest)

# Labels of one class for several outputs can be meant: a warning.
done = run("train", *TINY, "--data", data("stated.h5", np.full(128, 1), classes=2), *rest)
assert "all 128 labels" in done.stderr and done.stderr.count("\n") == 1, done.stderr
assert run("train", *TINY, "--data", two, *rest).stderr == ""
print("one output: ok")
