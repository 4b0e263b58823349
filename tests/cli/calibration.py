"""Calibration in parts: states that are saved, resumed and merged give the file of a single run."""

import json
import os
import sys

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, events, fails, run, same_bytes  # noqa: E402

run("train", *SHORT, "-o", "float.h5")
for method in ("max", "one_pass", "one_pass_entropy"):
    base = ["calibrate", "float.h5", "--method", method]
    data = [*base, "--data", DIGITS]
    whole, merged, resumed = (f"{method}_{name}.h5" for name in ("whole", "merged", "resumed"))
    a, b, both = (f"{method}_{name}.state.h5" for name in ("a", "b", "both"))
    run(*data, "--samples", "300", "-o", whole)
    run(*data, "--samples", "100", "--state", a)
    run(*data, "--samples", "200", "--skip", "100", "--batch", "37", "--state", b)
    run(*base, "--merge", a, b, "-o", merged, "--state", both)
    assert same_bytes(whole, merged), method
    run(*data, "--samples", "200", "--skip", "100", "--state", a, "-o", resumed)
    assert same_bytes(whole, resumed), method
    assert same_bytes(a, both), method
    run(*base, "--merge", a, "-o", "again.h5")
    assert same_bytes(whole, "again.h5"), method

# States that do not match are rejected by name, and no file is written.
out = ["-o", "out.h5"]
merge = ["calibrate", "float.h5", "--method", "max", "--merge", "max_a.state.h5"]
fails(2, ["one_pass_b.state.h5", "quantizer"], *merge, "one_pass_b.state.h5", *out)
fails(2, ["missing.h5"], *merge, "missing.h5", *out)
fails(2, ["float.h5", "checkpoint"], *merge, "float.h5", *out)
fails(2, ["max_b.state.h5", "--merge"], *merge, "--state", "max_b.state.h5", *out)
fails(2, ["--output"], *merge)
fails(2, ["--data"], "calibrate", "float.h5", "--state", "max_a.state.h5", *out)
fails(2, ["--skip", "-1"], "calibrate", "float.h5", "--data", DIGITS, "--skip", "-1", *out)
fails(2, ["--skip", "99999"], "calibrate", "float.h5", "--data", DIGITS, "--skip", "99999", *out)
fails(2, ["quantizer", "max"], "calibrate", "float.h5", "--data", DIGITS, "--method",
      "one_pass", "--state", "max_a.state.h5", *out)
run("train", *SHORT[:-1], "2", "-o", "other.h5")
fails(2, ["max_a.state.h5", "another model"], "calibrate", "other.h5", "--merge", "max_a.state.h5", *out)
for name in ("percentile", "moving_average"):
    for share in ("c", "d"):
        run("calibrate", "float.h5", "--data", DIGITS, "--method", name, "--state", f"{name}_{share}.h5")
    fails(2, [f"{name}_d.h5", "quantizer", "order of"], "calibrate", "float.h5", "--method", name, "--merge",
          f"{name}_c.h5", f"{name}_d.h5", *out)

# Rules and adjustments of a config, and what quantization costs.
with open("config.json", "w") as file:
    json.dump({"preset": "int8",
               "algorithm": {"method": "percentile", "percentile": 99,
                             "rules": [{"pattern": "*conv1.input*", "method": "max"}],
                             "postprocess": [{"pattern": "*input_quantizer", "multiply": 0.5, "pow2": True}]}}, file)
lines = events("calibrate", "float.h5", "--data", DIGITS, "--config", "config.json", "--errors", "-o", "rules.h5")
errors = {line["quantizer"]: line for line in lines if line["event"] == "quantization_error"}
assert any(name.endswith("weight_quantizer") for name in errors) and len(errors) >= 8, errors
assert all(line["mse"] >= 0 and line["sqnr_db"] > 0 for line in errors.values()), errors
with h5py.File("rules.h5") as file:
    ranges = {name: data["amax"][()] for name, data in file["quantizers"].items() if "amax" in data}
assert all(float(amax).hex().startswith("0x1.0000000000000p") for name, amax in ranges.items()
           if name.endswith("input_quantizer")), ranges
for wrong, expected in (({"percentile": 101}, "percentile"), ({"rules": [{"pattern": "*conf1*"}]}, "conf1"),
                    ({"rules": [{"pattern": "*", "methd": "max"}]}, "methd"),
                    ({"postprocess": [{"pattern": "*", "maximum": -1}]}, "maximum")):
    with open("wrong.json", "w") as file:
        json.dump({"preset": "int8", "algorithm": {"method": "max", **wrong}}, file)
    fails(2, expected, "calibrate", "float.h5", "--data", DIGITS, "--config", "wrong.json", *out)
print("calibration: ok")

# A merge that was killed between its two files can be repeated: the checkpoint comes first, and --state is not there yet.
line = ["calibrate", "float.h5", "--method", "max", "--merge", "max_a.state.h5", "max_b.state.h5", "--state", "third.state.h5", "-o", "third.h5"]
run(*line)
first = open("third.h5", "rb").read()
assert os.stat("third.h5").st_mtime_ns <= os.stat("third.state.h5").st_mtime_ns
os.remove("third.state.h5")  # as after a kill between the two files
run(*line)
assert open("third.h5", "rb").read() == first and os.path.exists("third.state.h5")
