"""Settings of training: --set, the object "training" of --config, and flags of earlier versions that became settings."""

import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, SOURCE, TINY, fails, run, same_bytes  # noqa: E402
from forge import StateFile  # noqa: E402

TRAIN = ["train", *SHORT]


def write(name, value):
    with open(name, "w") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))
    return name


def settings(checkpoint):
    return StateFile(checkpoint).attributes["progress/settings"]


# The line, a file, and a part of a file as an object of its own set the same values; the line has priority.
write("training.json", {"training": {"clip_norm": 0.5, "optimizer": {"beta1": 0.8}, "loader.drop_last": False}})
run(*TRAIN, "--set", "clip_norm=0.5", "optimizer.beta1=0.8", "--set", "loader.drop_last=false", "-o", "line.h5")
run(*TRAIN, "--config", "training.json", "-o", "file.h5")
assert same_bytes("line.h5", "file.h5")
run(*TRAIN, "--optimizer", "adamw,beta1=0.8", "--set", "clip_norm=0.5", "loader.drop_last=false", "-o", "words.h5")
assert same_bytes("line.h5", "words.h5")
found = settings("line.h5")
assert (found["clip_norm"], found["beta1"], found["drop_last"]) == (0.5, 0.8, False), found
run(*TRAIN, "--config", "training.json", "--set", "clip_norm=2", "-o", "both.h5")
assert settings("both.h5")["clip_norm"] == 2 and settings("both.h5")["beta1"] == 0.8

# A config of qat holds both; a file of settings alone goes with --preset.
run("qat", "line.h5", "--preset", "w4a8", "--data", DIGITS, "--epochs", "1", "--set", "quant_start=3", "-o", "preset.h5")
write("both.json", {"preset": "w4a8", "training": {"quant_start": 3}})
run("qat", "line.h5", "--config", "both.json", "--data", DIGITS, "--epochs", "1", "-o", "config.h5")
assert settings("config.h5")["quant_start"] == 3 and settings("preset.h5")["quant_start"] == 3
write("alone.json", {"training": {"quant_start": 3}})
run("qat", "line.h5", "--preset", "w4a8", "--config", "alone.json", "--data", DIGITS, "--epochs", "1", "-o", "alone.h5")
assert same_bytes("alone.h5", "preset.h5")
run("calibrate", "line.h5", "--data", DIGITS, "-o", "int8.h5")
run("qat", "int8.h5", "--config", "alone.json", "--data", DIGITS, "--epochs", "1", "-o", "alone.h5")
fails(2, ["both.json:1", "training"], "calibrate", "line.h5", "--config", "both.json", "--data", DIGITS, "-o", "no.h5")

# Errors name the place, the range and the nearest name.
for expected, *line in (
        (["--set has no 'clip_nrm'", "'clip_norm'"], "--set", "clip_nrm=1"), (["--set is 'clip_norm'", "KEY=VALUE"], "--set", "clip_norm"),
        (["--set clip_norm is '-1'", "0 to 1000000000"], "--set", "clip_norm=-1"), (["more than once"], "--set", "patience=1", "patience=2"),
        (["--set accumulation is '1.5'", "whole number"], "--set", "accumulation=1.5"),
        (["--set capture is 'no'", "true"], "--set", "capture=no"), (["--set reduction is 'fp16'", "'fp32'"], "--set", "reduction=fp16"),
        (["--set has no 'quant_start'"], "--set", "quant_start=3"), (["beta1", "sgd"], "--optimizer", "sgd", "--set", "optimizer.beta1=0.8"),
        (["missing.json"], "--config", "missing.json"),
        (["--config", "wrong.json:2", "'optimizer.beta'", "optimizer.beta1"], "--config",
         write("wrong.json", '{"training": {\n"optimizer": {"beta": 1}}}')),
        (["range.json:1", "clip_norm", "-1"], "--config", write("range.json", '{"training": {"clip_norm": -1}}')),
        (["kind.json:1", "object"], "--config", write("kind.json", '{"training": 3}')),
        (["config.json:1", "'preset'"], "--config", write("config.json", '{"preset": "int8"}'))):
    fails(2, [text for text in expected if text != "--config"], *TRAIN, *line, "-o", "no.h5")

