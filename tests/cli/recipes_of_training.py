"""Batch norm statistics made anew, and weights that oscillate counted and frozen: the same bits where a run goes on."""

import json
import os
import signal
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import events, fails, result, run, start  # noqa: E402

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


def goes_on(start, *flags):
    """The epochs of two as one run, which is the same as one that goes on after one of them, and as one again."""
    told = events("qat", start, *DATA, "--epochs", "2", *PARTS, *flags, "-o", "whole.h5", "--force")
    run("qat", start, *DATA, "--epochs", "1", *PARTS, *flags, "-o", "parts.h5", "--force")
    run("qat", start, *DATA, "--epochs", "2", *PARTS, *flags, "-o", "parts.h5", "--resume")
    same_bits("whole.h5", "parts.h5")
    return [event for event in told if event["event"] == "epoch"]


# Statistics: other numbers than the running ones, the parameters the same, and what is saved is what is validated.
plain = result("qat", "live.h5", *DATA, "--epochs", "2", *PARTS, "-o", "plain.h5")
goes_on("live.h5", "--reestimate-bn", "10")
with h5py.File("plain.h5") as running, h5py.File("whole.h5") as anew:
    for name in running["parameters"]:
        assert np.array_equal(running["parameters"][name], anew["parameters"][name]), name
    means = [name for name in running["buffers"] if name.endswith("running_mean")]
    assert means and all(not np.array_equal(running["buffers"][n], anew["buffers"][n]) for n in means), means
assert result("evaluate", "whole.h5", *DATA)["accuracy"] > 90
goes_on("live.h5", "--reestimate-bn", "10", "--ema", "0.9", "--val-fraction", "0.1")

# Oscillation: counting changes no number; freezing does, and what is frozen only grows.
counted = goes_on("live.h5", "--oscillation", "track", "--lr", "0.01")
assert counted[-1]["oscillating"] > 0 and counted[-1]["frozen"] == 0, counted
run("qat", "live.h5", *DATA, "--epochs", "2", *PARTS, "--lr", "0.01", "-o", "plain.h5", "--force")
same_bits("plain.h5", "whole.h5")
frozen = goes_on("folded.h5", "--oscillation", "freeze", "--lr", "0.01", "--oscillation-threshold", "0.015")
assert 0 < frozen[0]["frozen"] <= frozen[1]["frozen"] < 100, frozen
assert result("evaluate", "whole.h5", *DATA)["accuracy"] > 85
told = run("qat", "folded.h5", *DATA, "--epochs", "1", "--oscillation", "track", "-o", "track.h5").stdout
assert ", oscillating " in told, told

# Gradients that know where the codes are.
run("qat", "folded.h5", *DATA, "--epochs", "2", *PARTS, "-o", "plain.h5", "--force")
for flags in (("--ewgs", "0.2"), ("--amax-decay", "0.01"), ("--quant-noise", "0.2"),
              ("--stochastic-rounding",)):
    goes_on("folded.h5", *flags)
    with h5py.File("whole.h5") as changed, h5py.File("plain.h5") as without:
        assert not np.array_equal(changed["parameters"]["fc2.weight"], without["parameters"]["fc2.weight"]), flags
    assert result("evaluate", "whole.h5", *DATA)["accuracy"] > 85, flags

# Bits that fall and weights that are pulled more and more: a run that is stopped on the way goes on.
FALLING = ("qat", "folded.h5", *DATA, "--epochs", "30", *PARTS, "--progressive", "8:0.5,4:0.3,2", "--val-fraction", "0.1",
           "--oscillation", "dampen", "--oscillation-weight", "0.01", "--soft-share", "0.9")
told = [event["bits"] for event in events(*FALLING, "-o", "whole.h5", "--force") if event["event"] == "epoch"]
assert told == [8] * 15 + [4] * 9 + [2] * 6, told
process = start(*FALLING, "-o", "parts.h5", "--force")
while "epoch 1/" not in process.stdout.readline():
    assert process.poll() is None, process.stderr.read()
process.send_signal(signal.SIGINT)
process.communicate()
assert process.returncode == 130, process.returncode
run(*FALLING, "-o", "parts.h5", "--resume")
same_bits("whole.h5", "parts.h5")
assert result("evaluate", "whole.h5", *DATA)["accuracy"] > 85
run("export", "whole.h5", "--format", "onnx", "-o", "whole.onnx")

