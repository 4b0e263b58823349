"""fakequant export --format gguf: networks that were trained on ggml's grids, read back by the package `gguf`, whose own
quantizer makes the same bytes of the trained weights; and rejected input."""

import os
import subprocess
import sys

import h5py
import numpy as np

PYTHON = os.environ["FAKEQUANT_GGUF_PYTHON"]
if not os.path.exists(PYTHON):
    print("SKIPPED: no gguf")
    raise SystemExit(77)
sys.path.insert(0, os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "cli", "lib"))
from command import DIGITS, fails, result, run  # noqa: E402

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "read_file.py")


def check(file, checkpoint, kind):
    weights = {}
    with h5py.File(checkpoint) as state:
        state["parameters"].visititems(
            lambda name, item: weights.update({name.replace("/", "."): item[...]}) if isinstance(item, h5py.Dataset) else None)
    np.savez("weights.npz", **weights)
    done = subprocess.run([PYTHON, READER, file, "weights.npz", kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# A small gpt: architecture, names and tokens of llama.cpp.
with open("text.txt", "w", encoding="utf-8") as text:
    text.write("To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" * 40)
run("dataset", "from-text", "text.txt", "--windows", "16", "-o", "text.h5")
options = '{"layers": 2, "width": 32, "heads": 2, "context": 16}'
run("train", "--data", "text.h5", "--model", "gpt", "--model-options", options, "--epochs", "1", "-o", "gpt.h5")
for preset, kind in (("q4_0", "Q4_0"), ("q8_0", "Q8_0")):
    run("qat", "gpt.h5", "--data", "text.h5", "--preset", preset, "--epochs", "1", "-o", "trained.h5")
    report = result("export", "trained.h5", "--format", "gguf", "-o", f"{preset}.gguf", "--force")
    assert report["architecture"] == "gpt2" and report["quantized_tensors"] == 10, report
    check(f"{preset}.gguf", "trained.h5", kind)
run("evaluate", "trained.h5", "--data", "text.h5")

# Any other network keeps its names; float networks are written too.
run("train", "--data", DIGITS, "--model", "mlp", "--model-options", '{"hidden": [64]}', "--epochs", "1", "-o", "mlp.h5")
run("qat", "mlp.h5", "--data", DIGITS, "--preset", "q4_0", "--epochs", "1", "-o", "mlp_q4.h5")
assert result("export", "mlp_q4.h5", "--format", "gguf", "-o", "mlp.gguf")["architecture"] == "fakequant"
check("mlp.gguf", "mlp_q4.h5", "Q4_0")
assert result("export", "mlp.h5", "--format", "gguf", "--float-type", "f16", "-o", "half.gguf")["quantized_tensors"] == 0

# Grids of other engines are rejected, and ONNX files with a grid of ggml.
run("calibrate", "mlp.h5", "--data", DIGITS, "--preset", "int8", "-o", "int8.h5")
fails(2, ["not on a grid of ggml", "--preset q4_0 or q8_0"], "export", "int8.h5", "--format", "gguf", "-o", "int8.gguf")
fails(2, ["ggml's blocks", "--format gguf"], "compress", "mlp_q4.h5", "-o", "packed.h5")
fails(2, ["target ggml", "--format gguf"], "export", "mlp_q4.h5", "--format", "onnx", "-o", "mlp.onnx")
fails(2, ["ggml does not multiply", "--preset q4_0 or q8_0"], "calibrate", "mlp.h5", "--data", DIGITS, "--preset", "8da8w",
      "--target", "ggml", "-o", "none.h5")
