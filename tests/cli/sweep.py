"""`run --set` and `sweep`: recipes with other values, one or a grid of them."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
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
fails(2, ["give one"], "run", one, "--set", "train.lr=0.1", "train.lr=0.2")
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

# One that fails leaves the others be.
broken = recipe("broken.json", grid={"train.batch": [64, 32]})
os.makedirs("failing/001/int8.h5")
done = run("sweep", broken, "-o", "failing", status=1)
assert "1 of 2 points failed" in done.stderr and "001/errors.txt" in done.stdout, (done.stdout, done.stderr)
assert os.path.exists("failing/002/report.json")
print("sweep: ok")