QAT = ("qat", "folded.h5", *DATA, "--epochs", "3", *PARTS)
fails(2, ["--oscillation is dampen there, off here", "--progressive is 8:0.5,4:0.3,2 there, none here"],
      *QAT, "--lr", "0.01", "-o", "parts.h5", "--resume")

# A format for each layer: what `sensitivity` plans, then calibrated by what few bits need, and trained.
CHOSEN = ("--preset", "w2a2", "--effective-bits", "3")
goes_on("float.h5", *CHOSEN)
run("sensitivity", "float.h5", *DATA, "--effective-bits", "3", "--formats", "w2a2,w4a4,int8", "--plan", "plan.json")
with open("plan.json") as plan, h5py.File("whole.h5") as trained:
    planned = {layer["layer"]: layer["format"] for layer in json.load(plan)["layers"]}
    model = json.loads(trained["attributes"][()])["model"]
formats = {rule["pattern"][:-2]: rule["preset"] for rule in model["quantization"]["rules"] if "preset" in rule}
assert set(formats) == set(planned) and len(set(formats.values())) > 1, (formats, planned)
assert result("evaluate", "whole.h5", *DATA)["accuracy"] > 85
told = run("qat", "float.h5", *DATA, "--epochs", "1", *PARTS, *CHOSEN, "-o", "chosen.h5").stdout
assert "bits a weight" in told and "ranges by one_pass_mse" in told and "learned (lsq)" in told, told
CHOOSES = ("qat", "float.h5", *DATA, "--epochs", "1", *PARTS, "-o", "no.h5")
fails(2, "give that too", *CHOOSES, "--preset", "w2a2", "--formats", "int8")
fails(2, "goes with --preset", *CHOOSES, "--effective-bits", "3")
fails(2, "the fewest that these formats reach", *CHOOSES, "--preset", "w2a2", "--effective-bits", "1.5")
fails(2, ["int9", "int8"], *CHOOSES, *CHOSEN, "--formats", "int9")
fails(2, "is quantized already: leave out --preset and --effective-bits", "qat", "folded.h5", *DATA, *CHOSEN, "-o", "no.h5")

fails(2, "no live batch norm: calibrate it with --keep-bn", *QAT, "--reestimate-bn", "4", "-o", "no.h5")
fails(2, "--reestimate-bn is 1000, an epoch has", "qat", "live.h5", *DATA, "--reestimate-bn", "1000", "-o", "no.h5")
fails(2, "give one of the two", "qat", "live.h5", *DATA, "--reestimate-bn", "4", "--freeze-bn-after", "4", "-o", "no.h5")
fails(2, "--oscillation", *QAT, "--oscillation", "freezes", "-o", "no.h5")
fails(2, "--oscillation-threshold", *QAT, "--oscillation", "freeze", "--oscillation-threshold", "1", "-o", "no.h5")
fails(2, "is for --oscillation freeze", *QAT, "--oscillation-threshold", "0.1", "-o", "no.h5")
fails(2, "is for --oscillation dampen", *QAT, "--oscillation-weight", "0.1", "-o", "no.h5")
fails(2, "give one of them", *QAT, "--soft-share", "0.5", "--quant-noise", "0.5", "-o", "no.h5")
fails(2, "--soft-share", *QAT, "--soft-share", "2", "-o", "no.h5")
fails(2, "--ewgs", *QAT, "--ewgs", "3", "-o", "no.h5")
fails(2, "give --amax learned", *QAT, "--amax", "frozen", "--amax-decay", "0.1", "-o", "no.h5")
fails(2, "end with those", *QAT, "--progressive", "8,4", "-o", "no.h5")
fails(2, "give fewer from stage to stage", *QAT, "--progressive", "4,8", "-o", "no.h5")
fails(2, "use 2 to 8", *QAT, "--progressive", "16,2", "-o", "no.h5")
fails(2, "'x' of '8,x' is no number", *QAT, "--progressive", "8,x", "-o", "no.h5")
fails(2, "have no step", *QAT, "--progressive", "8:0.9999,2", "-o", "no.h5")
for preset in ("nvfp4", "fp8"):
    fails(2, "no quantizer has a static range of integers", "qat", "float.h5", *DATA, "--preset", preset, *PARTS,
          "--target", "none", "--progressive", "8,4", "-o", "no.h5")
print("recipes of training: ok")
