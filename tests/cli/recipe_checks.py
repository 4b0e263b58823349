"""All phases of a recipe are checked before the first one starts: a fault in the last one costs nothing."""

import json
import os
import re
import shutil
import signal
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, events, fails, patient, run, start  # noqa: E402


def data(name, shape=(1, 8, 8), classes=10):
    with h5py.File(name, "w") as file:
        for group in ("train", "test"):
            file[group + "/x"] = np.zeros((96, *shape), np.float32)
            file[group + "/y"] = np.arange(96) % classes
    return name


def recipe(*phases):
    with open("recipe.json", "w") as file:
        json.dump({"model": "cnn", "model-options": '{"widths": [8, 8, 8], "features": 16}', "data": DIGITS, "seed": 1,
                   "output": "out", "phases": [dict(phase) for phase in phases]}, file, indent=1)
    return ["run", "recipe.json"]


def phase(command, **keys):
    return {"command": command, "phase": "the " + command, **{key.replace("_", "-"): value for key, value in keys.items()}}


TRAIN = phase("train", epochs=1, output="float.h5")
INT8 = phase("calibrate", checkpoint="float.h5", preset="int8", output="int8.h5")
wide, many = data("wide.h5", shape=(1, 9, 9)), data("many.h5", classes=20)
one = data("one.h5", classes=1)
with open("config.json", "w") as file:
    json.dump({"presett": "int8"}, file)

FAULTS = [
    (["nowhere.h5"], phase("evaluate", checkpoint="float.h5", data="nowhere.h5")),
    (["elsewhere.h5"], phase("evaluate", checkpoint="elsewhere.h5")),
    (["float.best.h5"], phase("evaluate", checkpoint="float.best.h5")),
    (["nosuch"], phase("evaluate", checkpoint="float.h5", split="nosuch")),
    (["--batch"], phase("evaluate", checkpoint="float.h5", batch="many")),
    (["9, 9", "--data"], phase("evaluate", checkpoint="float.h5", data=wide)),
    (["9, 9"], phase("predict", checkpoint="float.h5", data=wide, output="logits.h5")),
    (["0 to 9"], phase("evaluate", checkpoint="float.h5", data=many)),
    (["9, 9"], phase("calibrate", checkpoint="float.h5", data=wide, output="again.h5")),
    (["int9", "'int8'"], phase("calibrate", checkpoint="float.h5", preset="int9", output="again.h5")),
    (["already quantized"], phase("calibrate", checkpoint="int8.h5", output="again.h5")),
    (["config.json:1", "'preset'"], phase("calibrate", checkpoint="float.h5", config="config.json", output="again.h5")),
    (["nowhere.json"], phase("calibrate", checkpoint="float.h5", config="nowhere.json", output="again.h5")),
    (["gptq", "--data"], phase("calibrate", checkpoint="float.h5", preset="w4a8", method="none", algorithm="gptq",
                               output="again.h5")),
    (["a.h5", "--merge"], phase("calibrate", checkpoint="float.h5", merge=["a.h5"], output="again.h5")),
    (["--samples"], phase("calibrate", checkpoint="float.h5", samples=0, output="again.h5")),
    (["state.safetensors"], {**phase("calibrate", checkpoint="float.h5", output="again.h5"), "import": "state.safetensors"}),
    (["not quantized", "--preset"], phase("qat", checkpoint="float.h5", output="qat.h5")),
    (["already quantized"], phase("qat", checkpoint="int8.h5", preset="int8", output="qat.h5")),
    (["--amax"], phase("qat", checkpoint="int8.h5", amax="walking", output="qat.h5")),
    (["--set patience=3", "--val-fraction"], phase("qat", checkpoint="int8.h5", early_stopping=3, output="qat.h5")),
    (["--batch", "1437"], phase("qat", checkpoint="int8.h5", batch=2000, micro_batch=2000, output="qat.h5")),
    (["--output"], phase("qat", checkpoint="int8.h5")),
    (["quantized: use fakequant qat"], phase("train", checkpoint="int8.h5", output="again.h5")),
    (["nomodel.json"], phase("train", model="nomodel.json", output="again.h5")),
    (["--optimizer", "'adam'"], phase("train", optimizer="adm", output="again.h5")),
    (["'shift'"], phase("train", augment="shft=1", output="again.h5")),
    (["--set optimizer.nesterov"], phase("train", nesterov=True, output="again.h5")),
    (["one output"], phase("train", data=one, output="again.h5")),
    (["scalez", "'scales'"], phase("export", checkpoint="int8.h5", format="scalez")),
    (["no quantizers"], phase("export", checkpoint="float.h5")),
    (["--effective-bits"], phase("sensitivity", checkpoint="float.h5")),
    (["already quantized"], phase("sensitivity", checkpoint="int8.h5", effective_bits=5)),
    (["no quantizers"], phase("compress", checkpoint="float.h5", output="small.h5")),
    (["nowhere.onnx"], phase("verify", model="nowhere.onnx", checkpoint="int8.h5")),
    (["nowhere.onnx"], {**phase("import", output="imported.h5"), "model": "nowhere.onnx"}),
    (["nowhere.h5"], phase("inspect", file="nowhere.h5")),
    (["--lora", "learned"], phase("qat", checkpoint="int8.h5", lora=2, amax="learned", output="qat.h5")),
    (["--lora is 400", "conv1"], phase("qat", checkpoint="int8.h5", lora=400, output="qat.h5")),
    (["--set freeze_bn_after", "100000"], phase("qat", checkpoint="int8.h5", freeze_bn_after=100000, output="qat.h5")),
    (["--set amax_momentum", "--amax running"], phase("qat", checkpoint="int8.h5", amax_momentum=0.1, output="qat.h5")),
    (["--method"], phase("qat", checkpoint="int8.h5", method="max", output="qat.h5")),
    (["--set schedule.warm_up"], phase("train", warmup=100000, output="again.h5")),
    (["--skip"], phase("calibrate", checkpoint="float.h5", skip=99999, output="again.h5")),
    (["--percentile"], phase("calibrate", checkpoint="float.h5", percentile=99, output="again.h5")),
    (["--effective-bits is 1", "4.0000"], phase("sensitivity", checkpoint="float.h5", effective_bits=1)),
    (["--effective-bits is 3"], phase("qat", checkpoint="float.h5", preset="w4a4", effective_bits=3, output="qat.h5")),
    (["ggml", "q8_0"], phase("export", checkpoint="int8.h5", format="gguf", output="x.gguf")),
    (["--target none"], phase("export", checkpoint="int8.h5", format="compressed-tensors", output="x/")),
    (["--opset", "--format onnx"], phase("export", checkpoint="int8.h5", opset=17)),
    (["not compressed"], phase("compress", checkpoint="int8.h5", undo=True, output="x.h5")),
    (["--engine"], phase("verify", model="recipe.json", checkpoint="int8.h5", engine="ort_dynamo")),
    (["--threads"], phase("evaluate", checkpoint="int8.h5", threads=0)),
]
for expected_text, faulty in FAULTS:
    fails(2, [f"the {faulty['command']}", *expected_text], *recipe(TRAIN, INT8, faulty))
