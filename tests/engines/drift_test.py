"""No drift with depth: training's forward pass and the engine are the same at 1, 12 and 29 layers, where quantization that
is simulated in floats parts from it."""

import json
import os
import subprocess

from lib import HOME, SOURCE

PYTHON = os.environ["FAKEQUANT_ONNX_PYTHON"]
if not os.path.exists(PYTHON):
    print("SKIPPED: no onnxruntime")
    raise SystemExit(77)


def drifted(python, engines, depths="1,12,29"):
    done = subprocess.run([python, os.path.join(SOURCE, "scripts", "drift"), "--depths", depths, "--engines", engines, "--command",
                           os.environ["FAKEQUANT"], "--folder", "networks", "--home", HOME, "--json", "found.json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with open("found.json") as file:
        return json.load(file)


found = drifted(PYTHON, "ort")
assert set(found["ort"].values()) == {0.0}, found
assert all(0 < value < 1e-2 for value in found["simulated in floats"].values()), found
for name, engine, file, depths in [("ggml", "llama.cpp", "engine/libfakequant_llama.so", "1,12,29"),
                                   ("xnnpack", "xnnpack", "bin/python", "4"),  # to lower a program takes long
                                   ("xnnpack_static", "xnnpack", "bin/python", "4")]:
    python = os.path.join(HOME, engine, "bin", "python")
    if not os.path.exists(os.path.join(HOME, engine, file)):
        print(f"without {name}: python3 -m fakequant.engines.install {engine} {HOME} makes it")
    else:
        assert set(drifted(python, name, depths)[name.replace("_", " ")].values()) == {0.0}, name
