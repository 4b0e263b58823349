"""--resume continues the run of the file, or reports the flag, data or number that differs."""

import os
import shutil
import sys

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, SOURCE, fails, run, same_bytes  # noqa: E402
from forge import StateFile  # noqa: E402

BASE = {"--model": "cnn", "--model-options": '{"widths": [8, 8, 8], "features": 16}', "--data": DIGITS, "--epochs": "2",
        "--batch": "64", "--seed": "1", "--schedule": "cosine"}


SETTINGS = {"clip": "clip_norm", "accumulate": "accumulation", "warmup": "schedule.warm_up", "save_every": "save_every"}


def line(command="train", base=BASE, **changes):
    settings = [word for name in changes if name in SETTINGS for word in ("--set", f"{SETTINGS[name]}={changes[name]}")]
    flags = dict(base, **{"--" + name.replace("_", "-"): value for name, value in changes.items() if name not in SETTINGS})
    return command.split() + settings + [word for pair in flags.items() for word in pair if word is not None]


def other(name, **attributes):
    shutil.copy(DIGITS, name)
    return h5py.File(name, "r+")


run(*line(), "-o", "run.h5")
for flag, value, expected in (
        ("lr", "0.01", ["--lr is 0.004 there, 0.01 here"]), ("schedule", "onecycle", ["--schedule is cosine there, onecycle here"]),
        ("augment", "shift=1", ["--augment shift is 0.0 there, 1.0 here"]), ("batch", "32", ["--batch is 64 there, 32 here"]),
        ("optimizer", "sgd", ["--optimizer is adamw there, sgd here"]), ("weight_decay", "0", ["--weight-decay"]),
        ("seed", "2", ["--seed is 1 there, 2 here"]), ("clip", "1", ["--set clip_norm"]), ("accumulate", "2", ["--set accumulation"]),
        ("ema", "0.9", ["--ema"]), ("warmup", "3", ["--set schedule.warm_up"]), ("label_smoothing", "0.1", ["--label-smoothing"]),
        ("val_fraction", "0.2", ["--val-fraction"])):
    fails(2, ["[resume] run.h5", *expected], *line(**{flag: value}), "--resume", "-o", "run.h5")
assert fails(2, "--seed is 1 there", *line(seed="2"), "--resume", "-o", "run.h5").count("--seed is") == 1
fails(2, ["--allow-changes is for --resume"], *line(lr="0.01"), "--allow-changes", "-o", "other.h5")
fails(2, ["--epochs is 1", "has completed 2"], *line(epochs="1"), "--resume", "-o", "run.h5")
fails(2, ["--epochs is 1", "completed 2"], *line(epochs="1"), "--resume", "--allow-changes", "-o", "run.h5")
assert "nothing is left to do" in run(*line(), "--resume", "-o", "run.h5").stdout
several = fails(2, ["--lr", "--set clip_norm"], *line(lr="0.01", clip="1"), "--resume", "-o", "run.h5")

# Data of the same size.
with other("labels.h5") as file:
    file["train/y"][700] = (file["train/y"][700] + 1) % 10
with other("pixels.h5") as file:
    file["train/x"][700] = 255 - file["train/x"][700]
with other("scaled.h5") as file:
    file["train/x"].attrs["scale"] = 0.5 * file["train/x"].attrs["scale"]
with other("test_only.h5") as file:
    file["test/x"][3] = 0
for name in ("labels.h5", "pixels.h5", "scaled.h5"):
    fails(2, ["[resume] run.h5", "other training data", "--data"], *line(data=name), "--resume", "-o", "run.h5")
shutil.copy("run.h5", "same.h5")
run(*line(data="test_only.h5"), "--resume", "-o", "same.h5")
assert same_bytes("same.h5", "run.h5")

# Settings that may differ.
run(*line(epochs="3", save_every="7", threads="1"), "--resume", "-o", "same.h5")
assert StateFile("same.h5").attributes["progress/epoch"] == 3
run("calibrate", "run.h5", "--data", DIGITS, "-o", "int8.h5")
run("qat", "int8.h5", "--data", DIGITS, "--epochs", "1", "--amax", "running", "-o", "qat.h5")
QAT = ["qat", "int8.h5", "--data", DIGITS, "--epochs", "2", "--resume", "-o", "qat.h5"]
fails(2, ["qat.h5", "--amax is "], *QAT, "--amax", "frozen")
for key, value in (("amax_momentum", "0.5"), ("backward", "fp32"), ("quant_start", "3"), ("freeze_bn_after", "3"), ("freeze_amax_after", "3")):
    fails(2, ["qat.h5", f"--set {key} is "], *QAT, "--amax", "running", "--set", f"{key}={value}")

