"""inspect --calibration: a table, JSON, and a page that is opened in a browser."""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import browser  # noqa: E402
from command import DIGITS, SHORT, events, fails, result, run  # noqa: E402

DATA = ["--data", DIGITS, "--samples", "128"]
METHODS = ["max", "percentile", "entropy", "mse", "octav"]


def report(*arguments):
    found = result("inspect", "--calibration", *arguments)
    assert found["kind"] == "calibration", found
    for q in found["quantizers"]:
        assert [m["method"] for m in q["methods"]] == METHODS, q
    return {q["name"]: q for q in found["quantizers"]}


run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", *DATA, "--method", "one_pass", "--state", "s.h5", "-o", "int8.h5")
run("calibrate", "float.h5", *DATA, "--state", "max_state.h5", "-o", "max.h5")

# A checkpoint that holds histograms, the state alone, the state of a checkpoint, and data: the same numbers.
held = report("int8.h5")
assert {"conv1.input_quantizer", "conv1.weight_quantizer", "fc.input_quantizer"} <= set(held), list(held)
for q in held.values():
    assert q["in_force"]["amax"] and q["in_force"]["sqnr_db"] > 10 and q["calibrated"], q
    assert all(m["amax"] and m["sqnr_db"] and 0 <= m["clipped"] < 0.6 for m in q["methods"]), q
assert held == report("int8.h5", "--state", "s.h5")
with_data = report("int8.h5", *DATA)
assert held == with_data, [n for n in held if held[n] != with_data[n]]
alone = report("s.h5")
assert set(alone) == {n for n, q in held.items() if q["kind"] == "activation"}
assert all(q["minimum"] == held[n]["minimum"] and q["methods"][0] == held[n]["methods"][0]
           for n, q in alone.items() if q["format"] == held[n]["format"])
uncalibrated = report("float.h5", *DATA, "--preset", "w4a4", "--edge-bits", "0")
assert not uncalibrated["fc.input_quantizer"]["calibrated"] and uncalibrated["fc.input_quantizer"]["format"] == "uint4"
assert report("float.h5", "--state", "s.h5", "--method", "one_pass").keys() == held.keys()

# The report gives the SQNR of the values; repeated values of images are excluded.
measured = {e["quantizer"]: e["sqnr_db"]
            for e in events("calibrate", "float.h5", *DATA, "--method", "one_pass", "--errors", "-o", "again.h5")
            if e["event"] == "quantization_error"}
for name, q in held.items():
    if name != "conv1.input_quantizer":
        assert abs(measured[name] - q["in_force"]["sqnr_db"]) < 0.2, (name, measured[name], q["in_force"])

# Max has no histogram: known figures are printed, with the reason for the missing ones.
text = run("inspect", "--calibration", "max.h5").stdout
assert "-: collected by max, which keeps no histogram" in text and "--data collects them now" in text, text
q = report("max_state.h5")["fc.input_quantizer"]
assert q["in_force"]["amax"] and q["in_force"]["sqnr_db"] is None and "no histogram" in q["in_force"]["reason"], q
assert q["methods"][0]["amax"] == q["in_force"]["amax"] and q["methods"][3]["amax"] is None, q

# Files that do not match are rejected, and no file is written.
report_command = ["inspect", "--html", "out.html", "--calibration"]
run("train", *SHORT[:-1], "2", "-o", "other.h5")
run("calibrate", "other.h5", *DATA, "--method", "one_pass", "-o", "other8.h5")
run("export", "int8.h5", "-o", "int8")
fails(2, ["s.h5", "another model"], *report_command, "other8.h5", "--state", "s.h5")
fails(2, ["max_state.h5", "conv1.input_quantizer"], *report_command, "int8.h5", "--state", "max_state.h5")
fails(2, ["float.h5", "--data"], *report_command, "float.h5")
fails(2, [DIGITS], *report_command, DIGITS)
fails(2, ["int8_scales.h5", "checkpoint"], *report_command, "int8_scales.h5")
fails(2, "missing.h5", *report_command, "missing.h5")
fails(2, ["--preset", "already quantized"], *report_command, "int8.h5", "--preset", "int8")
fails(2, ["--data", "calibration state"], *report_command, "s.h5", *DATA)
fails(2, "use one", *report_command, "int8.h5", "--state", "s.h5", *DATA)
fails(2, "--percentile", *report_command, "int8.h5", "--percentile", "101")
fails(2, ["--html", "--calibration"], "inspect", "--html", "out.html", "int8.h5")
fails(2, "nodir", "inspect", "--calibration", "int8.h5", "--html", "nodir/out.html")
run("sensitivity", "float.h5", *DATA, "--effective-bits", "6", "--plan", "plan.json")
fails(2, "--html", "inspect", "--calibration", "int8.h5", "--plan", "plan.json")
with open("no_plan.json", "w") as file:
    file.write("{}")
