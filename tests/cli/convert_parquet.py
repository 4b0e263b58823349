"""fakequant dataset from-parquet: columns of numbers, texts, categories and lists, images in bytes as in data sets of Hugging
Face, names of classes, gaps; damaged files and columns that cannot be used."""

import datetime
import io
import json
import os
import random
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, result, run  # noqa: E402

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image
except ImportError:
    print("SKIPPED: there is no pyarrow or Pillow")
    sys.exit(77)
RANDOM = random.Random(0)
COUNT = 9000  # more than a batch


def png(value):
    """A grey picture of 2 x 2."""
    file = io.BytesIO()
    Image.new("L", (2, 2), value).save(file, "png")
    return file.getvalue()


pixels = {0: png(0), 1: png(255)}


def write(name, columns, metadata=None):
    table = pa.table(columns)
    if metadata:
        table = table.replace_schema_metadata(metadata)
    pq.write_table(table, name, row_group_size=2500)


def named(feature, names):
    return {b"huggingface": json.dumps({"info": {"features": {feature: {"names": names, "_type": "ClassLabel"}}}}).encode()}


size = [RANDOM.gauss(0, 1) for _ in range(COUNT)]
table = {
    "id": pa.array(range(COUNT), pa.int64()),
    "size": pa.array(size, pa.float32()),
    "old": pa.array([i % 3 == 0 for i in range(COUNT)]),
    "colour": pa.array([("red", "green, \"dark\"", "blue\nish")[i % 3] for i in range(COUNT)]).dictionary_encode(),
    "place": pa.array([[i, -i, i / 2] for i in range(COUNT)], pa.list_(pa.float64(), 3)),
    "when": pa.array([datetime.date(2026, 1, 1)] * COUNT),
    "tree": pa.array([("oak", "ash")[i % 2] for i in range(COUNT)]),
}
write("trees.parquet", table)
write("test.parquet", {name: column[:50] for name, column in table.items()})
write("gaps.parquet", {"a": pa.array([1.0, None, 3.0, 5.0]), "y": ["p", "q", "p", "q"]})
write("ragged.parquet", {"a": pa.array([[1, 2], [3]]), "y": ["p", "q"]})
write("named.parquet", {"a": [1.0, 2.0, 3.0, 4.0], "label": [1, 0, 1, 0]}, named("label", ["zebra", "ant"]))
write("beyond.parquet", {"a": [1.0, 2.0], "label": [1, 2]}, named("label", ["zebra", "ant"]))
write("nested.parquet", {"a": [1.0, 2.0], "more": [{"b": 1}, {"b": 2}], "y": ["p", "q"]})
write("numbers.parquet", {"a": [1.0, 2.0, 3.0, 5.0], "y": [0.5, 1.5, 2.5, 9.0]})
write("none.parquet", {"a": pa.array([], pa.float64()), "y": pa.array([], pa.string())})
images = [{"bytes": pixels[i % 2], "path": f"{i}.png"} for i in range(40)]
write("images.parquet", {"image": images, "label": [i % 2 for i in range(40)]}, named("label", ["night", "day"]))
write("raw.parquet", {"png": pa.array([pixels[i % 2] for i in range(10)], pa.binary()), "kind": ["a" if i % 2 else "b" for i in range(10)]})
write("elsewhere.parquet", {"image": [{"bytes": None, "path": "/x.png"}], "label": [0]})
write("climbs.parquet", {"image": images[:2], "label": ["../up", "a"]})


def convert(name, *arguments):
    return ["dataset", "from-parquet", name, *arguments, "-o", "out.h5", "--force"]


def read(part, group="train"):
    with h5py.File("out.h5") as file:
        return file[group][part][...]


def classes():
    with h5py.File("out.h5") as file:
        return [name.decode() for name in np.atleast_1d(file.attrs["classes"])]


# Every kind of column, more rows than a batch, in the order of the file.
report = result(*convert("trees.parquet", "--label", "tree", "--drop", "when", "--one-hot", "colour", "--test", "0", "--keep-values"))
assert report["columns"] == ["id", "size", "old", "colour=blue\nish", "colour=green, \"dark\"", "colour=red", "place[0]",
                           "place[1]", "place[2]"], report["columns"]
x, i = read("x"), np.arange(COUNT)
assert x.shape == (COUNT, 9)
assert np.array_equal(x[:, 0], i) and np.array_equal(x[:, 2], i % 3 == 0)
assert np.array_equal(x[:, 3:6], np.stack([i % 3 == 2, i % 3 == 1, i % 3 == 0], 1))
assert np.array_equal(x[:, 6:], np.stack([i, -i, i / 2], 1))
assert np.array_equal(x[:, 1], np.float32(size))
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

# Errors name columns, rows and files.
fails(2, ["[dataset from-parquet]", "no column 'tre': it has id, size"], *convert("trees.parquet", "--label", "tre"))
fails(2, "--label is missing: name the column of labels, which is one of a, y", *convert("gaps.parquet"))
fails(2, "column 'more' is struct<b: int64>, which is neither numbers nor text nor lists of numbers: leave it out with --drop",
      *convert("nested.parquet", "--label", "y"))
run(*convert("nested.parquet", "--label", "y", "--drop", "more", "--test", "0"))
fails(2, "column 'a' has 1 values in row 1, and 2 in others", *convert("ragged.parquet", "--label", "y"))
fails(2, "row 1 has the label 2, and the file names 2 classes", *convert("beyond.parquet", "--label", "label"))
fails(2, "none.parquet has no rows", *convert("none.parquet", "--label", "y"))
fails(2, ["column 'when'"], *convert("trees.parquet", "--label", "tree", "--columns", "when"))
fails(2, "use --image png if it has images", *convert("raw.parquet", "--label", "kind"))
with open("trees.parquet", "rb") as file:
    whole = file.read()
for name, data in (("cut.parquet", whole[:len(whole) // 2] + whole[-8:]), ("end.parquet", whole[:-40] + b"\0" * 32 + whole[-8:])):
    with open(name, "wb") as file:
        file.write(data)
    fails(2, [name], *convert(name, "--label", "tree"))

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
fails(2, "no image bytes in row 0", *convert("elsewhere.parquet", "--image", "image", "--label", "label"))
run(*convert("climbs.parquet", "--image", "image", "--label", "label"))
assert classes() == ["../up", "a"]

# Without pyarrow the message says what to install; flags of images and of tables are checked.
with open("data.parquet", "wb") as file:
    file.write(b"PAR1" + bytes(64) + b"PAR1")
with open("bare_python", "w", encoding="utf-8") as script:
    script.write(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
os.chmod("bare_python", 0o755)
PARQUET = ["dataset", "from-parquet", "data.parquet", "--label", "y", "-o", "d.h5"]
fails(2, ["-m pip install pyarrow", "--python or FAKEQUANT_PYTHON"], *PARQUET, "--python", "./bare_python")
fails(2, ["./no_python", "by --python or FAKEQUANT_PYTHON"], *PARQUET, "--python", "./no_python")
with open("table.csv", "w", encoding="utf-8") as file:
    file.write("a,y\n1,b\n")
fails(2, "a text file, not a Parquet file", "dataset", "from-parquet", "table.csv", "--label", "y", "-o", "d.h5")
fails(2, "--output is missing", "dataset", "from-parquet", "data.parquet", "--label", "y")
fails(2, "--size requires --image", *PARQUET, "--size", "8")
fails(2, "--drop is for tables", *PARQUET, "--image", "x", "--drop", "z")
print("convert parquet: ok")
