"""`run --set` and `sweep`: recipes with other values, one or a grid of them."""

import json
import os
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import browser  # noqa: E402
from command import DIGITS, fails, patient, result, run, snapshot, start  # noqa: E402


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
fails(2, ["give one"], "run", one, "--set", "train.lr=0.1", "train.lr=0.2")
fails(2, ["give one", "first.lr=0.1", "train.lr=0.2"], "run", one, "--set", "first.lr=0.1", "train.lr=0.2")
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

GRID = {"train.lr": [0.001, 0.004], "calibrate.preset": ["int8", "w4a4"]}
grid = recipe("grid.json", grid=GRID)
fails(2, ["no grid", "fakequant run"], "sweep", one, "-o", "sweep")
fails(2, ["bad.json", "list"], "sweep", recipe("bad.json", grid={"train.lr": 3}), "-o", "sweep")
fails(2, ["int9", "train.lr=0.1", "before any ran"], "sweep",
      recipe("bad.json", grid={"train.lr": [0.1], "calibrate.preset": ["int8", "int9"]}), "-o", "sweep")
fails(2, ["no phase 'fold'"], "sweep", recipe("bad.json", grid={"fold.data": ["d.h5"]}), "-o", "sweep")
fails(2, ["10,000"], "sweep", recipe("bad.json", grid={"train.lr": [1] * 101, "train.seed": [1] * 100}), "-o", "sweep")
fails(2, ["--output"], "sweep", grid)
assert "4 points" in run("sweep", grid, "-o", "sweep", "--dry-run").stdout and not os.path.exists("sweep")
done = result("sweep", grid, "-o", "sweep", "--jobs", "2")["trials"]
assert [trial["set"] for trial in done] == [[f"train.lr={lr}", f"calibrate.preset={preset}"] for lr in (0.001, 0.004)
                                           for preset in ("int8", "w4a4")], done
assert all(trial["accuracy"] > 10 and trial["weight_bytes"] > 0 for trial in done), done
assert sorted(os.listdir("sweep")) == ["001", "002", "003", "004", "sweep.json"]

# It goes on where it stopped: what has a report is left alone.
times = {n: os.stat(f"sweep/00{n}/report.json").st_mtime_ns for n in (1, 2, 4)}
os.remove("sweep/003/report.json")
os.remove("sweep/003/int8.h5")
words = run("sweep", grid, "-o", "sweep").stdout
assert words.count("done before") == 3, words
assert {n: os.stat(f"sweep/00{n}/report.json").st_mtime_ns for n in (1, 2, 4)} == times and os.path.exists("sweep/003/int8.h5")
fails(2, ["another grid", "--force"], "sweep", recipe("other.json", grid={"train.lr": [0.001]}), "-o", "sweep")

# What was run with other settings is not taken for what is asked now.
recipe("grid.json", grid=GRID, comment="the same")
assert run("sweep", grid, "-o", "sweep").stdout.count("done before") == 4
for more in ([], ["--dry-run"]):
    fails(2, ["sweep/001", "first --seed is not given there, 5 here", "--force"], "sweep", grid, "-o", "sweep", "--seed", "5", *more)
shutil.copy(DIGITS, "copy.h5")
fails(2, ["sweep/001", "copy.h5", "--data is"], "sweep", grid, "-o", "sweep", "--data", "copy.h5")
text = open(grid).read()
with open(grid, "w") as file:
    file.write(text.replace('"epochs": 1', '"epochs": 2'))
fails(2, ["sweep/001", "first --epochs is 1 there, 2 here", "another folder", "--force"], "sweep", grid, "-o", "sweep")
done = result("sweep", grid, "-o", "sweep", "--force")["trials"]
for n, trial in enumerate(done, 1):
    with open(f"sweep/00{n}/report.json") as file:
        assert json.load(file)["phases"][0]["result"]["epochs"] == 2
    assert "epoch 1/2" in open(f"sweep/00{n}/output.txt").read()
assert run("sweep", grid, "-o", "sweep").stdout.count("done before") == 4

