"""Networks of onnx's model zoo, imported: what ONNX Runtime computes."""

import os
import subprocess
import sys

import numpy as np
import onnxruntime
from lib import SOURCE

sys.path.insert(0, os.path.join(SOURCE, "bench", "imports"))
from onnx_light import filled, light_files  # noqa: E402

RELATIVE = 1e-5  # sums in another order through up to 121 layers; 2.4e-6 was seen
NAMES = ["squeezenet", "shufflenet", "inception_v1", "densenet121", "resnet50"]

files = light_files()
assert set(NAMES) <= set(files), files
x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
x.tofile("x")
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
for name in NAMES:
    filled(files[name], f"{name}.onnx")
    session = onnxruntime.InferenceSession(f"{name}.onnx", options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {session.get_inputs()[0].name: x})[0]
    sizes = [str(size) for size in x.shape]
    subprocess.run([os.environ["ONNX_IMPORTED"], f"{name}.onnx", "x", "y", *sizes], check=True, stdout=subprocess.DEVNULL)
    found = np.fromfile("y", np.float32).reshape(wanted.shape)
    off = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert off <= RELATIVE, (name, off)
