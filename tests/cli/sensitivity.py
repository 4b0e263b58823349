"""The loss of quantizing each layer, and plans that calibrate and qat read."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, result, run, same_bytes  # noqa: E402

DATA = ["--data", DIGITS, "--samples", "256"]


def load(path):
    with open(path) as file:
        return json.load(file)


run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", *DATA, "--preset", "w4a4", "--edge-bits", "0", "-o", "w4a4.h5")

# The table: sorted, whole, the same in the file.
table = result("sensitivity", "w4a4.h5", *DATA, "--report", "report.json")
report = load("report.json")
assert all(table[key] == report[key] for key in report), (table, report)
assert report["kind"] == "fakequant-sensitivity" and report["samples"] == 256, report
losses = [layer["loss_change"] for layer in report["layers"]]
assert losses == sorted(losses, reverse=True) and len(losses) > 2, losses
assert all(layer["bits"] == 4 for layer in report["layers"] if layer["weights"]), report
assert report["layer_runs"] < len(losses) * report["pass_runs"], report
lines = run("sensitivity", "w4a4.h5", *DATA).stdout.splitlines()
assert lines[1].split()[0] == report["layers"][0]["layer"], lines
by_divergence = result("sensitivity", "w4a4.h5", *DATA, "--score", "divergence")["layers"]
assert sorted(by_divergence, key=lambda layer: -layer["divergence"]) == by_divergence

# A plan within bits: the file of calibrate by it, and a config of qat.
formats = ["--formats", "w2a2,w4a8,int8,none"]
plan = result("sensitivity", "float.h5", *DATA, "--effective-bits", "4.8", *formats, "--plan", "plan.json",
              "-o", "planned.h5")
assert plan["effective_bits"] <= 4.8 and plan["formats"] == formats[1].split(","), plan
saved = load("plan.json")
assert all(plan[key] == saved[key] for key in saved)
run("calibrate", "float.h5", *DATA, "--config", "plan.json", "-o", "again.h5")
scores = [result("evaluate", file, "--data", DIGITS) for file in ("planned.h5", "again.h5")]
assert scores[0]["loss"] == scores[1]["loss"] and scores[0]["accuracy"] == scores[1]["accuracy"], scores
assert same_bytes("planned.h5", "again.h5")
run("qat", "float.h5", "--data", DIGITS, "--config", "plan.json", "--epochs", "1", "-o", "qat.h5")
run("qat", "planned.h5", "--data", DIGITS, "--epochs", "1", "-o", "qat2.h5")

# Within accuracy, and what holds for every format.
with open("base.json", "w") as file:
    json.dump({"target": "tensorrt", "rules": {"fc*": {"enable": False}}}, file)
text = run("sensitivity", "float.h5", *DATA, "--accuracy-budget", "2", *formats, "--config", "base.json", "--plan",
           "budget.json").stdout
budget = load("budget.json")
assert budget["measured"]["accuracy_change"] >= -0.02 - 1e-12, budget["measured"]
assert budget["quantization"]["target"] == "tensorrt"
assert not any(layer["layer"].startswith("fc") for layer in budget["layers"]), budget["layers"]
assert "measured:" in text and "bits a weight" in text, text

# Bad input.
base = ["sensitivity", "float.h5", *DATA]
bits = [*base, "--effective-bits"]
fails(2, ["not quantized"], *base)
fails(2, ["already quantized"], "sensitivity", "w4a4.h5", *DATA, "--effective-bits", "4.8")
fails(2, ["both constraints"], *bits, "4.8", "--accuracy-budget", "1")
fails(2, ["fewest"], *bits, "3", "--formats", "w4a8,int8")
fails(2, ["--effective-bits", "17"], *bits, "17")
fails(2, ["--accuracy-budget", "101"], *base, "--accuracy-budget", "101")
fails(2, ["int9"], *bits, "4.8", "--formats", "int9")
fails(2, ["twice"], *bits, "9", "--formats", "int8,int8")
fails(2, ["--plan"], "sensitivity", "w4a4.h5", *DATA, "--plan", "none.json")
fails(2, ["--report"], *bits, "4.8", "--report", "none.json")
fails(2, ["--data"], "sensitivity", "w4a4.h5")
with open("preset.json", "w") as file:
    json.dump({"preset": "int8"}, file)
fails(2, ["has a preset"], *bits, "4.8", "--config", "preset.json")
run("calibrate", "float.h5", *DATA, "--method", "none", "-o", "no_ranges.h5")
fails(2, ["not calibrated"], "sensitivity", "no_ranges.h5", *DATA)
saved["quantization"]["rules"][0]["preset"] = "int9"
for name, content in (("broken.json", json.dumps(saved)), ("report_as_config.json", json.dumps(report)),
                      ("cut.json", json.dumps(saved)[:300])):
    with open(name, "w") as file:
        file.write(content)
    fails(2, [name], "calibrate", "float.h5", *DATA, "--config", name, "-o", "none.h5")
assert not os.path.exists("none.h5") and not os.path.exists("none.json")
