"""States whose checksums hold and whose contents are nonsense, and input files that are none: exit status 2 and a line that
names them, no crash and no wait."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, run  # noqa: E402
from forge import low_level, mark, put_part, replaced, seal, state  # noqa: E402

LIMIT = "ulimit -t 20"
VALUES = np.arange(16, dtype=np.float32)
run("train", *SHORT, "-o", "float.h5")


def refused(name, *says):
    fails(2, [name, *says], "evaluate", name, "--data", DIGITS, limits=LIMIT)


def part(name, *says, **more):
    """A state of one part, with attributes that are not those of its values."""
    refused(state(name, lambda file: put_part(file, "parameters/a", VALUES, 1, **more)), *says)


# Depth: each level took as much time as all before it together, or as much of the stack.
def nested(file, depth):
    group = file
    for _ in range(depth):
        group = group.create_group("a")
    put_part(group, "b", VALUES, 1)


refused(state("groups.h5", lambda file: nested(file, 2000)), "64 groups deep")
refused(state("attributes.h5", lambda file: None, b'{"a":' + b"[" * 150000 + b"]" * 150000 + b"}"), "levels of nesting")
refused(state("list.h5", lambda file: None, b"[1, 2]"), "no object")
refused(state("json.h5", lambda file: None, b'{"a": 1'), "JSON")
refused(state("shape_depth.h5", lambda file: put_part(file, "a", np.uint8([1, 2]), 1, "u4", shape=b"[" * 1000)), "levels")
refused(state("shape_text.h5", lambda file: put_part(file, "a", np.uint8([1, 2]), 1, "u4", shape=b"[" * 30000)), "short text")
many = state("many.h5", lambda file: [put_part(file, f"a{i}/b{i}/c{i}", VALUES[:1], i) for i in range(2000)])
refused(many, "attribute")  # without a model; every part was read


# Links and storage.
def looped(file):
    file["loop"] = file["/"]
    put_part(file, "a", VALUES, 1)


def renamed(file):
    put_part(file, "a", VALUES, 1)
    file["b"] = file["a"]


def linked(link):
    def make(file):
        file["parameters/a"] = link
    return make


os.mkfifo("pipe")
refused(state("looped.h5", looped), "another name")
refused(state("renamed.h5", renamed), "another name")
for link in (h5py.SoftLink("/attributes"), h5py.ExternalLink("float.h5", "/"), h5py.ExternalLink("pipe", "/")):
    refused(state("linked.h5", linked(link)), "parameters/a", "link")
refused(state("typed.h5", linked(np.dtype("f4"))), "parameters/a", "neither")


def chunked(file):
    put_part(file, "parameters/a", file.create_dataset("parameters/a", data=VALUES, chunks=(4,)), 1)


def compact(file):
    put_part(file, "parameters/a", low_level(file.create_group("parameters"), "a", VALUES, h5py.h5d.COMPACT), 1)


refused(state("chunked.h5", chunked), "parameters/a", "one piece")
refused(state("compact.h5", compact), "parameters/a", "one piece")


def claims(name, old, new, count, *says):
    state(name, lambda file: put_part(file, "parameters/a", VALUES, 1))
    replaced(name, old, new, count)
    seal(name)
    refused(name, "parameters/a", *says)


sixteen = np.int64([16, 16]).tobytes()
claims("rows.h5", sixteen, np.int64([1 << 20] * 2).tobytes(), 1, "64 are stored")
claims("most.h5", sixteen, np.int64([1 << 58] * 2).tobytes(), 1, "64 are stored")

# Attributes of a part.
part("dtype.h5", "float33", dtype="float33")
part("other.h5", "dtype", dtype="i64")
for shape in (b"[4, 99]", b"[-1, -128]", b"[1e300]", b"[4611686018427387904, 4]", b"{}", b"7", b"[[1]]", b"["):
    refused(state("shape.h5", lambda file: put_part(file, "a", np.arange(64, dtype=np.uint8), 1, "u4", shape=shape)))


def unmarked(key, value=None):
    def make(file):
        made = put_part(file, "parameters/a", VALUES, 1)
        del made.attrs[key]
        if value is not None:
            made.attrs[key] = value
    return make


for key in ("index", "crc32c", "dtype"):
    refused(state("unmarked.h5", unmarked(key)), "parameters/a", key)
    for value in ("variable", np.arange(5), h5py.Empty("i8"), np.array([h5py.Reference()], h5py.ref_dtype),
                  np.bytes_(b"x" * 10000)):
        refused(state("marked.h5", unmarked(key, value)), "parameters/a")
refused(state("sum.h5", unmarked("crc32c", np.int64(7))), "parameters/a", "checksum")
refused(state("line.h5", lambda file: put_part(file, "parameters/a\nb", VALUES, 1, "float33")), "a?b")


# Files that are none: whoever opens a pipe waits for its writer.
def commands(path):
    yield "evaluate", path, "--data", DIGITS
    yield "evaluate", "float.h5", "--data", path
    yield "inspect", path
    yield "train", "--data", path, "--model", "cnn", "-o", "out.h5"
    yield "train", "--data", DIGITS, "--model", path, "-o", "out.h5"
    yield "train", "--checkpoint", path, "--data", DIGITS, "-o", "out.h5"
    yield "calibrate", "float.h5", "--data", DIGITS, "--config", path, "-o", "out.h5"
    yield "calibrate", "float.h5", "--data", DIGITS, "--import", path, "-o", "out.h5"
    yield "calibrate", "float.h5", "--merge", path, "-o", "out.h5"
    if os.path.exists(path):
        yield "calibrate", "float.h5", "--data", DIGITS, "--state", path, "-o", "out.h5"
    yield "qat", path, "--data", DIGITS, "-o", "out.h5"
    yield "export", path, "-o", "out"
    yield "import", path, "-o", "out.h5"
    yield "run", path


os.mkdir("folder")
for path in ("pipe", "folder", "/dev/zero", "nowhere"):
    for command in commands(path):
        fails(2, path, *command, limits=LIMIT)

# Text that nests without end.
deep = json.dumps({"nodes": 0}).replace("0", "[" * 100000)
for name in ("deep.json", "deep.safetensors"):
    with open(name, "w") as file:
        file.write(deep)
    for command in commands(name):
        fails(2, name if name in command[1:] else "", *command, limits=LIMIT)
print("forged state: ok")
