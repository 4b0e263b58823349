"""fakequant dataset from-parquet: columns of numbers, texts, categories and lists, images in bytes as Hugging Face's data
sets have them, names of classes, gaps; damaged files and columns that cannot be used."""

import json
import os
import subprocess
import sys

import h5py
import numpy as np

PYTHON = os.environ["FAKEQUANT_PARQUET_PYTHON"]
if not os.path.exists(PYTHON):
    print("SKIPPED: no pyarrow")
    raise SystemExit(77)
os.environ["FAKEQUANT_PYTHON"] = PYTHON
sys.path.insert(0, os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "cli", "lib"))
from command import fails, has_images, result, run  # noqa: E402

subprocess.run([PYTHON, os.path.join(os.path.dirname(os.path.abspath(__file__)), "write_files.py")], check=True)
COUNT = 9000


def convert(name, *arguments):
    return ["dataset", "from-parquet", name, *arguments, "-o", "out.h5", "--force"]


def read(part, group="train"):
    with h5py.File("out.h5") as file:
        return file[group][part][...]


def classes():
    with h5py.File("out.h5") as file:
        return [name.decode() for name in np.atleast_1d(file.attrs["classes"])]


# Every kind of column, more rows than a batch, in the order of the file.
told = result(*convert("trees.parquet", "--label", "tree", "--drop", "when", "--one-hot", "colour", "--test", "0", "--keep-values"))
assert told["columns"] == ["id", "size", "old", "colour=blue\nish", "colour=green, \"dark\"", "colour=red", "place[0]",
                           "place[1]", "place[2]"], told["columns"]
x, i = read("x"), np.arange(COUNT)
assert x.shape == (COUNT, 9)
assert np.array_equal(x[:, 0], i) and np.array_equal(x[:, 2], i % 3 == 0)
assert np.array_equal(x[:, 3:6], np.stack([i % 3 == 2, i % 3 == 1, i % 3 == 0], 1))
assert np.array_equal(x[:, 6:], np.stack([i, -i, i / 2], 1))
with open("size.json", encoding="utf-8") as file:
    assert np.array_equal(x[:, 1], np.float32(json.load(file)))
assert classes() == ["ash", "oak"] and np.array_equal(read("y"), 1 - i % 2)

# Columns that are named, a file for the test, real labels, names of classes of the file, gaps.
run(*convert("trees.parquet", "--label", "tree", "--columns", "place,id", "--test-file", "test.parquet", "--keep-values"))
assert read("x").shape == (COUNT, 4) and read("x", "test").shape == (50, 4)
run(*convert("numbers.parquet", "--label", "y", "--task", "real", "--test", "0"))
assert np.array_equal(read("y").ravel(), np.float32([0.5, 1.5, 2.5, 9]))
run(*convert("numbers.parquet", "--task", "none", "--test", "0", "--keep-values"))
assert read("x").shape == (4, 2)
run(*convert("named.parquet", "--label", "label", "--test", "0"))
assert classes() == ["zebra", "ant"] and list(read("y")) == [1, 0, 1, 0]
fails(2, ["gaps.parquet", "line 3", "--missing"], *convert("gaps.parquet", "--label", "y"))
run(*convert("gaps.parquet", "--label", "y", "--missing", "skip", "--test", "0", "--keep-values"))
assert list(read("x").ravel()) == [1, 3, 5]

# What cannot be used is named.
fails(2, ["[dataset from-parquet]", "no column 'tre': it has id, size"], *convert("trees.parquet", "--label", "tre"))
fails(2, "--label is missing: name the column of labels, which is one of a, y", *convert("gaps.parquet"))
fails(2, "column 'more' is struct<b: int64>, which is neither numbers nor text nor lists of numbers: leave it out by --drop",
      *convert("nested.parquet", "--label", "y"))
run(*convert("nested.parquet", "--label", "y", "--drop", "more", "--test", "0"))
fails(2, "column 'a' has 1 values in row 1, and 2 in others", *convert("ragged.parquet", "--label", "y"))
fails(2, "row 1 has the label 2, and the file names 2 classes", *convert("beyond.parquet", "--label", "label"))
fails(2, "none.parquet has no rows", *convert("none.parquet", "--label", "y"))
fails(2, ["column 'when'"], *convert("trees.parquet", "--label", "tree", "--columns", "when"))
fails(2, "if it is of images, give --image png", *convert("raw.parquet", "--label", "kind"))
with open("trees.parquet", "rb") as file:
    whole = file.read()
for name, data in (("cut.parquet", whole[:len(whole) // 2] + whole[-8:]), ("end.parquet", whole[:-40] + b"\0" * 32 + whole[-8:])):
    with open(name, "wb") as file:
        file.write(data)
    fails(2, [name], *convert(name, "--label", "tree"))

if has_images():
    run(*convert("images.parquet", "--image", "image", "--label", "label", "--test", "0.25"))
    assert classes() == ["night", "day"]
    for group, count in (("train", 30), ("test", 10)):
        assert read("x", group).shape == (count, 1, 2, 2)
        assert np.array_equal(read("x", group)[:, 0, 0, 0], 255 * read("y", group))
    run(*convert("raw.parquet", "--image", "png", "--label", "kind", "--size", "4", "--test-file", "raw.parquet"))
    assert read("x").shape == (10, 1, 4, 4) and read("x", "test").shape == (10, 1, 4, 4) and classes() == ["a", "b"]
    run(*convert("raw.parquet", "--image", "png", "--task", "none", "--test", "0"))
    with h5py.File("out.h5") as file:
        assert "y" not in file["train"]
    fails(2, "no bytes of an image in row 0", *convert("elsewhere.parquet", "--image", "image", "--label", "label"))
    run(*convert("climbs.parquet", "--image", "image", "--label", "label"))
    assert classes() == ["../up", "a"]  # labels are no paths
print("parquet: ok")
