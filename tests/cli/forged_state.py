"""States whose checksums hold and whose contents are nonsense, and input files that are none: exit status 2 and a line that
names them, no crash and no wait."""

import json
import os
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, run  # noqa: E402
from forge import listed, low_level, make_entry, put_part, replaced, seal, state  # noqa: E402

LIMIT = "ulimit -t 20"
VALUES = np.arange(16, dtype=np.float32)
run("train", *SHORT, "-o", "float.h5")


def expect_error(name, *says):
    fails(2, [name, *says], "evaluate", name, "--data", DIGITS, limits=LIMIT)


def part(name, *says, **more):
    """A state with one part whose attributes do not match its values."""
    expect_error(state(name, lambda file: put_part(file, "parameters/a", VALUES, 1, **more)), *says)


# Depth: each level took as much time as all before it together, or as much of the stack.
def nested(file, depth):
    group = file
    for _ in range(depth):
        group = group.create_group("a")
    put_part(group, "b", VALUES, 1)


expect_error(state("groups.h5", lambda file: nested(file, 2000)), "64 groups deep")
expect_error(state("attributes.h5", lambda file: None, b'{"a":' + b"[" * 150000 + b"]" * 150000 + b"}"), "levels of nesting")
expect_error(state("list.h5", lambda file: None, b"[1, 2]"), "not a JSON object")
expect_error(state("json.h5", lambda file: None, b'{"a": 1'), "JSON")
expect_error(state("shape_depth.h5", lambda file: put_part(file, "a", np.uint8([1, 2]), 1, "u4", shape=b"[" * 1000)), "levels")
expect_error(state("shape_text.h5", lambda file: put_part(file, "a", np.uint8([1, 2]), 1, "u4", shape=b"[" * 30000)), "short text")
many = state("many.h5", lambda file: [put_part(file, f"a{i}/b{i}/c{i}", VALUES[:1], i) for i in range(2000)])
expect_error(many, "attribute")  # without a model; every part was read


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
expect_error(state("looped.h5", looped), "second name")
expect_error(state("renamed.h5", renamed), "second name")
for link in (h5py.SoftLink("/attributes"), h5py.ExternalLink("float.h5", "/"), h5py.ExternalLink("pipe", "/")):
    expect_error(state("linked.h5", linked(link)), "parameters", "link")
expect_error(state("typed.h5", linked(np.dtype("f4"))), "parameters/a", "neither")


def chunked(file):
    put_part(file, "parameters/a", file.create_dataset("parameters/a", data=VALUES, chunks=(4,)), 1)


def compact(file):
    put_part(file, "parameters/a", low_level(file.create_group("parameters"), "a", VALUES, h5py.h5d.COMPACT), 1)


expect_error(state("chunked.h5", chunked), "parameters/a", "one piece")
expect_error(state("compact.h5", compact), "parameters/a", "one piece")


def claims(name, old, new, count, *says):
    state(name, lambda file: put_part(file, "parameters/a", VALUES, 1))
    replaced(name, old, new, count)
    seal(name)
    expect_error(name, "parameters/a", *says)


sixteen = np.int64([16, 16]).tobytes()
claims("rows.h5", sixteen, np.int64([1 << 20] * 2).tobytes(), 1, "64 bytes are stored")
claims("most.h5", sixteen, np.int64([1 << 58] * 2).tobytes(), 1, "2^56")

# Attributes of a part.
part("dtype.h5", "float33", dtype="float33")
part("other.h5", "64 bytes", dtype="i64")
for shape in (b"[4, 99]", b"[-1, -128]", b"[1e300]", b"[4611686018427387904, 4]", b"{}", b"7", b"[[1]]", b"["):
    expect_error(state("shape.h5", lambda file: put_part(file, "a", np.arange(64, dtype=np.uint8), 1, "u4", shape=shape)))


def unmarked(key, value=None):
    def make(file):
        made = put_part(file, "parameters/a", VALUES, 1)
        del made.attrs[key]
        if value is not None:
            made.attrs[key] = value
    return make


