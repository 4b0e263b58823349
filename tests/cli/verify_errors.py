"""verify where something is missing: one line that says how to get it, and no temporary files left."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, run  # noqa: E402

os.environ["TMPDIR"] = os.path.abspath("temporary")
os.mkdir("temporary")
os.environ.pop("FAKEQUANT_PYTHON", None)
run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--method", "none", "-o", "uncalibrated.h5")
with open("net.onnx", "w") as file:
    file.write("not a network")
with open("bare_python", "w") as file:  # without any package
    file.write(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
os.chmod("bare_python", 0o755)

same = ["verify", "net.onnx", "--checkpoint", "float.h5", "--data", DIGITS]
fails(2, "--checkpoint is missing", "verify", "net.onnx", "--data", DIGITS)
fails(2, "--model is missing", "verify", "--checkpoint", "float.h5", "--data", DIGITS)
fails(2, ["none.onnx is not a file", "fakequant export --format onnx"], "verify", "none.onnx", *same[2:])
fails(2, "run fakequant calibrate first", "verify", "net.onnx", "--checkpoint", "uncalibrated.h5", "--data", DIGITS)
fails(2, ["'./no_python' cannot be started", "install it", "--python"], *same, "--python", "./no_python")
fails(2, ["'./temporary' cannot be started", "--python"], *same, "--python", "./temporary")
fails(2, ["-m pip install onnxruntime onnx h5py", "FAKEQUANT_PYTHON"], *same, "--python", "./bare_python")
os.environ["FAKEQUANT_PYTHON"] = "./bare_python"
fails(2, "-m pip install onnxruntime onnx h5py", *same)
with open("recipe.json", "w") as file:
    json.dump({"data": DIGITS, "phases": [
        {"command": "calibrate", "checkpoint": "float.h5", "preset": "int8", "output": "int8.h5"},
        {"command": "export", "checkpoint": "int8.h5", "format": "onnx", "output": "int8.onnx"},
        {"command": "verify", "model": "int8.onnx", "checkpoint": "int8.h5"}]}, file)
fails(2, ["phase 'verify', before any ran", "-m pip install onnxruntime onnx h5py"], "run", "recipe.json")
fails(2, ["--level", "extended"], *same, "--level", "extendet")
fails(2, "--tolerance", *same, "--tolerance", "-1")
fails(2, "--target", *same, "--target", "tensorflow")
os.environ["TMPDIR"] = "/proc"
fails(1, "name another by TMPDIR", *same)
assert os.listdir("temporary") == []
