"""The command on a device: whole loops, the same codes as on the CPU, checkpoints that go from one to the other."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli", "lib"))
from command import DIGITS, SHORT, result, run  # noqa: E402

DATA = ["--data", DIGITS]


def predictions(network, device):
    run("predict", network, *DATA, "--codes", "--device", device, "-o", f"{device}.h5")
    with h5py.File(f"{device}.h5") as file:
        found = {}
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def check_same_codes(network):
    there, here = predictions(network, "cuda"), predictions(network, "cpu")
    assert there.keys() == here.keys() and any(name.startswith("codes/") for name in here), here.keys()
    for name, values in here.items():
        assert np.array_equal(there[name], values), f"{network}: {name} differs in {np.sum(there[name] != values)} places"


# A network trained on the GPU is close to one trained on the CPU: float sums have another order.
run("train", *SHORT, "--device", "cuda:0", "-o", "float.h5")
run("train", *SHORT, "--device", "cpu", "-o", "float_cpu.h5")
there, here = (result("evaluate", name, *DATA) for name in ("float.h5", "float_cpu.h5"))
assert abs(there["accuracy"] - here["accuracy"]) < 3, (there, here)

# Calibrated and fine-tuned on the GPU: codes of all layers and logits equal the CPU's.
for preset in ("int8", "w4a8"):
    run("calibrate", "--checkpoint", "float.h5", *DATA, "--preset", preset, "--device", "cuda", "-o", f"{preset}.h5")
    check_same_codes(f"{preset}.h5")
run("qat", "int8.h5", *DATA, "--epochs", "1", "--lr", "0.001", "--device", "cuda", "-o", "qat.h5")
check_same_codes("qat.h5")
accuracy = result("evaluate", "qat.h5", *DATA)["accuracy"]
for device in ("cuda", "auto"):
    assert result("evaluate", "qat.h5", *DATA, "--device", device)["accuracy"] == accuracy, device
run("export", "qat.h5", "--format", "scales", "--device", "cuda", "-o", "scales.json")

# Other numbers and ranges: they run, and learn something.
for flags in (["--preset", "fp8"], ["--preset", "int8", "--amax", "running"], ["--preset", "int8", "--amax", "learned"],
              ["--preset", "nvfp4"], ["--preset", "w4a4", "--set", "backward=fp32"]):
    run("qat", "float.h5", *flags, *DATA, "--epochs", "1", "--lr", "0.001", "--device", "cuda", "-o", "other.h5")
    assert result("evaluate", "other.h5", *DATA, "--device", "cuda")["accuracy"] > 50, flags

# A run that began on one device resumes on the other.
LONGER = [word if word != "2" else "3" for word in SHORT]
for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
    run("train", *SHORT, "--schedule", "constant", "--device", first, "-o", "moved.h5")
    run("train", *LONGER, "--schedule", "constant", "--device", second, "--resume", "-o", "moved.h5")
    assert result("evaluate", "moved.h5", *DATA)["accuracy"] > 50

# Equal runs on the GPU give equal bits, with CUDA graphs and kernel by kernel.
for name, flags in (("a.h5", []), ("b.h5", []), ("c.h5", ["--set", "capture=false"])):
    run("qat", "int8.h5", *DATA, "--epochs", "1", "--device", "cuda", *flags, "-o", name)
files = [open(name, "rb").read() for name in ("a.h5", "b.h5", "c.h5")]
assert files[0] == files[1] == files[2], "runs on the device differ"

# Missing devices.
assert "cuda:7 is not there" in run("evaluate", "qat.h5", *DATA, "--device", "cuda:7", status=1).stderr
assert "is not a device" in run("evaluate", "qat.h5", *DATA, "--device", "gpu", status=2).stderr
print("command on a device: ok")
