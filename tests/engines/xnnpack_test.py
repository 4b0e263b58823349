"""Networks exported for ExecuTorch, in XNNPACK: every bit of every linear layer, whole networks within the stated bound."""

import os
import sys

from lib import DIGITS, SOURCE, fails, needs, result, run, small_gpt

sys.path.insert(0, os.path.join(SOURCE, "python"))
from fakequant.engines.processor import has_avx512_vnni  # noqa: E402

needs("xnnpack", "bin/python")


def verified(checkpoint, data, layers):
    file = checkpoint.replace(".h5", ".pte")
    report = result("export", checkpoint, "--format", "executorch", "-o", file)
    assert report["quantized_layers"] == layers and report["delegates"] >= 1, report
    found = result("verify", file, "--engine", "xnnpack", "--checkpoint", checkpoint, "--data", data)
    assert found["same"] and found["flips"] == 0 and found["samples"] > 0, found
    return found


def check(layers, count, exact):
    assert len(layers) == count and all(layer["values"] > 0 for layer in layers), layers
    assert all(layer["bits_different"] == 0 if exact else layer["largest"] <= 1e-6 for layer in layers), layers


run("train", "--data", DIGITS, "--model", "mlp", "--model-options", '{"hidden": [64]}', "--epochs", "1", "-o", "mlp.h5")
small_gpt()
for preset in ["8da8w", "8da4w"]:
    run("qat", "mlp.h5", "--data", DIGITS, "--preset", preset, "--epochs", "1", "-o", f"mlp_{preset}.h5")
    found = verified(f"mlp_{preset}.h5", DIGITS, 2)
    exact = preset == "8da8w" or has_avx512_vnni()  # kernels of other processors add up 4 bits in another order
    assert not exact or found["logit_bits_different"] == 0, found
    check(found["layers"], 2, exact)
    run("qat", "gpt.h5", "--data", "text.h5", "--preset", preset, "--epochs", "1", "-o", f"gpt_{preset}.h5")
    found = verified(f"gpt_{preset}.h5", "text.h5", 13)
    check(found["layers"], 13, exact)

# Fixed ranges: pairs of quantize and dequantize, or codes multiplied as floats, so that every bit of the answers is the same.
# Depthwise convolutions, groups, additions, values that are moved, transposed convolutions, sums that two quantizers read.
for model, layers in [("mlp", 2), ("mobilenet", 9), ("channel_shuffle", 4), ("unet", 5)]:
    if model != "mlp":
        run("train", "--data", DIGITS, "--model", os.path.join(SOURCE, "models", f"{model}.json"), "--epochs", "1", "-o", f"{model}.h5")
    run("calibrate", f"{model}.h5", "--data", DIGITS, "--preset", "int8", "-o", f"{model}_int8.h5")
    found = verified(f"{model}_int8.h5", DIGITS, layers)
    assert found["layers"] == [] and found["logit_bits_different"] == 0, found

# Operators that XNNPACK does not have are rejected, and files of other kinds.
run("calibrate", "mlp.h5", "--data", DIGITS, "--preset", "q8_0", "-o", "ggml.h5")
fails(2, ["an ExecuTorch program", "import the checkpoint"], "import", "mlp_8da8w.pte", "-o", "none.h5")
fails(2, ["quantized for ggml", "--preset 8da8w or 8da4w"], "export", "ggml.h5", "--format", "executorch", "-o", "ggml.pte")
with open("mlp_8da8w.pte", "rb") as file:
    whole = file.read()
for name, data in [("cut.pte", whole[:len(whole) // 2]), ("none.pte", b"not a program")]:
    with open(name, "wb") as file:
        file.write(data)
    line = run("verify", name, "--engine", "xnnpack", "--checkpoint", "mlp_8da8w.h5", "--data", DIGITS, status=None)
    assert line.returncode in (1, 2) and line.stderr.count("\n") == 1, line.stderr
    os.remove(name)
