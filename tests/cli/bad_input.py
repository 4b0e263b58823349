"""Bad input gives an exit status, one line with the allowed values, and no partly written file."""

import json
import os
import shutil
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, TINY, fails, run  # noqa: E402
from forge import crc32c  # noqa: E402


def data(name, x=None, y=None, leave=(), count=96, shape=(1, 8, 8), **attributes):
    with h5py.File(name, "w") as file:
        group = file.create_group("train")
        x = np.random.default_rng(0).random((count, *shape), np.float32) if x is None else x
        y = np.arange(len(x)) % 10 if y is None else y
        for key, values in (("x", x), ("y", y)):
            if key not in leave:
                group[key] = values
        for key, value in attributes.items():
            file.attrs[key] = value
    return name


def train(data_file, *more):
    return ["train", *TINY, "--data", data_file, "--epochs", "1", "-o", "out.h5", *more]


def text(name, contents):
    with open(name, "w") as file:
        file.write(contents if isinstance(contents, str) else json.dumps(contents, indent=1))
    return name


def damaged(name, source, position, change):
    shutil.copy(source, name)
    with open(name, "r+b") as file:
        file.seek(position)
        old = file.read(1)
        file.seek(position)
        file.write(bytes([change(old[0])]))
    return name


# The command line.
fails(2, "no command")
fails(2, ["tarin", "'train'"], "tarin")
for word in ("version", "-v", "-V"):
    assert run(word).stdout == run("--version").stdout
fails(2, ["--epoch", "--epochs"], "train", "--epoch", "3")
fails(2, ["--epochs", "whole number"], "train", *TINY, "--data", DIGITS, "-o", "out.h5", "--epochs", "ten")
fails(2, ["--lr", "'nan'"], *train(DIGITS, "--lr", "nan"))
fails(2, ["--batch", "'0'"], *train(DIGITS, "--batch", "0"))
fails(2, ["--optimizer", "'adam'"], *train(DIGITS, "--optimizer", "adm"))
fails(2, ["--schedule", "'cosine'"], *train(DIGITS, "--schedule", "cosin"))
fails(2, ["shft", "'shift'"], *train(DIGITS, "--augment", "shft=1"))
fails(2, ["--output"], "train", *TINY, "--data", DIGITS)
fails(2, ["--data"], "train", *TINY, "-o", "out.h5")

# Data files.
fails(2, "nowhere.h5", *train("nowhere.h5"))
with open(DIGITS, "rb") as file:
    whole = file.read()
