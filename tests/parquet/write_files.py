"""Parquet files as people have them, in this folder: written by the Python with pyarrow that files_test.py names."""

import datetime
import json
import random
import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

RANDOM = random.Random(0)
COUNT = 9000  # more than a batch


def png(value):
    """A grey picture of 2 x 2."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = bytes([0, value, value]) * 2
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


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
with open("size.json", "w", encoding="utf-8") as file:
    json.dump(table["size"].to_pylist(), file)
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
