"""Input that a command rejects is rejected by --dry-run and recipes with equal words before anything runs; input they accept runs."""

import itertools
import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, run  # noqa: E402

run("train", *SHORT, "-o", "float.h5")
DATA = ["--data", DIGITS]


def error_text(*arguments):
    """The message without its program, or nothing."""
    done = run(*arguments, status=(0, 2))
    return done.stderr.splitlines()[-1].removeprefix("fakequant: ") if done.returncode else ""


def recipe_errors(*phases):
    """Messages of a recipe of these phases before it runs; each phase is the command line of one command."""
    listed = []
    for command, *flags in phases:
        phase = {"command": command}
        if flags and not flags[0].startswith("-"):
            phase["checkpoint"] = flags.pop(0)
        while flags:
            name = {"-o": "output"}.get(flags[0], flags[0].lstrip("-"))
            takes = len(flags) > 1 and not flags[1].startswith("-")
            if name == "set":
                phase.setdefault("set", []).append(flags[1])
            else:
                phase[name] = flags[1] if takes else True
            del flags[: 2 if takes else 1]
        listed.append(phase)
    with open("recipe.json", "w") as file:
        json.dump({"data": DIGITS, "phases": listed}, file)
    printed = error_text("run", "recipe.json", "--dry-run")
    return printed.split(" (phase '")[0]


def advice(printed):
    """Ranges that are not known yet have another number and sign, so that another layer may be the first one that is refused."""
    return printed.split(": ", 1)[-1]


# Formats that fine-tuning accepts, with frozen, running and learned ranges.
RANGES = [["--amax", "frozen"], ["--amax", "running"], ["--amax", "learned"], ["--lora", "2"], ["--set", "amax_rate=2"],
          ["--set", "amax_gradient=lsq"], ["--set", "learn_weight_ranges=true"]]
ALONE = [["--lora", "400"], ["--set", "freeze_bn_after=5"], ["--set", "quant_start=5"], ["--set", "schedule.warm_up=5"],
         ["--set", "reestimate_bn=1"], ["--set", "reestimate_bn=99"], ["--lora", "2", "--ema", "0.9"],
         ["--method", "none"], ["--lora", "2", "--set", "low_rank.layers=none*"],
         ["--set", "checkpoint_blocks=none*"], ["--effective-bits", "3"], ["--teacher", "other.h5"], ["--device", "gpu"],
         ["--schedule", "step,every=0"], ["--optimizer", "adam,beta1=2"], ["--set", "accumulation=2", "--micro-batch", "16"]]
run("train", "--model", "mlp", "--model-options", '{"hidden": [4]}', *DATA, "--epochs", "1", "-o", "any.h5")
with h5py.File("wide.h5", "w") as file:
    for group in ("train", "test"):
        file[group + "/x"], file[group + "/y"] = np.zeros((96, 1, 9, 9), np.float32), np.arange(96) % 10
run("train", "--model", "mlp", "--model-options", '{"hidden": [4]}', "--data", "wide.h5", "--epochs", "1", "-o", "other.h5")
rejections = passed = 0
pairs = [[*a, *b] for a, b in itertools.product(RANGES[:3], RANGES[3:])]
for preset, more in [(preset, more) for preset in ("int8", "w4a4") for more in RANGES + ALONE] + [("int8", more) for more in pairs]:
    line = ["qat", "float.h5", *DATA, "--preset", preset, "--samples", "32", "--batch", "32", "--steps", "1", *more, "-o", "q.h5"]
    dry = error_text(*line, "--dry-run")
    assert dry == error_text(*line), (line, dry)
    assert more in pairs or dry == recipe_errors([word for word in line if word not in DATA]), (line, dry)
    rejections, passed = rejections + bool(dry), passed + (not dry)
assert rejections > 25 and passed > 20, (rejections, passed)

# Files for engines, by format, of a network that an earlier phase calibrates, and of the one that is there.
FORMATS = {"scales": "s", "onnx": "n.onnx", "trt-cache": "c.cache", "safetensors": "st.safetensors",
           "compressed-tensors": "ct.safetensors", "gguf": "g.gguf"}
rejections = passed = 0
for preset in (["int8"], ["int8", "--target", "none"], ["int8_weight_only"], ["fp8"], ["w4a8"], ["q8_0"]):
    calibrate = ["calibrate", "float.h5", "--preset", *preset, "-o", "calibrated.h5"]
    run(*calibrate, *DATA)
    for form, output in FORMATS.items():
        export = ["export", "calibrated.h5", "--format", form, "-o", output]
        printed, own = recipe_errors(calibrate, export), error_text(*export)
        assert recipe_errors(export) == own and advice(printed) == advice(own), (preset, form, printed, own)
        rejections, passed = rejections + bool(printed), passed + (not printed)
assert rejections > 5 and passed > 15, (rejections, passed)

# Others.
run("calibrate", "float.h5", *DATA, "-o", "int8.h5")
for line in (["sensitivity", "float.h5", "--effective-bits", "1"], ["sensitivity", "float.h5", "--effective-bits", "5",
              "--accuracy-budget", "1"], ["sensitivity", "int8.h5", "--formats", "int8"], ["compress", "int8.h5", "--undo", "-o", "c.h5"],
             ["sensitivity", "float.h5", "--effective-bits", "5", "--formats", "int8,int8"],
             ["train", "--model", "cnn", "--freeze-bn", "-o", "t.h5"], ["train", "--model", "cnn", "--set", "schedule.warm_up=99999", "-o", "t.h5"],
             ["train", "--model", "cnn", "--teacher", "other.h5", "-o", "t.h5"], ["evaluate", "int8.h5", "--threads", "0"],
             ["train", "--model", "gpt", "-o", "t.h5"], ["export", "int8.h5", "--format", "onnx", "--opset", "99", "-o", "x.onnx"]):
    own = error_text(*line, *([] if line[0] in ("compress", "export") else DATA))
    assert own, line
    if "unknown flag" not in own:
        assert own == recipe_errors(line), (own, recipe_errors(line))
print("refused early: ok")
