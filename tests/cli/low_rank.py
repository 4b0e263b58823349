"""Low-rank adapters: merged on the calibrated grid, the only trained parameters, resumed, rejected if they do not fit."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, result, run  # noqa: E402

numbers = np.random.default_rng(2)
centres = 2 * numbers.standard_normal((5, 12))
labels = numbers.integers(0, 5, 900)
with h5py.File("table.h5", "w") as file:
    for split, rows in (("train", slice(0, 600)), ("test", slice(600, 900))):
        file[f"{split}/x"] = (centres[labels[rows]] + numbers.standard_normal((len(labels[rows]), 12))).astype(np.float32)
        file[f"{split}/y"] = labels[rows]
DATA = ("--data", "table.h5")
run("train", "--model", "mlp", "--model-options", '{"hidden": [32, 32]}', *DATA, "--epochs", "4", "-o", "float.h5")
run("calibrate", "float.h5", *DATA, "--preset", "w3a3", "-o", "ptq.h5")


def tensors(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


QAT = ("qat", "ptq.h5", *DATA, "--teacher", "none", "--schedule", "constant", "--lora", "4", "--set", "low_rank.alpha=2")
report = run(*QAT, "--epochs", "4", "-o", "whole.h5").stdout
assert "ranges frozen; learning rate 0.001; adapters of rank 4 alone, times 0.5" in report, report
before, after = tensors("ptq.h5"), tensors("whole.h5")
layers = sorted({name.split("/")[1] for name in after if name.startswith("adapters/")})
assert len(layers) == 3, layers
for name, value in before.items():
    if not name.startswith(("parameters/", "quantizers/")) or "/calibrator" in name:
        continue
    layer = name.split("/")[1].removesuffix(".weight")
    if name.startswith("parameters/") and name.endswith(".weight"):
        base, a, b = (after[f"adapters/{layer}/{part}"] for part in ("base", "lora_A", "lora_B"))
        assert (base == value).all() and a.shape[0] == b.shape[1] == 4, name
        assert np.abs(after[name] - (base + 0.5 * b.astype(np.float64) @ a)).max() < 1e-6, name  # sums in f32, of at most 1
        assert (after[name] != base).any(), name
    elif name in after:
        assert (after[name] == value).all(), name  # biases, and the grid
trained = {name.split("/")[1].rsplit(".", 1)[1] for name in after if name.startswith("optimizer/")}
assert trained == {"lora_A", "lora_B"}, trained
accuracy = [result("evaluate", path, *DATA)["accuracy"] for path in ("ptq.h5", "whole.h5")]
assert accuracy[1] > accuracy[0], accuracy

run(*QAT, "--epochs", "2", "-o", "parts.h5")
run(*QAT, "--epochs", "4", "-o", "parts.h5", "--resume")
parts = tensors("parts.h5")
assert all((parts[name] == value).all() for name, value in after.items() if name.startswith(("parameters/", "adapters/")))
fails(2, "--lora is 4 there, 0 here", "qat", "ptq.h5", *DATA, "--teacher", "none", "--schedule", "constant", "--lr", "0.001", "--epochs", "5",
      "--amax", "frozen", "--set", "learn_weight_ranges=false", "-o", "parts.h5", "--resume")

run(*QAT, "--epochs", "1", "--set", f"low_rank.layers={layers[1]}", "-o", "one.h5")
one = tensors("one.h5")
assert (one[f"parameters/{layers[1]}.weight"] != before[f"parameters/{layers[1]}.weight"]).any()
assert all((one[f"parameters/{layer}.weight"] == before[f"parameters/{layer}.weight"]).all() for layer in (layers[0], layers[2]))

for flags, expected in ((("--lora", "0"), "--lora"), (("--lora", "6"), "use at most 5"), (("--lora", "2", "--set", "low_rank.layers=fcx"), "did you mean"),
                    (("--set", "low_rank.alpha=2"), "--set low_rank.alpha is for --lora"), (("--lora", "2", "--set", "low_rank.alpha=0"), "--set low_rank.alpha"),
                    (("--lora", "2", "--amax", "learned"), "ranges are learned"), (("--lora", "2", "--ema", "0.9"), "--ema")):
    fails(2, expected, "qat", "ptq.h5", *DATA, *flags, "-o", "no.h5")
print("low_rank: ok")
