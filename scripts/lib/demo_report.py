"""The table of scripts/demo and build/demo/report.json, from the results of a recipe's phases."""
import json
import os
import sys

folder, phases_file, codes_file, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
with open(phases_file) as file:
    phases = json.load(file)["phases"]
with open(codes_file) as file:
    codes = json.load(file)

ROWS = [("float", "float"), ("int8", "INT8"), ("e4m3", "E4M3"), ("w4a4", "W4A4")]
scores, step_ms = {}, {}
for phase in phases:
    found = phase["result"]
    if phase["command"] == "evaluate":
        scores[os.path.basename(found["checkpoint"]).removesuffix(".h5")] = found
    if phase["command"] in ("train", "qat"):
        step_ms[os.path.basename(found["output"]).removesuffix(".h5")] = 1000 * phase["seconds"] / found["steps"]


def accuracy(key):
    if key not in scores:
        return ""
    p, n = scores[key]["accuracy"] / 100, scores[key]["count"]
    return f"{100 * p:.2f} ± {100 * (p * (1 - p) / n) ** 0.5:.2f}"


print(f"\n{'':6}{'PTQ %':>15}{'QAT %':>15}{'gain':>8}{'weight bytes':>14}{'ms / step':>11}")
for key, label in ROWS:
    ptq, qat = (key, None) if key == "float" else (f"{key}_ptq", f"{key}_qat")
    gain = f"{scores[qat]['accuracy'] - scores[ptq]['accuracy']:+.2f}" if qat else ""
    print(f"{label:6}{accuracy(ptq):>15}{accuracy(qat):>15}{gain:>8}"
          f"{scores[qat or ptq]['weight_bytes']:>14,}{step_ms[qat or ptq]:>11.2f}")
print(f"test accuracy ± binomial error of {scores['float']['count']} images by other writers; float has no PTQ")

report = {key: value["accuracy"] for key, value in scores.items()}
report |= codes | {"seconds": seconds, "files": sorted(os.listdir(folder))}
with open(os.path.join(folder, "report.json"), "w") as file:
    json.dump(report, file, indent=1)
