"""Every flag of run and compare changes something that can be seen, or is refused."""

import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, fresh, run  # noqa: E402

FLAG = re.compile(r"^ +(?:-\w \[ )?--([\w-]+)", re.MULTILINE)
TIMES = re.compile(r"[\d.e+-]+ (?:s|ms|min|MB|images/s|fakequant)\b|(?<=_seconds\":)[\d.e+-]+|[\d.]+(?= +\n)")
TRAIN = {"command": "train", "epochs": 1, "output": "run/"}
HOME = os.getcwd()


def write(path, content, **more):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(content if isinstance(content, str) else json.dumps({**content, **more}))


fresh("inputs")
write("inputs/one.json", {"data": "digits.h5", "model": "mlp", "output": "made", "phases": [TRAIN]})
write("inputs/none.json", {"output": "made", "phases": [{"command": "inspect", "file": "digits.h5"}]})
write("inputs/python", '#!/bin/sh\necho "1.0 an engine on $9"\n')
os.chmod("inputs/python", 0o755)
for name in ("digits.h5", "same.h5", "taken.json", "taken.html"):
    shutil.copy(DIGITS, f"inputs/{name}")
run("train", *SHORT, "-o", "inputs/before/")


def seen(line):
    """Output and files of the command, without times."""
    shutil.rmtree("work", ignore_errors=True)
    shutil.copytree("inputs", "work")
    os.chdir("work")
    done = run(*line, status=None)
    found = [done.returncode, sorted(TIMES.sub("", done.stdout).splitlines()), TIMES.sub("", done.stderr)]
    for folder, _, names in sorted(os.walk(".")):
        for path in (os.path.join(folder, name) for name in sorted(names)):
            with open(path, "rb") as file:
                found.append((path, config(file) if path.endswith("config.json") else path.endswith(".h5") and file.read()))
    os.chdir(HOME)
    return found


def config(file):
    reported = json.load(file)
    return reported["given"], reported["machine"]["threads"]


def check(command, line, cases):
    """A case is the text added to `line`, or to another line."""
    known = FLAG.findall(run(command, "--help").stdout)
    assert sorted(cases) == sorted(known), (command, set(cases) ^ set(known))
    usual = seen([command, *line])
    again = seen([command, *line])
    assert usual == again, f"not the same twice: {[pair for pair in zip(usual, again) if pair[0] != pair[1]]}"
    for flag, (added, *other) in cases.items():
        without = seen([command, *other[0]]) if other else usual
        changed = seen([command, *(other[0] if other else line), *added])
        assert changed != without, f"{command} {added} changes nothing and is not refused"


COMMON = {"help": (["--help"],), "json": (["--json"],), "quiet": (["--quiet"],), "device": (["--device", "cuda:9"],)}
RUN, LATENCY = ["one.json"], ["before/", "--latency", "--python", "./python"]
check("run", RUN, COMMON | {
    "recipe": (["one.json"], ["-o", "points"]), "data": (["-d", "same.h5"],), "model": (["-m", "cnn"],),
    "model-options": (["--model-options", '{"hidden": [7]}'],), "seed": (["--seed", "3"],), "dry-run": (["--dry-run"],),
    "report": (["--report", "report.json"],), "output": (["-o", "points"], RUN),
    "set": (["--set", "train.epochs=2"],), "threads": (["--threads", "1"],), "verbose": (["--verbose"],),
    "resume": (["--resume"], RUN + ["-o", ".", "--set", "train.output=before/", "train.model=cnn"]),
    "force": (["--force"], RUN + ["--report", "taken.json"])})

os.chdir(fresh("shares"))
shutil.copytree("../inputs", ".", dirs_exist_ok=True)

# Flags that have no effect are rejected.
for flag in (["--threads", "2"], ["--python", "python3"], ["--device", "cpu"]):
    fails(2, [flag[0], "--latency"], "compare", "before/", *flag)
for flag in (["--model", "cnn"], ["--model-options", "{}"], ["--seed", "1"], ["--data", "digits.h5"]):
    fails(2, [f"{flag[0]} reaches no phase of none.json"], "run", "none.json", *flag)
fails(2, ["--seed reaches no phase"], "run", "one.json", "--seed", "1", "--set", "train.seed=2")
run("run", "none.json", "--resume", "--threads", "1", "--device", "cpu")

# Flags for an engine: --latency runs it on a file.
os.chdir(HOME)
run("export", "inputs/before/", "--format", "onnx", "-o", "file.onnx")
check("compare", ["before/"], COMMON | {
    "runs": (["before/"], []), "html": (["--html", "page.html"],), "latency": (["--latency"],),
    "python": (["--python", "./python"], ["before/", "--latency"]), "threads": (["--threads", "3"], LATENCY),
    "force": (["--force"], ["before/", "--html", "taken.html"])})
print("flags of runs: ok")