with open("truncated.h5", "wb") as file:
    file.write(whole[: len(whole) // 2])
fails(2, "truncated.h5", *train("truncated.h5"))
fails(2, "text.h5", *train(text("text.h5", "hello\n")))
fails(2, "x", *train(data("no_x.h5", leave=("x",))))
fails(2, "y", *train(data("no_y.h5", leave=("y",))))
fails(2, ["12", "0 to 9"], *train(data("labels.h5", y=np.full(96, 12), classes=10)))
fails(2, "-1", *train(data("negative.h5", y=np.full(96, -1))))
fails(2, "zero", *train(data("empty.h5", count=0)))
fails(2, ["32", "20"], *train(data("few.h5", count=20), "--batch", "64", "--micro-batch", "32"))
for name, value in (("nan.h5", np.nan), ("inf.h5", np.inf)):
    x = np.zeros((96, 1, 8, 8), np.float32)
    x[70, 0, 3, 4] = value
    fails(2, [name, "70"], *train(data(name, x=x)))

# Models.
layer = {"name": "fc", "type": "linear", "options": {"in_features": 65, "out_features": 10}}
flatten = {"name": "flatten", "type": "flatten"}
fails(2, ["65", "64"], "train", "--model", text("fit.json", {"nodes": [flatten, layer]}), "--data", DIGITS, "-o", "out.h5")
fails(2, ["bad1.json:", "linaer", "'linear'"], "train", "--data", DIGITS, "-o", "out.h5", "--model",
      text("bad1.json", {"nodes": [flatten, dict(layer, type="linaer")]}))
fails(2, ["bad2.json:", "in_feature", "'in_features'"], "train", "--data", DIGITS, "-o", "out.h5", "--model",
      text("bad2.json", {"nodes": [flatten, dict(layer, options={"in_feature": 64, "out_features": 10})]}))
fails(2, ["bad3.json:", "nodez", "'nodes'"], "train", "--data", DIGITS, "-o", "out.h5", "--model",
      text("bad3.json", {"nodez": [flatten, layer]}))
fails(2, "bad4.json:2", "train", "--data", DIGITS, "-o", "out.h5", "--model", text("bad4.json", '{"nodes": [\n{,\n'))
fails(2, "cnm", "train", "--data", DIGITS, "-o", "out.h5", "--model", "cnm")
fails(2, ["widhts", "'widths'"], "train", "--data", DIGITS, "-o", "out.h5", "--model", "cnn", "--model-options",
      '{"widhts": [4]}')

fails(2, "'mlp'", "train", "--data", DIGITS, "-o", "out.h5", "--model", "mpl")
fails(2, ["token ids", "from-text"], "train", "--data", DIGITS, "-o", "out.h5", "--model", "gpt")

# Quantization.
run("train", *SHORT, "-o", "float.h5")
calibrate = ["calibrate", "float.h5", "--data", DIGITS, "-o", "out.h5"]
fails(2, ["int9", "'int8'"], *calibrate, "--preset", "int9")
fails(2, ["INT8", "did you mean 'int8'"], *calibrate, "--preset", "INT8")
fails(2, ["svdquant", "not available", "int4_blockwise"], *calibrate, "--preset", "NVFP4_SVDQUANT_DEFAULT_CFG")
fails(2, ["svdquant", "is unsupported"], *calibrate, "--config", text("q0.json", {"preset": "int8", "algorithm": "svdquant"}))
fails(2, ["--algorithm", "gptk", "gptq"], *calibrate, "--algorithm", "gptk")
fails(2, ["q9.json:5", "'dampin'", "'damping'"], *calibrate, "--config",
      text("q9.json", {"preset": "w4a8", "weight_algorithm": {"method": "gptq", "dampin": 1}}))
weights = ["calibrate", "float.h5", "--preset", "w4a8", "--edge-bits", "0", "-o", "out.h5"]
fails(2, ["'weight_algorithm'", "'gptq'"], *calibrate, "--config",
      text("q10.json", {"preset": "w4a8", "weight_algorithm": "gtpq"}))
fails(2, ["'iterations'", "1 to"], *calibrate, "--config",
      text("q11.json", {"preset": "w4a8", "weight_algorithm": {"method": "adaround", "iterations": 1e12}}))
fails(2, "alpha is 2", *calibrate, "--config",
      text("q12.json", {"preset": "int8", "weight_algorithm": {"method": "smoothquant", "alpha": 2}}))
for name in ("gptq", "smoothquant"):
    fails(2, [name, "--data"], *weights, "--data", DIGITS, "--method", "none", "--algorithm", name)
    fails(2, [name, "--state"], *weights, "--data", DIGITS, "--state", "s.h5", "--algorithm", name)
    fails(2, "zero", *weights, "--data", "empty.h5", "--algorithm", name)
    fails(2, ["nan.h5", "70"], *weights, "--data", "nan.h5", "--algorithm", name)
fails(2, ["awq_lite", "--merge"], *weights, "--data", DIGITS, "--merge", "s.h5", "--algorithm", "awq_lite")
fails(2, ["gptq", "--data"], *weights, "--merge", "s.h5", "--algorithm", "gptq")
fails(2, ["adaround", "no layer", "float format"], "calibrate", "float.h5", "--data", DIGITS, "--preset", "fp8", "-o", "out.h5",
      "--algorithm", "adaround")
fails(2, ["q1.json:2", "presett", "'preset'"], *calibrate, "--config", text("q1.json", {"presett": "int8"}))
fails(2, "object", *calibrate, "--config", text("q0.json", [1]), "--target", "ort")
fails(2, "--samples", *calibrate, "--samples", "0")
fails(2, "zero", "calibrate", "float.h5", "--data", "empty.h5", "-o", "out.h5")


def rules(name, pattern, **fields):
    return text(name, {"preset": "int8", "rules": [dict(fields, pattern=pattern)]})


fails(2, "negative", *calibrate, "--config", rules("q2.json", "*input_quantizer", amax=-1.0))
fails(2, ["amax", "3 elements"], *calibrate, "--config", rules("q3.json", "*weight_quantizer", amax=[1.0, 2.0, 3.0]))
fails(2, ["amax", "3 elements"], *calibrate, "--config", rules("q6.json", "*input_quantizer", amax=[1.0, 2.0, 3.0]))
fails(2, ["q2.json:", "negative"], *calibrate, "--config", rules("q2.json", "*input_quantizer", amax=-1.0), "--target", "none")
fails(2, ["q4.json:5", "num_bitz", "'num_bits'"], *calibrate, "--config", rules("q4.json", "*", num_bitz=4))
warned = run(*calibrate, "--config", rules("q5.json", "*conf1*", enable=False)).stderr
assert "*conf1*" in warned and warned.count("\n") == 1 and warned.startswith("fakequant: warning"), warned
run("calibrate", "float.h5", "--data", DIGITS, "--method", "none", "-o", "uncalibrated.h5")
for command in (["evaluate"], ["predict", "-o", "out2.h5"]):
    fails(2, ["quantizer", "not calibrated"], command[0], "uncalibrated.h5", "--data", DIGITS, *command[1:])
fails(2, "not calibrated", "export", "uncalibrated.h5", "-o", "out2")
fails(2, "no quantizers", "export", "float.h5", "-o", "out2")
run("calibrate", "float.h5", "--data", DIGITS, "-o", "int8.h5")
fails(2, ["--format", "scalez", "'scales'"], "export", "int8.h5", "-o", "out2", "--format", "scalez")
fails(2, "already quantized", "calibrate", "int8.h5", "--data", DIGITS, "-o", "out2.h5")
fails(1, ["_quantizer", "step"], "qat", "int8.h5", "--data", DIGITS, "--epochs", "2", "--optimizer", "sgd", "--lr", "1e30",
      "--schedule", "constant", "-o", "out2.h5")

# Checkpoints.
evaluate = ["--data", DIGITS]
fails(2, "nowhere.h5", "evaluate", "nowhere.h5", *evaluate)
fails(2, "text.h5", "evaluate", "text.h5", *evaluate)
fails(2, ["digits.h5", "an HDF5 file but not a checkpoint", "a data set with --data"], "evaluate", DIGITS, *evaluate)
fails(2, ["'checkpoint'", "not a data set"], "evaluate", "float.h5", "--data", "float.h5")
fails(2, ["is a checkpoint", "export --format onnx"], "verify", "int8.h5", "--checkpoint", "int8.h5", *evaluate)
fails(2, ["is a checkpoint"], "verify", "int8.h5", "--target", "tensorrt")
fails(2, ["a text file", ".safetensors"], "inspect", text("report.html", "<html></html>"))
fails(2, ["--target none"], "export", "int8.h5", "--format", "compressed-tensors", "-o", "st/")
size = os.path.getsize("int8.h5")
with open("int8.h5", "rb") as file:
    whole = file.read()
with open("cut.h5", "wb") as file:
    file.write(whole[: size // 2])
fails(2, "cut.h5", "evaluate", "cut.h5", *evaluate)
with h5py.File("float.h5") as file:
    name = next(f"parameters/{key}" for key in file["parameters"] if file["parameters"][key].size > 8)
    offset = file[name].id.get_offset()
fails(2, ["flipped.h5", name], "evaluate", damaged("flipped.h5", "float.h5", offset + 5, lambda b: b ^ 4), *evaluate)
header = bytearray(whole[:512])
header[8:12] = struct.pack("<I", 99)
header[508:512] = struct.pack("<I", crc32c(header[:508]))
with open("newer.h5", "wb") as file:
    file.write(bytes(header) + whole[512:])
fails(2, ["newer.h5", "99"], "evaluate", "newer.h5", *evaluate)
fails(2, ["8, 8", "9, 9"], "evaluate", "float.h5", "--split", "train", "--data", data("wide.h5", shape=(1, 9, 9)))
fails(2, ["label 10", "0 to 9"], "evaluate", "float.h5", "--data", data("classes.h5", y=np.arange(96) % 20), "--split", "train")
fails(2, "nosuch", "evaluate", "float.h5", *evaluate, "--split", "nosuch")

# Recipes.
phases = [{"command": "train", "epochs": 1, "output": "float.h5"}]
fails(2, "nowhere.json", "run", "nowhere.json")
fails(2, ["r1.json:", "epochz", "'epochs'"], "run", text("r1.json", {"data": DIGITS, "phases": [dict(phases[0], epochz=2)]}))
fails(2, ["tarin", "'train'"], "run", text("r2.json", {"data": DIGITS, "phases": [dict(phases[0], command="tarin")]}))
fails(2, ["r3.json:2", "phasez", "'phases'"], "run", text("r3.json", {"phasez": phases}))
fails(2, "r4.json:1", "run", text("r4.json", "{,}"))

# Files that cannot be written.
fails(2, "nodir", "train", *SHORT, "-o", "nodir/out.h5")
fails(1, "/dev/full", "calibrate", "float.h5", "--data", DIGITS, "-o", "/dev/full")
fails(1, "small.h5", "calibrate", "float.h5", "--data", DIGITS, "-o", "small.h5", limits="ulimit -f 2")
fails(1, "standard output", "evaluate", "float.h5", *evaluate, limits="exec > /dev/full")
print("bad input: ok")
