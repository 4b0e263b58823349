"""A verify that fails says where the numbers part, why, and what to do; each way out that it names is one."""

import os
import re
import shutil
import sys

from lib import DIGITS, assert_identical, calibrated, fails, has_vnni, result, trained, verified

FLOATS = {"Conv", "FusedConv", "Gemm", "Add", "GlobalAveragePool"}


def accepted(found):
    """The flags of the way out that takes the difference."""
    way = next(way for way in found["ways"] if way.startswith("accept it with"))
    return re.findall(r"--[a-z-]+tolerance [^ :]+|--tolerance [^ :]+", way), way


def assert_way_out(checkpoint, file, found, *flags):
    pairs, way = accepted(found)
    words = [word for pair in pairs for word in pair.split()]
    taken = verified(checkpoint, file, *flags, *words)
    assert taken["same"] and f"{taken['flips']:,} predictions change" in way, (way, taken)


for network in ["mlp", "digits_cnn"]:
    checkpoint, file = calibrated(network, "--preset", "int8", name=network)
    none = verified(checkpoint, file)
    assert_identical(none)
    assert none["same"] and none["reasons"] == none["ways"] == none["float_kernels"] == [], none
    assert none["first_difference"] is None, none

    # Below extended every product is one of floats.
    for level in ["disabled", "basic"]:
        found = verified(checkpoint, file, "--level", level, status=1)
        first = found["first_difference"]
        assert first["in_floats"] and first["nodes"] and first["kernels"], first
        if first["quantizer"] is None:  # floats of other processors may round to the same codes of few samples
            assert not has_vnni() and found["codes_different"] == 0, found
        else:
            assert first["largest_steps"] >= 1 and first["quantizer"] in found["different"], first
        assert {kernel["kernel"] for kernel in found["float_kernels"]} <= FLOATS, found["float_kernels"]
        assert f"in floats at level {level}" in found["reasons"][0], found["reasons"]
        assert found["ways"][0].startswith("--level all") and any("--scale pow2" in way for way in found["ways"]), found
        assert_way_out(checkpoint, file, found, "--level", level)
    fails(1, ["in floats at level basic", "--level all"], "verify", file, "--checkpoint", checkpoint, "--data", DIGITS,
          "--level", "basic")

    # Options of the session that take the integer kernels away.
    option = ["--session", "session.disable_quant_qdq=1"]
    found = verified(checkpoint, file, *option, status=1)
    assert found["ways"][0].startswith("omit --session") and found["level"] == "all", found
    assert_way_out(checkpoint, file, found, *option)

# Powers of two are named where they are not used yet.
checkpoint, file = calibrated("digits_cnn", "--preset", "w4a8", name="w4a8")
found = verified(checkpoint, file, status=None)
if found["same"]:  # sums of floats on other processors
    assert not has_vnni(), found
else:
    assert any("--scale pow2" in way for way in found["ways"]), found
    assert_way_out(checkpoint, file, found)

# Another network's file: integers have one result.
result("calibrate", trained("digits_cnn"), "--data", DIGITS, "--preset", "int8", "--method", "percentile", "--percentile", "99",
       "-o", "other.h5")
shutil.copy("digits_cnn.onnx", "other.onnx")
found = verified("other.h5", "other.onnx", status=1)
assert "not of this checkpoint" in found["reasons"][0] and found["ways"][-1].startswith("export it again"), found

# Another version than the measured ones: it runs, and the warning names both versions.
with open("newer", "w") as program:
    program.write(f"""#!/bin/sh
exec {sys.executable} -c 'import onnxruntime, sys; onnxruntime.__version__ = "9.9.9"
code = sys.argv.pop(2); sys.argv.pop(0); exec(code)' "$@"
""")
os.chmod("newer", 0o755)
found = verified("digits_cnn.h5", "digits_cnn.onnx", "--python", os.path.abspath("newer"))
assert found["same"] and any("9.9.9 runs" in line and "1.31.1" in line for line in found["warnings"]), found
