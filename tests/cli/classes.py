"""Class names: read from every kind of data set, stored in checkpoints, shown in every output with classes. Attributes of
others do no harm."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, TINY, fails, result, run  # noqa: E402

NAMES = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun <b>"]
ASCII = [name.replace("ü", "ue") for name in NAMES]


def digits(name, classes=None, where="/", count=None, **attributes):
    with h5py.File(DIGITS) as source, h5py.File(name, "w") as file:
        for group in ("train", "test"):
            source.copy(group, file)
        if classes is not None:
            file[where].attrs["classes"] = classes
        for key, value in attributes.items():
            for place in (file, file["train"], file["train/x"], file["train/y"]):
                place.attrs[key] = value
    return name


def groups(file):
    return result("inspect", file)["groups"]


ways = {
    "variable": NAMES,
    "fixed": np.array([name.encode() for name in NAMES]),
    "objects": np.array(NAMES, dtype=h5py.string_dtype("utf-8")),
    "padded": np.array([name.encode() for name in NAMES], dtype=h5py.string_dtype("utf-8", 30)),
    "json": json.dumps(NAMES),
    "json bytes": np.bytes_(json.dumps(NAMES, ensure_ascii=False).encode()),
    "lines": "\n".join(NAMES) + "\n",
    "commas": ", ".join(NAMES),
}
for way, value in ways.items():
    for where in ("/", "train"):
        file = digits("names.h5", value, where)
        found = groups(file)["train"]
        assert found["class_names"] == NAMES and found["classes"] == 10, (way, where, found)
assert "10 classes: null, eins" in run("inspect", file).stdout

# Training takes the number of classes, and the checkpoint the names; every later command shows them.
data = digits("data.h5", NAMES)
run("train", *TINY, "--data", data, "--epochs", "3", "--batch", "64", "-o", "float.h5")
assert "fünf" in run("inspect", "float.h5").stdout
run("calibrate", "float.h5", "--data", DIGITS, "-o", "int8.h5")
run("qat", "int8.h5", "--data", DIGITS, "--epochs", "1", "-o", "qat.h5")
run("compress", "qat.h5", "-o", "small.h5")
for checkpoint in ("float.h5", "int8.h5", "qat.h5", "small.h5"):
    lines = run("evaluate", checkpoint, "--data", DIGITS).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:11]] == [name.split()[0] for name in NAMES], lines
    found = result("evaluate", checkpoint, "--data", DIGITS)
    assert [c["name"] for c in found["classes"]] == NAMES
    assert sum(c["correct"] for c in found["classes"]) == round(found["accuracy"] / 100 * found["count"])
    assert all(c["count"] == c["correct"] + sum(m["count"] for m in c["mistaken"]) for c in found["classes"])
text = run("predict", "qat.h5", "--data", DIGITS, "-o", "predictions.h5").stdout
with h5py.File("predictions.h5") as file:
    assert json.loads(file["attributes"][()])["class_names"] == NAMES
    counts = np.bincount(file["logits"][()].argmax(1), minlength=10)
assert f"answers: {counts[0]} null, {counts[1]} eins" in text, text
assert [c["count"] for c in result("predict", "qat.h5", "--data", DIGITS, "-o", "predictions.h5")["answers"]] == list(counts)
run("inspect", "--calibration", "int8.h5", "--html", "page.html")
with open("page.html", encoding="utf-8") as page:
    text = page.read()
assert "neun &lt;b&gt;" not in text or "neun <b>" not in text  # never as markup
assert "fünf" in text and "neun <b>" not in text

# A network without names takes them from later data; unnamed networks say nothing of classes.
run("train", *TINY, "--data", DIGITS, "--epochs", "1", "--batch", "64", "-o", "unnamed.h5")
assert len(run("evaluate", "unnamed.h5", "--data", DIGITS).stdout.splitlines()) == 1
assert "sieben" in run("evaluate", "unnamed.h5", "--data", data).stdout
run("calibrate", "unnamed.h5", "--data", data, "-o", "named.h5")
assert "sieben" in run("evaluate", "named.h5", "--data", DIGITS).stdout

# Names that do not fit the network: counted otherwise a warning, in another order an error.
more = digits("more.h5", NAMES + ["zehn"])
done = run("evaluate", "float.h5", "--data", more)
assert "names 11 classes, the network has 10 outputs" in done.stderr and "zehn" not in done.stdout, done
fails(2, ["class 0 is 'eins'", "'null'"], "evaluate", "float.h5", "--data", digits("order.h5", NAMES[1:] + NAMES[:1]))
done = run("evaluate", "float.h5", "--data", digits("other.h5", ASCII))
assert "class 5 is 'fuenf' in the data and 'fünf' in the network" in done.stderr and "fünf" in done.stdout, done
fails(2, ["label", "0 to 3", "'classes'"], "train", *TINY, "--data", digits("few.h5", NAMES[:4]), "-o", "out.h5")
assert result("train", *TINY, "--data", more, "--epochs", "1", "-o", "eleven.h5")["output"] == "eleven.h5"
assert "11 classes" in run("inspect", "eleven.h5").stdout

# Attributes may have any content, `classes` too.
kinds = {
    "number": 3, "float": 1.5, "empty": h5py.Empty("f"), "no text": h5py.Empty(h5py.string_dtype()),
    "compound": np.array((1, 2.5), dtype=[("a", int), ("b", float)]), "bool": True, "opaque": np.void(b"\x00\xff"),
    "complex": 1 + 2j, "list": np.arange(12), "table": np.array([["a", "b"], ["c", "d"]], dtype=object),
    "latin": np.bytes_(b"caf\xe9"), "none": [], "long": "x" * 60000, "{": "{", "[1]": "[1]", "python": str(NAMES),
}
for kind, value in kinds.items():
    for where in ("/", "train"):
        done = run("inspect", digits("kind.h5", None, description=value, units=value, **{"class": value, kind: value}))
        assert "10 classes" in done.stdout and not done.stderr, (kind, done)
for kind in ("empty", "no text", "compound", "bool", "opaque", "complex", "list", "none", "{", "[1]", "python"):
    done = run("inspect", digits("kind.h5", kinds[kind]))
    assert "10 classes" in done.stdout and "is ignored" in done.stderr, (kind, done)
for kind in ("float",):
    fails(2, ["'classes'", "1.5"], "inspect", digits("kind.h5", kinds[kind]))
assert groups(digits("kind.h5", "10"))["train"] == groups(DIGITS)["train"]
with h5py.File(DIGITS) as source, h5py.File("long.h5", "w", libver="latest") as file:
    source.copy("train", file)
    file.attrs["classes"] = np.full(1_000_000, b"a name of 20 letters")
fails(2, ["'classes'", "16 MiB"], "inspect", "long.h5")
latin = groups(digits("kind.h5", np.array([b"caf\xe9\n"] + [b"x"] * 9)))["train"]["class_names"]
assert latin[0] == "caf\ufffd\\x0a", latin
print("classes: ok")
