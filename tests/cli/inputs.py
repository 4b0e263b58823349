"""A checkpoint records its inputs: data with other columns is rejected, another scale is reported. Old files record nothing.
The last partial batch of an epoch is also tested here."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, result, run  # noqa: E402
from forge import StateFile  # noqa: E402

SMALL = ["--model", "mlp", "--model-options", '{"hidden": [8]}']
random = np.random.default_rng(0)
labels = random.integers(0, 3, 150)
table = random.normal(size=(150, 3)) + labels[:, None] * [2, -2, 0]


def written(name, columns, rows=150):
    with open(name + ".csv", "w", encoding="utf-8") as file:
        file.write(",".join([*columns, "kind"]) + "\n")
        for row, label in zip(table[:rows], labels):
            file.write(",".join([f"{row['abc'.index(c)]:.4f}" for c in columns] + ["uvw"[label]]) + "\n")
    run("dataset", "from-csv", name + ".csv", "--label", "kind", "-o", name + ".h5")
    return name + ".h5"


data, turned = written("table", "abc"), written("turned", "cba")
run("train", *SMALL, "--data", data, "--epochs", "3", "--batch", "32", "-o", "float.h5")
run("calibrate", "float.h5", "--data", data, "-o", "int8.h5")
for line in (["evaluate", "float.h5"], ["predict", "float.h5", "-o", "out.h5"], ["calibrate", "float.h5", "-o", "out.h5"],
             ["qat", "int8.h5", "--epochs", "1", "-o", "out.h5"], ["qat", "float.h5", "--preset", "int8", "--epochs", "1", "-o", "out.h5"],
             ["sensitivity", "int8.h5"], ["train", "--checkpoint", "float.h5", "--epochs", "1", "-o", "out.h5"],
             ["evaluate", "int8.h5"], ["fold", "float.h5", "-o", "out.h5"]):
    fails(2, ["column 0 of the data is 'c'", "'a'", "--like"], *line, "--data", turned)
assert not run("evaluate", "int8.h5", "--data", data).stderr

# A checkpoint of an older version has no record of inputs and is accepted.
old = StateFile("float.h5")
identity = old.attributes["model"]
assert identity["inputs"]["columns"] == ["a", "b", "c"] and len(identity["inputs"]["mean"]) == 3, identity["inputs"]
del identity["inputs"]
old.save("old.h5")
assert not run("evaluate", "old.h5", "--data", turned).stderr

for wrong in (3, ["a"], {"columns": 3}, {"scale": "x"}, {"mean": [None]}):
    identity["inputs"] = wrong
    old.save("wrong.h5")
    fails(2, ["wrong.h5"], "evaluate", "wrong.h5", "--data", data)

# Pixels of another scale or mean are reported in one line. Values without a recorded scale may already be scaled.
pixels = random.integers(0, 16, (64, 1, 8, 8)).astype(np.uint8)
kinds = random.integers(0, 2, 64)


def images(name, x=pixels, **attributes):
    with h5py.File(name, "w") as file:
        for group in ("train", "test"):
            file[group + "/x"], file[group + "/y"] = x, kinds
            file[group + "/x"].attrs.update(attributes)
    return name


sixteenth = images("sixteenth.h5", scale=1 / 16)
run("train", *SMALL, "--data", sixteenth, "--epochs", "1", "--batch", "32", "-o", "images.h5")
for other, words in ((images("byte.h5", scale=1 / 255), ["scale of 0.00392157", "0.0625"]),
                     (images("mean.h5", scale=1 / 16, mean=0.5, std=1), ["mean of 0.5", "trained with 0"])):
    done = run("evaluate", "images.h5", "--data", other).stderr
    assert done.count("\n") == 1 and all(word in done for word in words), done
for fine in (sixteenth, images("float.h5", (pixels / 16).astype(np.float32)), images("near.h5", scale=np.float32(0.0625))):
    assert not run("evaluate", "images.h5", "--data", fine).stderr, fine
run("train", *SMALL, "--data", images("deep.h5", scale=1 / 16, mean=[0.5], std=[0.25]), "--epochs", "1", "--batch", "32", "-o", "deep.h5c")
assert "mean of 0.4" in run("evaluate", "deep.h5c", "--data", images("other.h5", scale=1 / 16, mean=0.4, std=0.25)).stderr
for whatever in (3, [1.5, 2], h5py.Empty("f"), "x", b"a,b", np.array((1, 2.5), dtype=[("a", int), ("b", float)]), ["a"] * 64):
    with h5py.File(images("attribute.h5", scale=1 / 16), "a") as file:
        file.attrs["columns"] = whatever
    run("evaluate", "images.h5", "--data", "attribute.h5")

# The last partial batch of an epoch, and data smaller than a batch.
for flags, steps in (([], 2), (["--set", "loader.drop_last=false"], 3)):
    found = result("train", *SMALL, "--data", data, "--epochs", "1", "--batch", "50", *flags, "-o", "rest.h5")
    assert StateFile("rest.h5").attributes["progress/step"] == steps, (flags, found)
assert all("loader.drop_last=true" in run(command, "--help").stdout for command in ("train", "qat"))
few = written("few", "abc", 12)
done = run("train", *SMALL, "--data", few, "--epochs", "2", "-o", "few_float.h5").stdout
assert done.count("fewer than --batch 64: a batch is all of them") == 1, done
assert StateFile("few_float.h5").attributes["progress/step"] == 2
run("train", *SMALL, "--data", few, "--epochs", "3", "-o", "few_float.h5", "--resume", "--allow-changes")
fails(2, ["--set loader.drop_last"], "train", *SMALL, "--data", data, "--epochs", "2", "--batch", "50", "--resume", "-o", "rest.h5")
print("inputs: ok")
