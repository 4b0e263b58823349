"""Damaged files of runs. A value of another type and a missing key are ignored, or an error that names the file,
with exit status 2."""

import copy
import json
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, TINY, run  # noqa: E402

OTHERS = [None, True, 3, 2.5, "text", [], {}, [[]], {"a": {}}]
random.seed(1)


def value_paths(value, path=()):
    """The paths of all values in a value."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else []
    for key, member in members:
        yield from value_paths(member, (*path, key))


def changed(value, path, other):
    """A copy with another value at a path; without it where `other` is Ellipsis."""
    out = copy.deepcopy(value)
    at = out
    for key in path[:-1]:
        at = at[key]
    if other is Ellipsis:
        del at[path[-1]]
    else:
        at[path[-1]] = other
    return out


def damage(value):
    """(key, value) with one change each."""
    for path in value_paths(value):
        if path:
            yield path[-1], changed(value, path, ...)
            yield path[-1], changed(value, path, random.choice(OTHERS))


def tried(file, text, key, *commands):
    with open(file, "w") as out:
        out.write(text)
    for words in commands:
        done = run(*words, status=None)
        printed = done.stderr.strip()
        assert done.returncode in (0, 2) and "json.exception" not in printed, (file, key, words, printed)
        if done.returncode == 2:
            rejected.append(key)
            # A flag of config.json that has another value is an error of that flag or option.
            named = file in printed or "run/ " in printed or "--" in printed or f"[{key}]" in printed
            assert named and printed.count("\n") == 0, (file, key, words, printed)


run("train", *TINY, "--data", DIGITS, "--epochs", 1, "--batch", 64, "--val-fraction", 0.2, "--set", "log=tensorboard,csv", "-o", "run/")
shutil.copytree("run", "kept")
rejected = []
with open("run/config.json") as file:
    config = json.load(file)
for key, other in damage({**config, "settings": {"a": 1}}):
    tried("run/config.json", json.dumps(other), key, ["compare", "run/"], ["train", "--resume", "run/"])
assert len(rejected) > 10 and {"command", "run_format", "given", "defaults"} <= set(rejected), rejected
shutil.copy("kept/config.json", "run/config.json")

rejected = []
with open("run/metrics.jsonl") as file:
    lines = [json.loads(line) for line in file]
seen = set()
for number, line in enumerate(lines):
    if line["event"] in seen:
        continue
    seen.add(line["event"])
    kept = {key: value for key, value in line.items() if key != "confusion"} | (
        {"confusion": line["confusion"][:2]} if "confusion" in line else {})
    for key, other in damage(kept):
        text = "".join(json.dumps(other if at == number else one) + "\n" for at, one in enumerate(lines))
        tried("run/metrics.jsonl", text, key, ["compare", "run/"])
    tried("run/metrics.jsonl", text, key, ["train", "--resume", "run/"])
assert {"epoch", "classes", "end"} <= seen and {"event", "step", "best", "state", "confusion", "probability"} <= set(rejected), rejected
for words in ["", "null", "[1]", '{"event": 1}', '{"event": "epoch"}', "\0\1", "{" * 9]:
    tried("run/metrics.jsonl", words + "\n", words, ["compare", "run/"])
shutil.copy("kept/metrics.jsonl", "run/metrics.jsonl")
run("train", "--resume", "run/")
