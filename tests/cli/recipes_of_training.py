"""Reestimates batch norm statistics, chooses formats per layer, and rejects removed options. Resumed runs have the same bits."""

import json
import os
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import events, fails, result, run  # noqa: E402

numbers = np.random.default_rng(1)
centres = numbers.standard_normal((5, 12))
labels = numbers.integers(0, 5, 1500)
table = (centres[labels] + 0.6 * numbers.standard_normal((1500, 12))).astype(np.float32)
with h5py.File("table.h5", "w") as file:
    for split, rows in (("train", slice(0, 1200)), ("test", slice(1200, 1500))):
        file[f"{split}/x"], file[f"{split}/y"] = table[rows], labels[rows]
DATA = ("--data", "table.h5")
PARTS = ("--schedule", "constant", "--teacher", "none")

run("train", "--model", "mlp", "--model-options", '{"hidden": [32, 32], "batch_norm": true}', *DATA, "--epochs", "8", "-o", "float.h5")
run("calibrate", "float.h5", *DATA, "--preset", "w2a2", "--keep-bn", "-o", "live.h5")
run("calibrate", "float.h5", *DATA, "--preset", "w2a2", "-o", "folded.h5")


def same_bits(one, other):
    with h5py.File(one) as a, h5py.File(other) as b:
        for group in ("parameters", "buffers"):
            for name in a.get(group, ()):
                assert np.array_equal(a[group][name], b[group][name]), name


def check_resume(start, *flags):
    """Epochs of a run of two; it equals a run that was resumed after one epoch, and a repeated run."""
    report = events("qat", start, *DATA, "--epochs", "2", *PARTS, *flags, "-o", "whole.h5", "--force")
    run("qat", start, *DATA, "--epochs", "1", *PARTS, *flags, "-o", "parts.h5", "--force")
    run("qat", start, *DATA, "--epochs", "2", *PARTS, *flags, "-o", "parts.h5", "--resume")
    same_bits("whole.h5", "parts.h5")
    return [event for event in report if event["event"] == "epoch"]


# Re-estimated statistics differ from the running ones, parameters are equal, and the saved model is the validated one.
plain = result("qat", "live.h5", *DATA, "--epochs", "2", *PARTS, "-o", "plain.h5")
check_resume("live.h5", "--set", "reestimate_bn=10")
with h5py.File("plain.h5") as running, h5py.File("whole.h5") as anew:
    for name in running["parameters"]:
        assert np.array_equal(running["parameters"][name], anew["parameters"][name]), name
    means = [name for name in running["buffers"] if name.endswith("running_mean")]
    assert means and all(not np.array_equal(running["buffers"][n], anew["buffers"][n]) for n in means), means
assert result("evaluate", "whole.h5", *DATA)["accuracy"] > 90
check_resume("live.h5", "--set", "reestimate_bn=10", "--ema", "0.9", "--val-fraction", "0.1")

QAT = ("qat", "folded.h5", *DATA, "--epochs", "3", *PARTS)

# A format for each layer: planned by `sensitivity`, calibrated with the low-bit defaults, and trained.
CHOSEN = ("--preset", "w2a2", "--effective-bits", "3")
check_resume("float.h5", *CHOSEN)
run("sensitivity", "float.h5", *DATA, "--effective-bits", "3", "--formats", "w2a2,w4a4,int8", "--plan", "plan.json")
with open("plan.json") as plan, h5py.File("whole.h5") as trained:
    planned = {layer["layer"]: layer["format"] for layer in json.load(plan)["layers"]}
    model = json.loads(trained["attributes"][()])["model"]