# Without a length the run continues to its original end. A shorter length requires a flag.
ENDLESS = {name: value for name, value in BASE.items() if name != "--epochs"}


def parts(file, *length, stop):
    """A run that ends too early, as one that was killed: its file says that it was to have more."""
    run(*line(base=ENDLESS, schedule="constant"), *stop, "-o", file)
    state = StateFile(file)
    state.attributes["progress/length"] = {length[0][2:]: int(length[1])}
    state.save(file)
    run(*line(base=ENDLESS, schedule="constant"), *length, "-o", "whole.h5")


parts("part.h5", "--epochs", "4", stop=["--epochs", "2"])
shutil.copy("part.h5", "fewer.h5")
fails(2, ["--epochs is 3, and the run was planned for 4", "--allow-changes"], *line(epochs="3", schedule="constant"), "--resume", "-o", "part.h5")
run(*line(epochs="3", schedule="constant"), "--resume", "--allow-changes", "-o", "fewer.h5")
assert StateFile("fewer.h5").attributes["progress/epoch"] == 3
run(*line(base=ENDLESS, schedule="constant"), "--resume", "-o", "part.h5")
assert same_bytes("part.h5", "whole.h5")
parts("part.h5", "--steps", "30", stop=["--steps", "7"])
run(*line(base=ENDLESS, schedule="constant"), "--resume", "-o", "part.h5")
assert same_bytes("part.h5", "whole.h5")
run(*line(base=ENDLESS, schedule="constant"), "--epochs", "1", "-o", "run/")
run(*line(base=ENDLESS, schedule="constant"), "--resume", "-o", "run/")
assert StateFile("run/checkpoints/last.h5").attributes["progress/epoch"] == 1

# Files of before settings and fingerprints were kept.
old = StateFile("run.h5")
for name in ("progress/settings", "progress/data", "progress/length"):
    del old.attributes[name]
old.attributes["progress/schedule"] = "cosine"
old.save("old.h5")
run(*line(epochs="3", lr="0.002"), "--resume", "-o", "old.h5")
assert StateFile("old.h5").attributes["progress/epoch"] == 3
fails(2, ["checkpoint_v1.h5"], "train", *SHORT, "--resume", "-o",
      shutil.copy(os.path.join(SOURCE, "tests", "data", "checkpoint_v1.h5"), "."))

# Places where no run can be.
forged = [("progress/epoch", value) for value in (0, 3, -1, 2**63, 2**64 - 1, 2**48, "1", 1.5, None, [1])]
forged += [("progress/loader/epoch", value) for value in (0, 1, 4, -1, 2**63, 2**62, None)]
forged += [("progress/loader/position", value) for value in (64, 1500, -64, 2**63, "0")]
forged += [("progress/loader/" + name, value) for name in ("size", "batch_size") for value in (0, -1, 2**63, "x")]
forged += [("progress/" + name, value) for name in ("step", "batch", "count", "correct") for value in (-1, 1 << 40, 2**63, 0.5)]
forged += [("progress/validation/" + name, value) for name in ("best_epoch", "epochs", "waited") for value in (7, -2, 2**63)
           if (name, value) != ("epochs", 7)]
forged += [("optimizer/steps", [-1] * len(old.attributes["optimizer/steps"])), ("optimizer/steps", 3), ("progress/seed", -1),
           ("progress/loss_sum", "x"), ("progress/settings", 3), ("progress/data", [])]
forged += [("progress/length", value) for value in ({}, [4], {"epochs": 0}, {"epochs": "4"}, {"epochs": 2**63}, {"epochs": 4, "steps": 9}, {"epochs": 2**21},
                                                    {"steps": -1})]
for name, value in forged:
    file = StateFile("run.h5")
    file.attributes[name] = value
    if name not in ("progress/settings", "progress/data"):
        del file.attributes["progress/settings"]  # room for long numbers
    file.save("forged.h5")
    fails(2, "forged.h5", *line(epochs="4"), "--resume", "-o", "forged.h5")
print("resume checks: ok")