assert not os.path.exists("out")

whole = recipe(
    phase("train", epochs=2, val_fraction=0.2, fold_bn=True, output="float.h5"),
    phase("evaluate", checkpoint="float.best.h5"),
    phase("fold", checkpoint="float.best.h5", output="folded.h5"),
    phase("sensitivity", checkpoint="folded.h5", effective_bits=6, plan="plan.json", output="mixed.h5", samples=64),
    phase("evaluate", checkpoint="mixed.h5"),
    phase("calibrate", checkpoint="folded.h5", config="plan.json", output="planned.h5"),
    phase("qat", checkpoint="planned.h5", epochs=1, output="qat.h5"),
    INT8, phase("compress", checkpoint="int8.h5", output="small.h5"), phase("predict", checkpoint="small.h5", output="logits.h5"),
    phase("export", checkpoint="int8.h5", format="onnx", output="int8.onnx"), phase("inspect", file="out/small.h5"),
    phase("export", checkpoint="float.h5", format="onnx", output="float.onnx"),
    {**phase("import", output="imported.h5"), "model": "out/float.onnx"}, phase("evaluate", checkpoint="imported.h5"))
warnings = run(*whole).stderr.splitlines()  # each once, when its phase runs
assert len(warnings) == 1 and "ONNX Runtime computes" in warnings[0], warnings
assert sorted(os.listdir("out")) == sorted(
    ["float.h5", "float.best.h5", "folded.h5", "mixed.h5", "planned.h5", "qat.h5", "int8.h5", "small.h5", "logits.h5",
     "int8.onnx", "float.onnx", "imported.h5"]), os.listdir("out")

