"""calibrate --algorithm: its report per layer; the written network evaluates, trains and exports."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, events, result, run, same_bytes  # noqa: E402

run("train", *SHORT, "-o", "float.h5")
base = ["calibrate", "float.h5", "--data", DIGITS]
PLAIN = ["--edge-bits", "0", "--method", "max", "--weight-method", "max"]  # as a config has it
floating = result("evaluate", "float.h5", "--data", DIGITS)["accuracy"]
for name in ("smoothquant", "equalize", "awq_lite", "awq_clip", "awq_full", "gptq", "adaround", "bias_correction"):
    lines = [line for line in events(*base, "--preset", "w4a8", *PLAIN, "--algorithm", name, "-o", f"{name}.h5")
             if line["event"] == "weight_algorithm"]
    changed = [line for line in lines if "after" in line]
    assert changed and all(line["algorithm"] == name for line in lines), lines
    if name in ("gptq", "adaround", "awq_clip"):
        assert all(line["after"] <= line["before"] for line in changed), changed
    assert result("evaluate", f"{name}.h5", "--data", DIGITS)["accuracy"] > floating - 15, name
# the first layer reads one channel: nothing to even out
left = run(*base, "--algorithm", "smoothquant", "-o", "said.h5").stdout
assert "skipped: it has one input channel" in left, left

with open("config.json", "w") as file:
    json.dump({"preset": "w4a8", "algorithm": "percentile", "weight_algorithm": {"method": "gptq", "act_order": True}}, file)
run(*base, "--config", "config.json", "-o", "config.h5")
with open("theirs.json", "w") as file:
    json.dump({"preset": "w4a8", "algorithm": "gptq"}, file)
run(*base, "--config", "theirs.json", "--method", "max", "-o", "theirs.h5")
assert result("evaluate", "theirs.h5", "--data", DIGITS) | {"checkpoint": ""} == result(
    "evaluate", "gptq.h5", "--data", DIGITS) | {"checkpoint": ""}

# scales of blocks by a search, then floats on their grid; the network is traced with them too
run(*base, "--preset", "nvfp4", "--weight-method", "scale_sweep", "--algorithm", "gptq", "-o", "sweep.h5")
assert result("evaluate", "sweep.h5", "--data", DIGITS)["accuracy"] > floating - 15

# ranges from shares of the data, then codes
for share, skip in (("a", 0), ("b", 100)):
    run(*base, "--preset", "w4a8", "--method", "one_pass", "--samples", "100", "--skip", skip, "--state", f"{share}.h5")
run(*base, "--preset", "w4a8", "--method", "one_pass", "--merge", "a.h5", "b.h5", "--algorithm", "gptq", "-o", "merged.h5")

for name in ("smoothquant", "gptq"):
    run("export", f"{name}.h5", "-o", f"{name}_export")
    assert os.path.exists(f"{name}_export_scales.json")
    run("qat", f"{name}.h5", "--data", DIGITS, "--epochs", "1", "-o", f"{name}_qat.h5")
    run("calibrate", "float.h5", "--data", DIGITS, "--preset", "w4a8", *PLAIN, "--algorithm", name, "-o", "again.h5")
    assert same_bytes(f"{name}.h5", "again.h5"), name
whole = ["qat", "float.h5", "--data", DIGITS, "--preset", "w4a8", "--set", "algorithm=smoothquant", "--seed", "1"]
run(*whole, "--epochs", "2", "-o", "whole.h5")
assert result("evaluate", "whole.h5", "--data", DIGITS)["accuracy"] > floating - 15
print("weight algorithms: ok")
