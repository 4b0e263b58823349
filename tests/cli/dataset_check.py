"""fakequant dataset check and show: each mistake that a file can have is found, and named by its place; a file without one
has none; pictures and pages hold the samples that they say."""

import base64
import io
import json
import os
import re
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import browser  # noqa: E402
from command import DIGITS, events, fails, result, run  # noqa: E402

RANDOM = np.random.default_rng(0)
N = 40


def data(name="d.h5", attributes=None, classes=None, **groups):
    """Groups of (x, y)."""
    with h5py.File(name, "w") as file:
        for group, (x, y) in groups.items():
            file[f"{group}/x"] = x
            file[f"{group}/x"].attrs.update((attributes or {}).get(group, {}))
            if y is not None:
                file[f"{group}/y"] = y
        if classes is not None:
            file.attrs["classes"] = classes
    return name


def images(*shape, count=N, high=1.0):
    return RANDOM.uniform(0, high, (count, *(shape or (3, 8, 8)))).astype(np.float32)


def check(name="d.h5", status=None):
    """(verdict, group, about) of each finding that is not fine, with its text."""
    lines = run("dataset", "check", name, "--json", status=status).stdout.splitlines()
    assert len(lines) == 1, lines
    found = json.loads(lines[0])["findings"]
    text = run("dataset", "check", name, status=status).stdout.splitlines()
    assert len(text) == len(found) + 1 and all(entry["text"] in line for entry, line in zip(found, text)), text
    return {(entry["verdict"], entry["group"], entry["about"]): entry["text"] for entry in found if entry["verdict"] != "fine"}


labels = np.arange(N) % 4

# Correct data sets.
assert check(DIGITS, 0) == {}
assert check(data(train=(images(), labels), test=(images(), labels)), 0) == {}
assert check(data(train=(images(), None)), 0) == {}
assert check(data(train=(RANDOM.integers(0, 90, (N, 12)), labels)), 0) == {}
assert check(data(train=(images(), RANDOM.normal(size=N).astype(np.float32))), 0) == {}
assert check(data(train=(images(), RANDOM.integers(0, 2, (N, 5)))), 0) == {}
assert check(data(train=(images(8, 8, 3), labels), attributes={"train": {"axes": "NCHW"}}), 0) == {}
big = RANDOM.integers(0, 256, (N, 3, 8, 8)).astype(np.uint8)
assert check(data(train=(big, labels), attributes={"train": {"scale": 1 / 255}}), 0) == {}


def one(found, key, *expected_text):
    """Just that was found."""
    assert list(found) == [key], found
    for text in expected_text:
        assert text in found[key], found


# Each mistake for itself.
one(check(data(train=(images(8, 8, 3), labels)), 1), ("wrong", "train", "shape"), "x.transpose(0, 3, 1, 2)", "NCHW")
one(check(data(train=(images(9, 7, 1), labels)), 0), ("doubt", "train", "shape"), "x.transpose(0, 3, 1, 2)")
one(check(data(train=(images(), labels), test=(images(3, 8, 9), labels)), 1), ("wrong", "", "shape"), "[3, 8, 9]", "[3, 8, 8]")
one(check(data(train=(np.zeros((N, 2, 3), np.int64), labels)), 1), ("wrong", "train", "shape"), "token ids [N, L]")
one(check(data(train=(big, labels)), 0), ("doubt", "train", "values"), "1 / 255")
for value in (np.nan, np.inf, -np.inf):
    x = images()
    x[[7, 31], 1, 2, 3] = value
    one(check(data(train=(x, labels)), 1), ("wrong", "train", "values"), "in 2 samples", "row 7")
x = RANDOM.integers(0, 90, (N, 12))
x[3, 3] = -1
one(check(data(train=(x, labels)), 1), ("wrong", "train", "values"), "-1 to 89")
found = check(data(train=(np.full((N, 3, 8, 8), 7, np.float32), labels)), 0)
assert found[("doubt", "train", "values")] == "nothing but 7", found
one(check(data(train=(images(), labels), test=(images(), labels), attributes={"test": {"scale": 0.5}}), 0), ("doubt", "", "values"), "test", "train")
one(check(data(train=(images(), labels[:30])), 1), ("wrong", "train", "labels"), "30 labels for 40 samples")
one(check(data(train=(images(), np.where(labels == 3, -1, labels))), 1), ("wrong", "train", "labels"), "label -1 in row 3")
one(check(data(train=(images(), labels), classes=["a", "b", "c"]), 1), ("wrong", "train", "labels"), "label 3 in row 3", "0 to 2")
one(check(data(train=(images(), labels), classes=["a", "b", "c", "d", "e", "f"]), 0), ("doubt", "train", "balance"), "4 (e), 5 (f)")
uneven = np.array([0] * 38 + [1] * 2)
one(check(data(train=(images(), uneven)), 0), ("doubt", "train", "balance"), "2 samples of class 1", "38 of class 0")
x, other = images(), images()
x[9] = x[4]
other[5] = x[11]
other[6] = x[12]
one(check(data(train=(x, None)), 0), ("doubt", "", "duplicates"), "1 samples of train", "train[4] and train[9]")
y = labels.copy()
y[9] = y[4]
apart = labels.copy()
apart[5:7] = labels[11], labels[12]
lines = [entry["text"] for entry in events("dataset", "check", data(train=(x, y), test=(other, apart)))[-1]["findings"]
         if entry["about"] == "duplicates"]
