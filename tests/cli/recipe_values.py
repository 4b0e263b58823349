"""`run --set`: a recipe with other values; `compare` of such runs."""

import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import browser  # noqa: E402
from command import DIGITS, fails, result, run, snapshot  # noqa: E402


def recipe(name, **fields):
    phases = [{"command": "train", "phase": "first", "epochs": 1, "batch": 64, "output": "float.h5"},
              {"command": "calibrate", "checkpoint": "float.h5", "output": "int8.h5", "samples": 64},
              {"command": "evaluate", "checkpoint": "int8.h5"}]
    with open(name, "w") as file:
        json.dump({"data": DIGITS, "model": "mlp", "output": "out", "phases": phases, **fields}, file)
    return name


one = recipe("one.json")
fails(2, ["PHASE.FLAG=VALUE"], "run", one, "--set", "lr=0.1")
fails(2, ["PHASE.FLAG=VALUE"], "run", one, "--set", "train.lr")
fails(2, ["no phase 'trian'", "'train'"], "run", one, "--set", "trian.lr=0.1")
fails(2, ["train has no flag 'lrr'", "'lr'"], "run", one, "--set", "train.lrr=0.1")
fails(2, ["use one"], "run", one, "--set", "train.lr=0.1", "train.lr=0.2")
fails(2, ["use one", "first.lr=0.1", "train.lr=0.2"], "run", one, "--set", "first.lr=0.1", "train.lr=0.2")
assert fails(2, ["no phase 'qat'"], "run", one, "--set", "qat.lr=0.1").count("evaluate") == 1
fails(2, ["--lr", "before any ran"], "run", one, "--set", "first.lr=fast")
fails(2, ["true or false", "fold-bn"], "run", one, "--set", "train.fold-bn=3")
before = snapshot()
words = run("run", one, "--dry-run").stdout
assert "first: would write out/float.h5" in words and "evaluate: would write nothing" in words, words
assert snapshot() == before and not os.path.exists("out")
done = result("run", one, "--set", "first.epochs=2", "calibrate.preset=w4a4", "train.val-fraction=0.2", "train.fold-bn=true")
assert done["phases"][0]["result"]["epochs"] == 2 and "folded" in done["phases"][0]["result"], done
assert os.path.exists("out/float.best.h5")
assert result("inspect", "out/int8.h5")["identity"]["quantization"]["preset"] == "w4a4"

# `compare` of four runs of one recipe. Two of them have the same numbers.
runs = recipe("runs.json", phases=[{"command": "train", "epochs": 1, "output": "run/"}])
for n, lr in enumerate((0.001, 0.004, 0.016), 1):
    run("run", runs, "--set", f"train.lr={lr}", "train.val-fraction=0.2", "-o", f"runs/{n}")
shutil.copytree("runs/1/run", "runs/4/run")
# Names in the figure cover no other name and no point. Points at the same place share one text.
MEASURE = """<script>
const boxes = [...document.querySelectorAll("svg g.wide text, svg g.narrow text, svg circle")].map(part => [part, part.getBoundingClientRect()])
  .filter(([part, box]) => box.width > 0);
const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
let names = 0, covered = 0;
boxes.forEach(([part, box], at) => {
  if (part.tagName === "text") names += part.textContent.split(", ").length;
  for (const [other, where] of boxes.slice(0, at))
    if (meet(box, where) && (part.tagName === "text" || other.tagName === "text")) covered++;
});
document.title = `${names} names, ${covered} covered`;
</script></body>"""
if browser.find():
    run("compare", *(f"runs/{n}/run" for n in (1, 2, 3, 4)), "--html", "points.html")
    with open("points.html") as file, open("measured.html", "w") as measured:
        measured.write(file.read().replace("</body>", MEASURE))
    for width in (400, 1000, 2000):
        shown = browser.browse("measured.html", "--dump-dom", size=f"{width},900")
        assert "<title>4 names, 0 covered</title>" in shown, (width, re.search("<title>.*</title>", shown)[0])
words = run("compare", "runs/1/run", "runs/3/run/").stdout
assert "--lr 0.001" in words and "--lr 0.016" in words and "runs/3/run" in words, words
os.makedirs("plain")
fails(2, ["plain", "no run directory"], "compare", "plain")
print("recipe values: ok")