fails(2, "no_plan.json", *report_command, "int8.h5", "--plan", "no_plan.json")
with open("plan.json") as file:
    plan = file.read()
with open("other_plan.json", "w") as file:
    file.write(re.sub(r'"layer": *"', '"layer":"other.', plan))
fails(2, ["other_plan.json", "another network"], *report_command, "int8.h5", "--plan", "other_plan.json")
with open("s.h5", "rb") as file:
    whole = file.read()
for name, contents in (("cut.h5", whole[: len(whole) // 2]), ("empty.h5", b""), ("text.h5", b"<html>")):
    with open(name, "wb") as file:
        file.write(contents)
    fails(2, name, *report_command, name)

# The page refers to nothing outside, and names with the characters of HTML stay text.
run("inspect", "--calibration", "int8.h5", "--html", "page.html")
run("inspect", "--calibration", "int8.h5", "--html", "plan.html", "--plan", "plan.json")
os.rename("int8.h5", "<b>&'int8.h5")
run("inspect", "--calibration", "<b>&'int8.h5", "--html", "named.html")
for name in ("page.html", "named.html"):
    with open(name) as file:
        page = file.read()
    assert not re.search(r"https?:|//|src=|url\(|@import|<link", page), name
assert "<b>&'" not in page and "&#60;b&#62;&#38;&#39;int8.h5" in page
if not browser.find():
    print("SKIPPED: the rest requires a browser. Looked for", *browser.NAMES)
    sys.exit(77)

plain = browser.dom("page.html")
assert browser.column(plain, "sqnr")[0] is None and plain.count("<button") == 14, plain.count("<button")
assert plain.count("<section") == len(held) and plain.count('class="histogram"') == len(held)
for key, fragment, order in (("sqnr", "#sort=sqnr", "ascending"), ("sqnr", "#sort=-sqnr", "descending"),
                             ("clipped", "#sort=-clipped", "descending"), ("mse", "#sort=mse", "ascending")):
    sorted_as, cells = browser.column(browser.dom("page.html", fragment), key)
    numbers = [float(cell) for cell in cells]
    assert sorted_as == order and len(numbers) == len(held), (fragment, sorted_as)
    assert numbers == sorted(numbers, reverse=order == "descending"), (fragment, numbers)
planned = browser.dom("plan.html", "#sort=-plan-weights")
rows = re.findall(r'<tr data-name="([^"]*)"', planned[planned.index("Sensitivity plan"):])
weights = {layer["layer"]: layer["weights"] for layer in json.loads(plan)["layers"]}
assert sorted(rows) == sorted(weights) and [weights[r] for r in rows] == sorted(weights.values(), reverse=True), rows
run("inspect", "--calibration", "max.h5", "--html", "max.html")
cells = browser.column(browser.dom("max.html", "#sort=-sqnr"), "sqnr")[1]
assert "" in cells and "" not in cells[: cells.index("")] and not any(cells[cells.index(""):]), cells
assert "<title>Calibration of &lt;b&gt;&amp;'int8.h5</title>" in browser.dom("named.html")
for name, dark in (("light.png", False), ("dark.png", True)):
    assert browser.screenshot("page.html", name, dark=dark) > 50000, name
print("calibration report: ok")
