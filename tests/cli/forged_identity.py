"""Every value of a checkpoint's network and run settings is replaced by each kind of JSON value: commands read the file, or
reject it in a line that names it. No command accepts a value unchecked or truncates a number."""

import copy
import functools
import json
import operator
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, run  # noqa: E402
from forge import StateFile, listed, make_entry  # noqa: E402

KINDS = (None, True, -7.5, "x", [7], {"a": 7})
NO_WHOLE_NUMBERS = (1e38, 2.5, None)
run("train", *SHORT, "--metrics", "accuracy", "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "-o", "int8.h5")
RESUMED = {"float.h5": ["train", *SHORT, "--metrics", "accuracy", "--resume", "-o"],
           "run.h5": ["qat", "int8.h5", "--data", DIGITS, "--epochs", "1", "--val-fraction", "0.1", "--resume", "-o"]}
run(*[word for word in RESUMED["run.h5"] if word != "--resume"], "run.h5")


def value_paths(value, path=()):
    """Paths of all values; the last element of a list represents the others."""
    if path:
        yield path
    keys = value if isinstance(value, dict) else [len(value) - 1] if isinstance(value, list) and value else []
    for key in keys:
        yield from value_paths(value[key], (*path, key))


def set_value(tree, path, value):
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def forged(source, attributes, name):
    parts, data = [], b""
    for entry in source.entries:
        held = json.dumps(attributes).encode() if entry["name"] == "attributes" else source.get(entry["name"])
        parts.append(make_entry(entry["name"], held, len(data), entry["dtype"], entry["shape"]))
        data += held
    return listed(name, parts, data)


def check(source, attributes, command, report):
    name = forged(source, attributes, "forged.h5")
    done = run(*command, name, status=None, limits="ulimit -t 20")
    line = done.stderr.splitlines()[-1] if done.stderr else ""
    assert done.returncode == 0 or (done.returncode == 2 and line.startswith("fakequant: [")), (
        f"{command[0]}, {report}: {done.returncode}\n{done.stderr}")
    return done.returncode == 0


# Optional keys that this network does not use are added.
MORE = {"dense": False, "tokenizer": "", "task": {"loss": "cross_entropy", "metrics": "accuracy"}}
read = rejected = 0
for name, command in RESUMED.items():
    source = StateFile(name)
    whole = copy.deepcopy(source.attributes)
    assert check(source, whole, command, "as it was")
    for key in MORE:
        whole["model"].setdefault(key, MORE[key])
    for path in value_paths({"model": {**whole["model"], "model": {"name": "", "nodes": [{}]}}}):
        for kind in KINDS:
            attributes = copy.deepcopy(whole)
            set_value(attributes, path, kind)
            for words in (command, ["inspect"]):
                accepted = check(source, attributes, words, f"{path} is {kind!r}")
                read, rejected = read + accepted, rejected + (not accepted)
    for key in source.attributes:
        if key != "model" and key != "progress/settings" and (not key.startswith("quantizers/") or "/conv2.input" in key):
            for path in value_paths(whole[key], (key,)):
                old = functools.reduce(operator.getitem, path, whole)
                for kind in NO_WHOLE_NUMBERS:
                    attributes = copy.deepcopy(whole)
                    set_value(attributes, path, kind)
                    accepted = check(source, attributes, command, f"{path} is {kind!r}")
                    assert not accepted or type(old) is not int, f"{command[0]} took {kind!r} for {old} at {path}"
                    read, rejected = read + accepted, rejected + (not accepted)
assert read > 20 and rejected > 200, (read, rejected)
print(f"forged identity: {read} read, {rejected} refused: ok")