formats = {rule["pattern"][:-2]: rule["preset"] for rule in model["quantization"]["rules"] if "preset" in rule}
assert set(formats) == set(planned) and len(set(formats.values())) > 1, (formats, planned)
assert result("evaluate", "whole.h5", *DATA)["accuracy"] > 85
report = run("qat", "float.h5", *DATA, "--epochs", "1", *PARTS, *CHOSEN, "-o", "chosen.h5").stdout
assert "bits a weight" in report and "ranges by one_pass_mse" in report and "learned (lsq)" in report, report
CHOOSES = ("qat", "float.h5", *DATA, "--epochs", "1", *PARTS, "-o", "no.h5")
fails(2, "use that too", *CHOOSES, "--preset", "w2a2", "--formats", "int8")
fails(2, "goes with --preset", *CHOOSES, "--effective-bits", "3")
fails(2, "the fewest that these formats reach", *CHOOSES, "--preset", "w2a2", "--effective-bits", "1.5")
fails(2, ["int9", "int8"], *CHOOSES, *CHOSEN, "--formats", "int9")
fails(2, "is already quantized: leave out --preset and --effective-bits", "qat", "folded.h5", *DATA, *CHOSEN, "-o", "no.h5")

fails(2, "no live batch norm: calibrate it with --keep-bn", *QAT, "--set", "reestimate_bn=4", "-o", "no.h5")
fails(2, "--set reestimate_bn is 1000, an epoch has", "qat", "live.h5", *DATA, "--set", "reestimate_bn=1000", "-o", "no.h5")
fails(2, "use one of the two", "qat", "live.h5", *DATA, "--set", "reestimate_bn=4", "--set", "freeze_bn_after=4", "-o", "no.h5")

# A removed option on the line, in a recipe or in a checkpoint is an error. A recipe may hold the value that switched it off.
REMOVED = {"ewgs": (0, 0.5), "oscillation": ("off", "freeze"), "oscillation-threshold": (0.02, 0.1), "oscillation-weight": (0.001, 0.1),
           "quant-noise": (0, 0.1), "soft-share": (0, 0.5), "stochastic-rounding": (False, True), "amax-decay": (0, 0.1)}


def recipe(**options):
    with open("recipe.json", "w") as file:
        json.dump({"phases": [{"command": "qat", "checkpoint": os.path.abspath("folded.h5"), "data": "table.h5", "epochs": 1,
                               "output": "q.h5", **options}]}, file)
    return "run", "recipe.json", "--dry-run"


for option, (off, on) in REMOVED.items():
    fails(2, f"--{option} was removed. Use", *QAT, f"--{option}={on}", "-o", "no.h5")
    fails(2, ["recipe.json:", f"--{option} was removed. Use"], *recipe(**{option: on}))
    fails(2, f"--{option} was removed. Use", *recipe(), "--set", f"qat.{option}={on}")
fails(2, "--progressive was removed. Use", *QAT, "--progressive", "8,2", "-o", "no.h5")
run(*recipe(**{option: off for option, (off, _) in REMOVED.items()}))

CORPUS = os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "fuzz", "corpus")
PLAIN = os.path.join(CORPUS, "dataset", "plain.h5")
shutil.copy(os.path.join(CORPUS, "run", "refused_oscillation.h5"), "old.h5")
result("evaluate", "old.h5", "--data", PLAIN, "--split", "train")
BEGUN = ("qat", os.path.join(CORPUS, "checkpoint", "int8.h5"), "--data", PLAIN, "--batch", "4", "--val-fraction", "0.25", "--epochs", "2",
         "--ema", "0.9", "--set", "patience=3", "--schedule", "plateau", "--amax", "learned", "-o", "old.h5", "--resume")
fails(2, ["old.h5", "oscillation (freeze)", "removed"], *BEGUN)
fails(2, ["old.h5", "oscillation (freeze)", "removed"], *BEGUN, "--allow-changes")

# A run directory of the version that had these options, with the values that switched them off, resumes.
run("qat", "folded.h5", *DATA, "--epochs", "1", *PARTS, "-o", "run/")
for options, message in ((REMOVED, None), ({**REMOVED, "ewgs": (0.5, 0)}, "--ewgs was removed")):
    with open("run/config.json") as file:
        config = json.load(file)
    config["defaults"].update({name: off if isinstance(off, bool) else str(off) for name, (off, _) in options.items()})
    with open("run/config.json", "w") as file:
        json.dump(config, file)
    if message:
        fails(2, ["run/config.json", message], "qat", "--resume", "run/", "--epochs", "3")
    else:
        run("qat", "--resume", "run/", "--epochs", "2")
print("recipes of training: ok")
