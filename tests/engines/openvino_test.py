"""Exported files in OpenVINO: no answer changes, codes and logits within the stated bounds."""

import json
import os
import sys

from lib import DIGITS, SOURCE, fails, needs, run

sys.path.insert(0, os.path.join(SOURCE, "scripts", "lib"))
from processor import has_vnni  # noqa: E402

needs("openvino", "bin/python")
if not os.path.exists(os.environ["FAKEQUANT_NETWORKS"]):
    print("SKIPPED: no networks of tests/onnx")
    raise SystemExit(77)

def verified(network, scale):
    """What verify finds, whether or not it is within the bounds."""
    trained = os.path.join(os.environ["FAKEQUANT_NETWORKS"], network + ".h5")
    checkpoint, file = f"{network}_{scale}.h5", f"{network}_{scale}.onnx"
    run("calibrate", trained, "--data", DIGITS, "--preset", "int8", "--scale", scale, "-o", checkpoint)
    run("export", checkpoint, "--format", "onnx", "-o", file)
    done = run("verify", file, "--engine", "openvino", "--checkpoint", checkpoint, "--data", DIGITS, "--random", "1000", "--json",
               status=None)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout.splitlines()[-1])


for network in ["mlp", "digits_cnn"]:
    for scale in ["free", "pow2"]:
        found = verified(network, scale)
        assert found["answers"] == 1360 and found["codes"] > 0 and found["kernels"], found
        assert found["engine"].startswith("openvino ") and found["code_tolerance"] == 1e-3 and found["flip_tolerance"] == 0, found
        if has_vnni() is False:  # linear layers saturate
            assert found["same"] or "no VNNI" in found["reasons"][0] and "VNNI" in found["ways"][0], found
        else:
            assert found["same"] and found["flips"] == 0, found
    # the last network is one of convolutions, whose codes are exact by powers of two on every processor
assert found["codes_different"] == 0, found

line = run("verify", "mlp_free.onnx", "--engine", "openvino", "--checkpoint", "digits_cnn_free.h5", "--data", DIGITS, status=None)
assert line.returncode in (1, 2) and "mlp_free.onnx" in line.stderr, line.stderr
with open("none.onnx", "w") as file:
    file.write("not a network")
fails(2, "none.onnx", "verify", "none.onnx", "--engine", "openvino", "--checkpoint", "mlp_free.h5", "--data", DIGITS)
