"""Messages about files that are not data sets or do not fit the network: kind of the file, expected kind, and a remedy.
Commands that do not use labels do not require them."""

import gzip
import os
import pickle
import re
import sys
import zipfile

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SOURCE, TINY, fails, result, run  # noqa: E402

RANDOM = np.random.default_rng(0)


def written(name, contents=b""):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as file:
        file.write(contents)
    return name


def data(name, x, y=None, attributes=None, groups=("train", "test")):
    with h5py.File(name, "w") as file:
        for group in groups:
            file[f"{group}/x"] = x
            file[f"{group}/x"].attrs.update(attributes or {})
            if y is not None:
                file[f"{group}/y"] = y
    return name


def floats(*shape, low=0.0, high=1.0):
    return RANDOM.uniform(low, high, (96, *shape)).astype(np.float32)


def train(file, *more):
    return ["train", *TINY, "--data", file, "--epochs", "1", "--batch", "32", "-o", "out.h5", *more]


# Files of other kinds are named, and the way from them.
np.save("x.npy", floats(1, 8, 8))
np.savez("x.npz", x=floats(1, 8, 8))
with zipfile.ZipFile("x.zip", "w") as archive:
    archive.writestr("a", "a")
with open("x.pkl", "wb") as file:
    pickle.dump([1], file)
for i in range(3):
    written(f"pictures/cat/{i}.png", b"\x89PNG\r\n\x1a\n....")
written("pictures/readme.txt", b"hello")
os.makedirs("nothing")
kinds = {
    "x.npy": "a NumPy array", "x.npz": "an archive of NumPy arrays", "x.zip": "a zip archive", "x.pkl": "a Python pickle",
    "pictures": "a directory of 3 .png files", "pictures/cat/0.png": "a PNG image", "nothing": "a directory",
    written("x.csv", b"1,2,3\n"): "a text file", written("x.jpg", b"\xff\xd8\xff\xe0...."): "a JPEG image",
    written("x.gz", gzip.compress(b"1,2")): "a gzip archive", written("x.onnx", b"\x08\x07\x12\x00"): "an ONNX model",
    written("train-images", b"\0\0\x08\x03\0\0\0\1"): "an IDX file of images",
}
for name, kind in kinds.items():
    for command in (train(name),) if name == "x.onnx" else (train(name), ["inspect", name]):
        line = fails(2, [name, kind, "groups", "docs/formats.md"], *command)
        assert os.path.isdir(name) or "is not an HDF5 file but" in line, line
fails(2, "x.onnx", "inspect", "x.onnx")  # a model, to be shown as one
# .. by the name of the command that goes it.
os.makedirs("reviews/good")
written("reviews/good/1.txt", b"fine")
for name, way in (("x.npy", "from-npy"), ("x.npz", "from-npy"), ("pictures", "from-images"), ("nothing", "from-images"), ("x.csv", "from-csv"),
                  (written("x.tsv.gz", gzip.compress(b"1\t2")), "from-csv"), ("train-images", "from-idx"), ("reviews", "from-text"),
                  (written("t10k-labels-idx1-ubyte.gz", gzip.compress(b"\0")), "from-idx"), (written("x.txt", b"words\n"), "from-text")):
    for command in (train(name), ["inspect", name], ["dataset", "check", name]):
        fails(2, f"fakequant dataset {way} {name} -o data.h5 makes a data set", *command)
fails(2, "fakequant dataset from-parquet x.parquet -o data.h5 makes a data set of it", "inspect", written("x.parquet", b"PAR1...."))
for name in ("x.zip", "x.pkl", "x.onnx", "x.jpg"):
    assert "makes a data set" not in fails(2, name, "inspect", name)
fails(2, "is not an HDF5 file: a data set is", "inspect", written("noise", b"\x01\x02\x03\x04"))
fails(2, "is not an HDF5 file: a data set is", "inspect", written("empty"))
# .. and the lines of Python that docs/formats.md shows make one.
with open(os.path.join(SOURCE, "docs", "formats.md"), encoding="utf-8") as page:
    snippet = re.search(r"^```python\n(.*?)^```", page.read(), re.M | re.S)[1]
