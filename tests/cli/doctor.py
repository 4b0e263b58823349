"""Findings of `doctor` on this machine, with and without a Python for verify."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, result, run  # noqa: E402

NAMES = ["version", "processor", "engine", "threads", "memory", "huge pages", "gpu", "onnx", "ranks", "python", "data"]


def python(program, name="python"):
    found = {finding["name"]: finding for finding in result("doctor", "--python", program)["findings"]}
    assert list(found) == NAMES, found
    return found[name]


text = run("doctor").stdout
assert run("--version").stdout.strip() in text and all(f"\n{name} " in "\n" + text for name in NAMES), text

assert "cannot be started" in python("/nowhere/python")["found"]
assert "ends with an error" in python("false")["found"]
with open("bare", "w") as file:
    file.write(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
os.chmod("bare", 0o755)
bare = python(os.path.abspath("bare"))
assert bare["found"].endswith(": no package that verify needs") and "pip install numpy h5py onnx" in bare["advice"], bare
bare = python(os.path.abspath("bare"), "data")
assert "pip install numpy h5py pillow pyarrow tokenizers" in bare["advice"], bare
own = python(sys.executable)
for package in ("numpy", "h5py", "onnx", "onnxruntime"):
    assert package in own["found"] + own["advice"], own

# Too many threads are reported for any number of allowed processors.
many = str(2 * len(os.sched_getaffinity(0)))
threads = next(f for f in result("doctor", threads=many)["findings"] if f["name"] == "threads")
assert threads["found"].startswith(many + " of ") and "--threads" in threads["advice"], threads
fails(2, "unknown flag --data", "doctor", "--data", "x.h5")
print("doctor: ok")