# Points beside each other.
runs = result("compare", "sweep", "--html", "points.html")["runs"]
assert [of["run"] for of in runs] == [f"sweep/00{n}" for n in (1, 2, 3, 4)] and all(of["state"] == "done" for of in runs), runs
assert [of["accuracy"] for of in runs] == [trial["accuracy"] for trial in done] and runs[0]["validated"]
# Names in the figure cover neither each other nor a point; those of points on each other are one text.
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
    run("compare", "sweep", "sweep/001", "sweep/002", "--html", "twice.html")
    for page, names in (("points.html", 4), ("twice.html", 6)):
        with open(page) as file, open("measured.html", "w") as measured:
            measured.write(file.read().replace("</body>", MEASURE))
        for width in (400, 1000, 2000):
            shown = browser.browse("measured.html", "--dump-dom", size=f"{width},900")
            assert f"<title>{names} names, 0 covered</title>" in shown, (page, width, re.search("<title>.*</title>", shown)[0])
words = run("compare", "sweep/001", "sweep/004/").stdout
assert "--train.lr 0.001" in words and "--train.lr 0.004" in words and "sweep/004" in words, words
fails(2, ["sweep/sweep.json", "no run directory"], "compare", "sweep/sweep.json")
os.makedirs("plain")
fails(2, ["plain", "no run directory"], "compare", "plain")

# Stopped, its points save, and go on where they were.
long = recipe("long.json", grid={"train.lr": [0.001, 0.004]},
              phases=[{"command": "train", "epochs": 20000, "output": "run/"}])
process = start("sweep", long, "-o", "stopped", "--jobs", "2")
while not all(os.path.exists(f"stopped/00{n}/run/checkpoints/last.h5") for n in (1, 2)):
    assert process.poll() is None, process.communicate()
    time.sleep(0.05)
process.send_signal(signal.SIGINT)
words, errors = process.communicate(timeout=patient(100))
assert process.returncode == 130 and "stopped by Ctrl-C: 0 of 2 points are done; the same line goes on" in errors, errors
assert words.count(": stopped") == 2 and "exit status" not in words, words
for n in (1, 2):
    assert "stopped by SIGTERM" in open(f"stopped/00{n}/errors.txt").read()
    with open(f"stopped/00{n}/run/metrics.jsonl") as file:
        last = json.loads(file.readlines()[-1])
    assert last["event"] == "end" and last["state"] == "stopped by SIGTERM", last



def starts(n):
    with open(f"stopped/00{n}/run/metrics.jsonl") as file:
        return [line["step"] for line in map(json.loads, file.read().splitlines()[:-1]) if line["event"] == "start"]


process = start("sweep", long, "-o", "stopped", "--jobs", "2")
while not all(len(starts(n)) == 2 for n in (1, 2)):
    assert process.poll() is None, process.communicate()
    time.sleep(0.05)
process.send_signal(signal.SIGTERM)
_, errors = process.communicate(timeout=patient(100))
assert process.returncode == 143 and "stopped by SIGTERM" in errors, errors
assert all(starts(n)[0] == 0 < starts(n)[1] for n in (1, 2))
short = recipe("short.json", grid={"train.lr": [0.001, 0.004]}, phases=[{"command": "train", "epochs": 2, "output": "run/"}])
fails(2, ["stopped/001", "train --epochs is 20000 there, 2 here"], "sweep", short, "-o", "stopped")
run("sweep", short, "-o", "stopped", "--force")
for n in (1, 2):
    assert starts(n) == [0] and "epoch 1/2" in open(f"stopped/00{n}/output.txt").read()

# One that fails leaves the others be.
broken = recipe("broken.json", grid={"train.batch": [64, 32]})
os.makedirs("failing/001/int8.h5")
done = run("sweep", broken, "-o", "failing", status=1)
assert "1 of 2 points failed" in done.stderr and "001/errors.txt" in done.stdout, (done.stdout, done.stderr)
assert os.path.exists("failing/002/report.json")
print("sweep: ok")
