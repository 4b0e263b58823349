"""4 GiB of images train in an address space of 1.5 GB, and a file without a test group trains."""

import json
import os
import subprocess
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, SHORT, run  # noqa: E402

LIMIT = "ulimit -v 1500000"

with h5py.File(DIGITS) as source, h5py.File("no_test.h5", "w") as file:
    source.copy("train", file)
    for name, value in source.attrs.items():
        file.attrs[name] = value
run("train", *SHORT, "-o", "trained.h5")
run("train", *(["no_test.h5" if item == DIGITS else item for item in SHORT]), "-o", "without.h5")

# A sanitizer reserves more addresses than the limit before main.
if subprocess.run(["bash", "-c", f'{LIMIT}; exec "$0" --version', COMMAND], capture_output=True).returncode != 0:
    print("SKIPPED: the command does not start within that limit")
    sys.exit(77)

# Chunks that were never written read as zeros, so that 4 GiB take a few megabytes of disk.
count, side, chunk = 4096, 1024, 4
with h5py.File("large.h5", "w") as file:
    x = file.create_dataset("train/x", (count, 1, side, side), "u1", chunks=(chunk, 1, side, side), compression=1)
    x.attrs["scale"] = np.float32(1 / 255)
    labels = np.arange(count) % 4
    for start in range(0, count, 512):
        x[start:start + chunk, :, :8, :8] = labels[start:start + chunk, None, None, None] * 60
    file["train/y"] = labels
    assert x.size == 4 << 30
model = {"nodes": [{"name": "pool", "type": "avg_pool", "options": {"kernel": 64}}, {"name": "flatten", "type": "flatten"},
                   {"name": "fc", "type": "linear", "options": {"out_features": "classes"}}]}
with open("pooled.json", "w") as file:
    json.dump(model, file)
run("train", "--model", "pooled.json", "--data", "large.h5", "--epochs", "1", "--batch", "16", "-o", "large_trained.h5",
    limits=LIMIT)
os.remove("large.h5")
print("large data: ok")