expect_error(state("unmarked.h5", unmarked("dtype")), "parameters/a", "dtype")
for value in ("variable", np.arange(5), h5py.Empty("i8"), np.array([h5py.Reference()], h5py.ref_dtype), np.bytes_(b"x" * 10000)):
    expect_error(state("marked.h5", unmarked("dtype", value)), "parameters/a")
expect_error(state("line.h5", lambda file: put_part(file, "parameters/a\nb", VALUES, 1, "float33")), "a?b")


# A listing that does not match its tree.
def relisted(name, change):
    state(name, lambda file: put_part(file, "parameters/a", VALUES, 1))
    with open(name, "rb") as file:
        contents = file.read()
    size = struct.unpack("<q", contents[24:32])[0]
    with open(name, "wb") as file:
        file.write(contents[:len(contents) - size])
    seal(name, entries=change(json.loads(contents[len(contents) - size:])))
    return name


expect_error(relisted("unlisted.h5", lambda entries: entries[:1]), "parameters/a", "not listed")
expect_error(relisted("absent.h5", lambda entries: entries + [dict(entries[1], name="parameters/b")]), "parameters/b", "missing")
expect_error(relisted("moved.h5", lambda entries: [entries[0], dict(entries[1], offset=entries[0]["offset"])]), "another offset")
expect_error(relisted("sum.h5", lambda entries: [entries[0], dict(entries[1], crc32c=7)]), "parameters/a", "checksum")

# If a listing has types, only the listing is read: a tree is not required.
A = VALUES.tobytes()
text = make_entry("attributes", b"{}", len(A), "json", [])


def expect_listing_error(name, *entries, says=(), data=A + b"{}"):
    expect_error(listed(name, [text, *entries], data), *says)


expect_listing_error("told.h5", make_entry("a", A, 0, "f32", [4, 4]), says=("attribute",))  # without a model; every part was read
for shape in ([4, 5], [16, 0], [1 << 40, 1 << 40], [1] * 40, [-4, -4], [4.0, 4.0], "44", None):
    expect_listing_error("shape.h5", make_entry("a", A, 0, "f32", shape))
expect_listing_error("dtype.h5", make_entry("a", A, 0, "float33", [16]), says=("float33",))
expect_listing_error("packed.h5", make_entry("a", A, 0, "u4", [16]), says=("64 bytes",))
expect_listing_error("offset.h5", make_entry("a", A, 0, "f32", [16], offset=0), says=("outside",))
expect_listing_error("behind.h5", make_entry("a", A, 0, "f32", [16], offset=540), says=("outside",))
for far in (1 << 55, 1 << 63, 1e300, -1, "512", None):
    expect_listing_error("far.h5", make_entry("a", A, 0, "f32", [16], offset=far))
expect_listing_error("crc.h5", make_entry("a", A, 0, "f32", [16], crc32c=7), says=("checksum",))
expect_listing_error("twice.h5", make_entry("a", A, 0, "f32", [16]), make_entry("a", A, len(A) + 2, "f32", [16]), says=("twice",), data=A + b"{}" + A)
expect_listing_error("second.h5", make_entry("b", b"{}", len(A) + 2, "json", []), says=("text",), data=A + b"{}{}")
expect_listing_error("over.h5", *(make_entry(f"a{i}", A, 0, "f32", [16]) for i in range(1000)), says=("overlaps another part",))
expect_listing_error("half.h5", make_entry("a", A, 0, "f32", [16]), make_entry("b", A[32:] + b"{}", 32, "u1", [34]), says=("overlaps another part",))
for name in ("a//b", "", "/a", "a/" * 70 + "b"):
    expect_listing_error("name.h5", make_entry(name, A, 0, "f32", [16]))
for entries in (b"", b"[]", b"{}", b"7", b"[7]", b'[{"name": 7}]', b"[", b"[" * 100000):
    expect_error(listed("listing.h5", entries))


# Files that are not states: opening a pipe would wait for its writer.
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