names = {f"{split}_{key}": value for split in ("train", "test")
         for key, value in (("x", RANDOM.integers(0, 256, (40, 8, 9, 3), np.uint8)), ("y", np.arange(40) % 2))}
exec(snippet, {"h5py": h5py, **names})
done = run("inspect", "data.h5")
assert "test   40 samples of [3, 8, 9], 2 classes: cat, dog" in done.stdout and not done.stderr, done

run("train", *TINY, "--data", DIGITS, "--epochs", "1", "--batch", "64", "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "-o", "int8.h5")
for name, kind in {"x.npy": "a NumPy array", DIGITS: "an HDF5 file", "x.onnx": "fakequant import x.onnx"}.items():
    fails(2, kind, "evaluate", name, "--data", DIGITS)

# Shapes are checked before labels; the message has both shapes and the remedy for a wrong axis order.
commands = [["evaluate", "int8.h5"], ["predict", "int8.h5", "-o", "p.h5"], ["calibrate", "float.h5", "-o", "c.h5"],
            ["qat", "int8.h5", "-o", "q.h5"], ["sensitivity", "int8.h5"], ["fold", "float.h5", "-o", "f.h5"],
            ["export", "int8.h5", "-o", "e"], ["inspect", "--calibration", "int8.h5"], ["train", "--checkpoint", "float.h5",
                                                                                        "-o", "t.h5"]]
wrong = {(9, 9): "another network", (8, 8, 1): "x.transpose(0, 3, 1, 2)", (8, 8): "x.reshape(-1, 1, 8, 8)",
         (64,): "x.reshape(-1, 1, 8, 8)", (3, 8, 8): "another network"}
for shape, way in wrong.items():
    file = data("wrong.h5", floats(*shape), np.full(96, 77))
    for command in commands:
        fails(2, [f"samples of [{', '.join(map(str, shape))}]", "takes [1, 8, 8]", way], *command, "--data", file)

# Images with their channels at the end, where no network says otherwise.
for shape in ((8, 8, 1), (8, 8, 3), (32, 24, 3), (16, 16, 4), (5, 5, 3)):
    file = data("last.h5", floats(*shape), np.arange(96) % 10)
    fails(2, ["channels", "x.transpose(0, 3, 1, 2)", "NCHW"], *train(file))
    done = run("inspect", file)
    assert f"samples of [{', '.join(map(str, shape))}]" in done.stdout and "x.transpose(0, 3, 1, 2)" in done.stderr, done
for shape in ((8, 8, 3), (12, 6, 1)):
    file = data("meant.h5", floats(*shape), np.arange(96) % 10, {"axes": "NCHW"})
    assert not run("train", "--model", "mlp", "--data", file, "--epochs", "1", "--batch", "32", "-o", "meant_net.h5").stderr
    assert not run("evaluate", "meant_net.h5", "--data", data("same.h5", floats(*shape), np.arange(96) % 10)).stderr
assert "x.transpose(0, 3, 1, 2)" in run("inspect", data("doubt.h5", floats(40, 24, 1), np.arange(96) % 10)).stderr
for shape in ((3, 8, 8), (1, 8, 8), (4, 1, 8), (3, 3, 3), (64, 3), (8, 8), (1, 8, 1), (16, 16, 2), (64, 1, 1)):
    assert not run("inspect", data("first.h5", floats(*shape), np.arange(96) % 10)).stderr, shape

# Pixels from 0 to 255 that nothing scales.
pixels = {"u8": RANDOM.integers(0, 256, (96, 1, 8, 8)).astype(np.uint8), "f32": floats(1, 8, 8, high=255),
          "f64": np.floor(floats(1, 8, 8, high=256)).astype(np.float64), "f16": floats(1, 8, 8, high=255).astype(np.float16)}
for kind, x in pixels.items():
    done = run(*train(data("pixels.h5", x, np.arange(96) % 10)))
    assert f"is {kind} of values up to 255" in done.stderr and '"scale"] = 1 / 255' in done.stderr, done
    for attributes in ({"scale": 1.0}, {"scale": 1 / 255}, {"mean": 127.0, "std": 64.0}):
        assert not run("inspect", data("scaled.h5", x, np.arange(96) % 10, attributes)).stderr, attributes
for x in (floats(1, 8, 8), floats(1, 8, 8, low=-200, high=200), floats(1, 8, 8, high=1000), floats(1, 8, 8, high=20),
          RANDOM.integers(0, 17, (96, 1, 8, 8)).astype(np.uint8), RANDOM.integers(0, 200, (96, 8)).astype(np.int64)):
    assert not run("inspect", data("other.h5", x, np.arange(96) % 10)).stderr

# Commands that do not use labels accept data without them.
bare = data("bare.h5", floats(1, 8, 8))
assert result("inspect", data("only.h5", floats(1, 8, 8), groups=["fold1"]))["groups"]["fold1"]["samples"] == 96
assert "labels f32 [96, 2]" in run("inspect", data("real.h5", floats(1, 8, 8), floats(2))).stdout
assert "no labels" in run("inspect", bare).stdout
for algorithm in ("smoothquant", "gptq", "adaround", "bias_correction"):
    run("calibrate", "float.h5", "--data", bare, "--algorithm", algorithm, "-o", "bare_int8.h5")
run("calibrate", "float.h5", "--data", bare, "-o", "bare_int8.h5", "--errors")
run("calibrate", "float.h5", "--data", bare, "-o", "second.h5", "--method", "one_pass", "--state", "bare.state.h5")
run("predict", "bare_int8.h5", "--data", bare, "-o", "p.h5", "--codes")
run("export", "bare_int8.h5", "--data", bare, "-o", "bare/")
run("inspect", "--calibration", "bare_int8.h5", "--data", bare)
found = result("sensitivity", "bare_int8.h5", "--data", bare)
assert found["float"]["count"] == 0 and all(layer["divergence"] >= 0 for layer in found["layers"])
assert "without labels" in run("sensitivity", "bare_int8.h5", "--data", bare, "--score", "divergence").stdout
run("sensitivity", "float.h5", "--data", bare, "--effective-bits", "6", "--plan", "plan.json")
fails(2, ["--score loss", "labels", "--score divergence"], "sensitivity", "bare_int8.h5", "--data", bare, "--score", "loss")
fails(2, "labels", "sensitivity", "float.h5", "--data", bare, "--accuracy-budget", "1")
for command in (["evaluate", "int8.h5"], ["qat", "int8.h5", "-o", "q.h5"], ["train", *TINY, "-o", "t.h5"]):
    fails(2, "/y is missing", *command, "--data", bare)
# Labels of another task do not matter there either.
run("calibrate", "float.h5", "--data", data("far.h5", floats(1, 8, 8), np.full(96, 77)), "-o", "far_int8.h5")

# Defaults are reported.
assert "preset int8 (the default; --preset selects another), target ort, scale free" in run(
    "calibrate", "float.h5", "--data", DIGITS, "-o", "d.h5").stdout
done = run("calibrate", "float.h5", "--data", DIGITS, "-o", "d.h5", "--preset", "w4a8", "--scale", "pow2").stdout
assert "preset w4a8, target ort, scale pow2" in done and "default" not in done, done
assert result("calibrate", "float.h5", "--data", DIGITS, "-o", "d.h5")["preset"] == "int8"
assert result("inspect", "float.h5")["memory"]["optimizer"] == "adamw"
run(*train(DIGITS, "--optimizer", "sgd"))
assert "sgd with momentum:" in run("inspect", "out.h5").stdout
plain, momentum = train(DIGITS, "--optimizer", "sgd", "--set", "optimizer.momentum=0"), result("inspect", "out.h5")["memory"]
run(*plain)
none = result("inspect", "out.h5")["memory"]
assert none["optimizer"] == "sgd" and none["optimizer_state"] == 0 < momentum["optimizer_state"]

# Networks for images, and signals.
signals = data("signals.h5", floats(3, 64), np.arange(96) % 10)
for model in ("cnn", "resnet20"):
    fails(2, ["conv1d", "[N, 1, H, W]"], "train", "--model", model, "--data", signals, "-o", "out2.h5")
print("data words: ok")
