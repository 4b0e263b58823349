"""Equal runs give equal bits. Evaluation and calibration do so with any number of threads."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, result, run, same_bytes  # noqa: E402

for threads in (1, 2):
    for name in ("a", "b"):
        run("train", *SHORT, "--augment", "shift=0.6,rotate=7.5,cutout=2", "-o", f"{name}{threads}.h5", threads=threads)
    assert same_bytes(f"a{threads}.h5", f"b{threads}.h5"), f"two runs with {threads} threads differ"

for name in ("a", "b"):
    run("qat", "a1.h5", "--preset", "int8", "--amax", "running", "--data", DIGITS, "--epochs", "1", "--lr", "0.001", "-o",
        f"qat_{name}.h5")
assert same_bytes("qat_a.h5", "qat_b.h5"), "two quantized runs differ"

losses, logits = set(), []
for threads in (1, 2, 4):
    for method in ("max", "entropy"):
        run("calibrate", "a1.h5", "--data", DIGITS, "--method", method, "-o", f"{method}{threads}.h5", threads=threads)
        assert same_bytes(f"{method}{threads}.h5", f"{method}1.h5"), f"{method} with {threads} threads differs"
    for network in ("a1.h5", "qat_a.h5"):
        losses.add((network, result("evaluate", network, "--data", DIGITS, threads=threads)["loss"]))
        run("predict", network, "--data", DIGITS, "-o", f"p{threads}.h5", threads=threads)
        with h5py.File(f"p{threads}.h5") as file:
            logits.append((network, file["logits"][()]))
assert len(losses) == 2, losses
for network in ("a1.h5", "qat_a.h5"):
    found = [values for name, values in logits if name == network]
    assert all(np.array_equal(values, found[0]) for values in found), f"{network}: logits depend on threads"
one = result("evaluate", "a1.h5", "--data", DIGITS, "--threads", "1")["loss"]
assert one == result("evaluate", "a1.h5", "--data", DIGITS, "--threads", "2")["loss"]
print("determinism: ok")