# A flag that became a setting: an error that names it, in `run --set` too; recipes and run directories are read.
fails(2, "--clip became a setting. Use --set clip_norm=VALUE.", *TRAIN, "--clip", "1", "-o", "no.h5")
fails(2, "--keep-last became a setting. Use --set loader.drop_last=true or false.", *TRAIN, "--keep-last", "-o", "no.h5")
fails(2, "--edge-bits became a setting. Use --set edge_bits=VALUE.", "qat", "line.h5", "--edge-bits", "8", "-o", "no.h5")
OLD = {"clip": 0.5, "keep-last": True, "nesterov": True, "momentum": 0.8, "sample": "balanced", "early-stopping": 9, "no-capture": True}
NEW = ["clip_norm=0.5", "loader.drop_last=false", "optimizer.nesterov=true", "optimizer.momentum=0.8", "loader.balanced=true", "patience=9",
       "capture=false"]
COMMON = {"model": "cnn", "model-options": json.loads(TINY[3]), "data": DIGITS, "seed": 1, "output": "."}
PHASE = {"command": "train", "epochs": 1, "optimizer": "sgd", "val-fraction": 0.2}
run("run", write("old.json", {**COMMON, "phases": [{**PHASE, **OLD, "output": "old.h5"}]}))
run("run", write("new.json", {**COMMON, "phases": [{**PHASE, "set": NEW, "output": "new.h5"}]}))
run("run", write("less.json", {**COMMON, "phases": [{**PHASE, "set": [*NEW[1:], "clip_norm=2"], "output": "set.h5"}]}), "--set",
    "train.clip_norm=0.5", "train.optimizer.momentum=0.8")
assert same_bytes("old.h5", "new.h5") and same_bytes("set.h5", "new.h5")
fails(2, ["--clip became a setting", "clip_norm"], "run", "old.json", "--set", "train.clip=1")
fails(2, "'clip_norm'", "run", "old.json", "--set", "train.clip_nrm=1")

run(*TRAIN, "--optimizer", "sgd", "--set", *NEW, "--val-fraction", "0.2", "-o", "run/")
shutil.copytree("run", "before")
with open("before/config.json") as file:
    config = json.load(file)
for key in [setting.partition("=")[0] for setting in config["given"].pop("set")] + ["schedule.warm_up", "save_every"]:
    config["defaults"].pop(key, None)
config["given"].update({"clip": "0.5", "keep-last": True, "nesterov": True, "momentum": "0.8", "sample": "balanced",
                        "early-stopping": "9", "no-capture": True})
config["defaults"].update({"warmup": "0", "save-every": "0", "temperature": "2", "distill-weight": "1", "steps": "0", "reduce": "exact"})
write("before/config.json", config)
for folder in ("run", "before"):
    run("train", "--resume", f"{folder}/", "--epochs", "3")
assert same_bytes("run/checkpoints/last.h5", "before/checkpoints/last.h5")
with open("before/config.json") as file:
    assert sorted(json.load(file)["given"]["set"]) == sorted(NEW)
run("train", "--resume", "run/", "--epochs", "4", "--set", "patience=3")  # the line changes one of them

# The help lists them all, with their defaults.
text = run("help", "settings").stdout
keys = re.findall(r"^  (\S+) \S+.*$", text, re.M)
assert len(keys) == len(set(keys)) > 40 and "clip_norm" in keys and "quant_start STEPS (=0) (qat)" in text, keys
listed = run("qat", "--help").stdout.split("Settings for --set")[1].split(":", 1)[1].split()
assert [word.partition("=")[0] for word in listed] == keys, (listed, keys)
with open(os.path.join(SOURCE, "docs", "command-line.md")) as file:
    page = file.read()
missing = [key for key in keys if f"`{key}`" not in page]
assert not missing, missing
print("settings: ok")