assert len(lines) == 2 and "train[11] and test[5], train[12] and test[6]" in lines[1] and "2 samples of test" in lines[1], lines
y[9] = (y[4] + 1) % 4
lines = [entry["text"] for entry in events("dataset", "check", data(train=(x, y), test=(other, apart)))[-1]["findings"]
         if entry["about"] == "duplicates"]
assert len(lines) == 3 and "another label: train[4] and train[9]" in lines[2], lines
lines = run("dataset", "check", data(train=(big, labels)), "--strict", status=1)
assert lines.stderr.startswith("fakequant: [dataset check] d.h5: 0 wrong, 1 doubted"), lines.stderr
assert check(DIGITS, 0) == {}

# Several at once, and none hides another.
x = images()
x[5] = np.nan
found = check(data(train=(x, labels[:3]), test=(images(8, 8, 3), labels)), 1)
assert {key[1:] for key in found} == {("train", "values"), ("train", "labels"), ("test", "shape"), ("", "shape")}, found
# Other groups, and x at the root.
with h5py.File("root.h5", "w") as file:
    file["x"], file["fold1/x"], file["notes"] = images(), images(), 3
assert "fold1" in run("dataset", "check", "root.h5").stdout
# Files that are not data sets.
with h5py.File("none.h5", "w") as file:
    file["values"] = [1]
fails(2, ["no group with an x", "values"], "dataset", "check", "none.h5")
np.save("x.npy", images())
fails(2, "fakequant dataset from-npy x.npy", "dataset", "check", "x.npy")
fails(2, "No such file", "dataset", "check", "missing.h5")
with open(DIGITS, "rb") as whole, open("cut.h5", "wb") as cut:
    cut.write(whole.read()[:-2000])
done = run("dataset", "check", "cut.h5", status=None)
assert done.returncode in (1, 2) and "cut.h5" in done.stdout + done.stderr

# A picture and a page.
shown = result("dataset", "show", DIGITS, "--samples", "30", "-o", "sheet.png", "--html", "page.html")
assert [of["name"] for of in shown["classes"]] == [str(i) for i in range(10)], shown
with h5py.File(DIGITS) as file:
    x, y = file["train/x"][...], file["train/y"][...]
assert all(len(of["rows"]) == 3 and set(y[of["rows"]]) == {i} for i, of in enumerate(shown["classes"]))
page = open("page.html", encoding="utf-8").read()
pictures = [base64.b64decode(text) for text in re.findall(r"data:image/png;base64,([^\"]*)\"", page)]
assert len(pictures) == 30 and re.findall(r"<figcaption>(\d+)<", page) == [str(row) for of in shown["classes"] for row in of["rows"]]
try:
    from PIL import Image
    first = np.asarray(Image.open(io.BytesIO(pictures[0])))
    expected = np.rint(x[shown["classes"][0]["rows"][0], 0] / 16 * 255)
    assert np.array_equal(first, np.kron(expected, np.ones((8, 8)))), "pixels are others"
    sheet = np.asarray(Image.open("sheet.png"))
    assert np.array_equal(sheet[4:68, 4:68, 0], first) and sheet.shape[2] == 3
except ImportError:
    print("without Pillow: pixels were not compared")
colours = (RANDOM.integers(0, 256, (6, 3, 300, 200))).astype(np.uint8)
data("large.h5", train=(colours, None), attributes={"train": {"scale": 1 / 255}})
run("dataset", "show", "large.h5", "-o", "large.png", "--html", "large.html")
run("dataset", "show", data("flat.h5", train=(images(5), labels), classes=["<b>", "&", "c", "d"]), "--html", "flat.html")
page = open("flat.html", encoding="utf-8").read()
assert "<h2>&#60;b&#62;</h2>" in page and "<h2>&#38;</h2>" in page and page.count("<code>") == 40
with open("texts.txt", "w") as file:
    file.write("Hello, world\nbye\n" * 10)
run("dataset", "from-text", "texts.txt", "--tokens", "words", "-o", "texts.h5")
run("dataset", "show", "texts.h5", "--html", "texts.html")
assert "<code>hello , world</code>" in open("texts.html").read()
fails(2, "only images", "dataset", "show", "flat.h5", "-o", "flat.png")
fails(2, ["-o sheet.png", "--html"], "dataset", "show", DIGITS)
fails(2, "no group 'val'", "dataset", "show", DIGITS, "--split", "val", "--html", "val.html")
if browser.find():
    assert "Samples of" in browser.dom("page.html")
    browser.screenshot("flat.html", "flat_page.png")

# Normalisation that makes infinity of finite values, of all channels or of one.
for attributes in [{"std": np.float32([1e-45, 1, 1])}, {"std": np.float32([1, 1e-45, 1]), "mean": np.float32([0, 0.5, 0])},
                   {"scale": np.float32(3e38), "std": np.float32([0.1, 0.1, 0.1])}]:
    bad = check(data("bad.h5", train=(images(high=4.0), labels), attributes={"train": attributes}), 1)
    assert "as the network sees channel" in bad["wrong", "train", "values"] and "inf" in bad["wrong", "train", "values"], bad
print("dataset check: ok")
