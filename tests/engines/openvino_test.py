"""Exported files in OpenVINO: no answer changes, codes and logits within the stated bounds."""

import json
import os
import subprocess
import sys

from lib import DIGITS, HOME, SOURCE, fails, needs, run

sys.path.insert(0, os.path.join(SOURCE, "python"))
from fakequant.engines.processor import has_vnni  # noqa: E402

needs("openvino", "bin/python")
if not os.path.exists(os.environ["FAKEQUANT_NETWORKS"]):
    print("SKIPPED: no networks of tests/onnx")
    raise SystemExit(77)

PYTHON = os.path.join(HOME, "openvino", "bin", "python")


def from_engine(what, *arguments):
    """Output of tests/engines/openvino_inputs.py, run by the engine's own Python."""
    script = os.path.join(SOURCE, "tests", "engines", "openvino_inputs.py")
    done = subprocess.run([PYTHON, script, what, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def exported(network, scale):
    trained = os.path.join(os.environ["FAKEQUANT_NETWORKS"], network + ".h5")
    checkpoint, file = f"{network}_{scale}.h5", f"{network}_{scale}.onnx"
    run("calibrate", trained, "--data", DIGITS, "--preset", "int8", "--scale", scale, "-o", checkpoint)
    run("export", checkpoint, "--format", "onnx", "-o", file)
    return file, checkpoint


def verified(file, checkpoint, data):
    """Report of verify with any verdict."""
    done = run("verify", file, "--engine", "openvino", "--checkpoint", checkpoint, "--data", data, "--random", "1000", "--json",
               status=None)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["answers"] == 1360 and found["codes"] > 0 and found["kernels"], found
    assert found["engine"].startswith("openvino ") and found["code_tolerance"] == 1e-3 and found["flip_tolerance"] == 0, found
    return found


def check_bounds(found):
    if has_vnni() is False:  # linear layers saturate
        assert found["same"] or "no VNNI" in found["reasons"][0] and "VNNI" in found["ways"][0], found
    else:
        assert found["same"] and found["flips"] == 0, found


# Digits with sixteen greys have ties at 8/16 with steps of 1/255; scaled by 0.98 they have none.
from_engine("without_ties", DIGITS, "without_ties.h5")
for network in ["mlp", "digits_cnn"]:
    file, checkpoint = exported(network, "free")
    check_bounds(verified(file, checkpoint, "without_ties.h5"))
    found = verified(file, checkpoint, DIGITS)
    first = next(name for name in found["compared"] if name in ("fc1.input_quantizer", "conv1.input_quantizer"))
    assert 0 < found["different"][first] <= 699 and (has_vnni() is False or found["flips"] == 0), found
    assert "multiplies the input by the reciprocal" in found["reasons"][0], found
    assert any("pow2" in way for way in found["ways"]), found
    assert from_engine("inputs", file, first, DIGITS) == "0 of 23,040 codes, 0 of 65,536 near ties differ from the formula\n"
    file, checkpoint = exported(network, "pow2")
    found = verified(file, checkpoint, DIGITS)
    check_bounds(found)
# the last network is one of convolutions, whose codes are exact by powers of two on every processor
assert found["codes_different"] == 0, found

line = run("verify", "mlp_free.onnx", "--engine", "openvino", "--checkpoint", "digits_cnn_free.h5", "--data", DIGITS, status=None)
assert line.returncode in (1, 2) and "mlp_free.onnx" in line.stderr, line.stderr
with open("none.onnx", "w") as file:
    file.write("not a network")
fails(2, "none.onnx", "verify", "none.onnx", "--engine", "openvino", "--checkpoint", "mlp_free.h5", "--data", DIGITS)