# An installed recipe finds its data and models in its folder or the parent folder; outputs go to the current folder.
os.makedirs("installed/recipes")
os.makedirs("installed/data")
shutil.copy(DIGITS, "installed/data/few.h5")
with open("installed/recipes/it.json", "w") as file:
    json.dump({"model": "models/net.json", "data": "data/few.h5", "output": "made",
               "phases": [phase("train", epochs=1, output="n.h5"), phase("evaluate", checkpoint="n.h5")]}, file)
os.makedirs("installed/models")
with open("installed/models/net.json", "w") as file:
    json.dump({"nodes": [{"name": "flat", "type": "flatten"},
                         {"name": "fc", "type": "linear", "options": {"in_features": 64, "out_features": 10}}]}, file)
run("run", "installed/recipes/it.json")
assert os.path.exists("made/n.h5") and sorted(os.listdir("installed")) == ["data", "models", "recipes"]
fails(2, ["'.' is a folder"], "run", ".")

# Times of finished phases predict the times of later ones. Without recorded times no prediction is printed.
message = events(*recipe(phase("train", epochs=1, output="float.h5", seconds=1000), phase("evaluate", checkpoint="float.h5"),
                      phase("qat", checkpoint="float.h5", preset="int8", epochs=1, output="timed.h5", seconds=500)))
expected = [event["expected_seconds"] for event in message if event["event"] == "phase"]
took = message[-1]["phases"][0]["seconds"]
assert expected[0] == 1000 and expected[1] == 0 and abs(expected[2] / (took / 2) - 1) < 1e-6, (expected, took)
message = run(*recipe(phase("train", epochs=1, output="float.h5", seconds=1000), {**phase("inspect", file="out/float.h5"), "seconds": 500})).stdout
assert "[1/2] the train\n" in message and "[2/2] the inspect (about" in message, message

# Training predicts its time after some measured steps.
process = start(*recipe(phase("train", epochs=100000, output="long.h5")))
words = iter(process.stdout.readline, "")
report = next(line for line in words if line.startswith("about "))
process.send_signal(signal.SIGINT)
process.communicate(timeout=patient(60))
steps = int(re.fullmatch(r"about \d+ min \d\d s for (\d+) more steps\n", report)[1])
assert 0 < 100000 * 22 - steps < 1000000, report

# A dry run starts no program that the recipe names.
with open("program.sh", "w") as file:
    file.write("#!/bin/sh\ntouch started\nexit 3\n")
os.chmod("program.sh", 0o755)
EXPORT, INT8_SAVED = phase("export", checkpoint="int8.h5", output="net.onnx"), phase("calibrate", checkpoint="float.h5", preset="int8", output="int8.h5")
os.remove("out/float.h5")
verified = recipe(TRAIN, INT8_SAVED, EXPORT, phase("verify", model="net.onnx", checkpoint="int8.h5", python="./program.sh"))
run(*verified, "--dry-run")
assert not os.path.exists("started")
run(*verified, status=2)  # a real run does, before its first phase
assert os.path.exists("started") and not os.path.exists("out/float.h5")

# A recipe writes no file outside of its folder.
for name in ["../escaped.h5", "a/../../escaped.h5", os.path.abspath("escaped.h5"), ".."]:
    fails(2, ["recipe.json:", "outside of the folder", name], *recipe(phase("train", epochs=1, output=name)))
    fails(2, "outside of the folder", *recipe(phase("train", epochs=1, output=name)), "--dry-run")
    fails(2, "outside of the folder", *recipe(TRAIN, phase("calibrate", checkpoint="float.h5", preset="int8", output="a.h5", state=name)))
    fails(2, "outside of the folder", *recipe(TRAIN, phase("train", epochs=1, output="b.h5", profile=name)))
    text = json.dumps({"model": "cnn", "data": DIGITS, "output": os.path.dirname(name) or name, "phases": [TRAIN]})
    with open("outside.json", "w") as file:
        file.write(text)
    fails(2, ["outside.json:", "outside of the current folder"], "run", "outside.json", "--dry-run")
assert not os.path.exists("escaped.h5")
run("run", "outside.json", "--output", "elsewhere", "--dry-run", status=2)  # also where the line names another folder

# A grid belonged to `sweep`.
with open("recipe.json", "w") as file:
    json.dump({"data": DIGITS, "output": "out", "grid": {"train.lr": [0.001, 0.004]}, "phases": [TRAIN]}, file)
fails(2, ["recipe.json:1", "grid", "examples/sweep.py"], "run", "recipe.json", "--dry-run")
fails(2, "the command 'sweep' was removed. Use a loop in Python, as in examples/sweep.py.", "sweep", "recipe.json", "-o", "sweep")
print("recipe checks: ok")
