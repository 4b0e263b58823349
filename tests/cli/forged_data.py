"""Malformed data sets: any false claim gives one line that names it and exit status 2, without a crash, a wait, or more
memory than it has values."""

import os
import struct
import subprocess
import sys
import zlib

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, TINY, fails, run  # noqa: E402
from forge import low_level, replaced  # noqa: E402

LIMIT = "ulimit -v 2000000; ulimit -t 60"
if subprocess.run(["bash", "-c", f'{LIMIT}; exec "$0" --version', COMMAND], capture_output=True).returncode != 0:
    LIMIT = "ulimit -t 60"  # a sanitizer reserves more addresses before main
COUNT, SHAPE = 16, (1, 8, 8)
IMAGES = np.random.default_rng(0).integers(1, 255, (COUNT, *SHAPE), np.uint8)
TRAIN = ["train", *TINY, "--epochs", "1", "--batch", "8", "-o", "out.h5", "--data"]

SEEN_BY_HDF5 = "is not a dataset that can be opened"  # 1.14 refuses some sizes itself


def data(name, make, labels=COUNT, **options):
    """A file whose train/x `make` puts into the group it is given."""
    with h5py.File(name, "w", **options) as file:
        group = file.create_group("train")
        make(group)
        if labels is not None:
            group["y"] = np.arange(labels) % 10
    return name


def expect_error(name, *expected, at=":train/x"):
    words = str(fails(2, [name + at], *TRAIN, name, limits=LIMIT))
    assert SEEN_BY_HDF5 in words or all(text in words for text in expected), (name, words)
    done = run("dataset", "check", name, status=None, limits=LIMIT)
    assert done.returncode in (1, 2) and name in done.stderr and done.stderr.count("\n") == 1, (name, done)


def trains(name):
    run(*TRAIN, name, limits=LIMIT)


def dimensions(count):
    return struct.pack("<4Q", count, *SHAPE)


# More rows than are stored, in each layout.
for rows in (64, 2_000_000):
    compact = data("compact.h5", lambda group: low_level(group, "x", IMAGES, h5py.h5d.COMPACT), rows)
    trains(data("whole.h5", lambda group: low_level(group, "x", IMAGES, h5py.h5d.COMPACT)))
    replaced(compact, dimensions(COUNT), dimensions(rows), 2)
    expect_error(compact, str(IMAGES.size))
    plain = data("plain.h5", lambda group: group.create_dataset("x", data=IMAGES), rows)
    replaced(plain, dimensions(COUNT), dimensions(rows), 2)
    expect_error(plain, str(IMAGES.size))
longer = data("longer.h5", lambda group: low_level(group, "x", IMAGES, h5py.h5d.COMPACT), 512)
replaced(longer, dimensions(COUNT), dimensions(512), 2)
replaced(longer, struct.pack("<BBH", 3, 0, IMAGES.size), struct.pack("<BBH", 3, 0, 512 * 64))
expect_error(longer)
beyond = data("beyond.h5", lambda group: group.create_dataset("x", data=IMAGES), 1 << 20)
with h5py.File(beyond) as file:
    place = struct.pack("<Q", file["train/x"].id.get_offset())
replaced(beyond, dimensions(COUNT), dimensions(1 << 20), 2)
replaced(beyond, place + struct.pack("<Q", IMAGES.size), place + struct.pack("<Q", 64 << 20))
expect_error(beyond, "truncated")
expect_error(data("unwritten.h5", lambda group: group.create_dataset("x", (COUNT, *SHAPE), "u1")), "0 are stored")
for rows in (10 ** 12, 10 ** 15):
    expect_error(data("rows.h5", lambda group: group.create_dataset("x", (rows, *SHAPE), "u1", chunks=(1024, *SHAPE))),
            "0 are stored")
    with h5py.File("labels.h5", "w") as file:
        file["train/x"] = IMAGES
        file.create_dataset("train/y", (rows,), "i8", chunks=(1024,))
    expect_error("labels.h5", at=":train/y")
    expect_error(data("narrow.h5", lambda group: group.create_dataset("x", (rows, 0), "u1", chunks=(1, 1), maxshape=(None, None))))
large = data("large.h5", lambda group: group.create_dataset(
    "x", (COUNT, 1, 64, 64), "u1", chunks=(1 << 19, 1, 64, 64), maxshape=(None, 1, 64, 64)))
expect_error(large, "more than 1 GiB")


# Chunks that do not expand to their size: HDF5 returns the memory after the short ones.
def one_chunk(name, contents, shape=SHAPE, chunk=COUNT, mask=0, **filters):
    def make(group):
        x = group.create_dataset("x", (COUNT, *shape), "u1", chunks=(chunk, *shape), maxshape=(None, *shape), **filters)
        x.id.write_direct_chunk((0,) * (len(shape) + 1), contents, mask)
    return data(name, make)


gzip, whole = dict(compression="gzip"), zlib.compress(IMAGES.tobytes())
trains(one_chunk("gzip.h5", whole, **gzip))
trains(one_chunk("skipped.h5", IMAGES.tobytes(), mask=1, **gzip))
expect_error(one_chunk("short.h5", zlib.compress(b"abcd"), **gzip), "expands to 4 bytes of 1024")
expect_error(one_chunk("bare.h5", b"abcd", mask=1, **gzip), "4 bytes, expected 1024")
expect_error(one_chunk("long.h5", zlib.compress(bytes(1 << 20)), **gzip), "expands to more than 1024 bytes")
expect_error(one_chunk("bomb.h5", zlib.compress(bytes(1 << 26), 1), **gzip), "damaged")
expect_error(one_chunk("cut.h5", whole[:-30], **gzip), "gzip data is invalid")
expect_error(one_chunk("other.h5", b"not gzip at all", **gzip), "gzip data is invalid")
expect_error(one_chunk("empty.h5", zlib.compress(b"x"), (1, 64, 64), 1 << 18, **gzip), "are stored")
expect_error(one_chunk("shuffled.h5", zlib.compress(b"abcd"), shuffle=True, **gzip), "expands to 4 bytes of 1024")
expect_error(one_chunk("summed.h5", zlib.compress(IMAGES.tobytes() + b"abcd"), fletcher32=True, **gzip), "checksum")
expect_error(one_chunk("unsummed.h5", b"ab", fletcher32=True), "checksum")
expect_error(data("lzf.h5", lambda group: group.create_dataset("x", data=IMAGES, compression="lzf")), "lzf", "h5repack")
expect_error(data("scaled.h5", lambda group: group.create_dataset("x", data=IMAGES, scaleoffset=0)), "h5repack")
os.mkdir("plugins")
os.mkfifo("plugins/libtrap.so")  # loading it would block forever
os.environ["HDF5_PLUGIN_PATH"] = os.path.abspath("plugins")
properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
properties.set_chunk((COUNT, *SHAPE))
properties.set_filter(32000, h5py.h5z.FLAG_OPTIONAL, (1, 2))
expect_error(data("plugin.h5", lambda group: h5py.h5d.create(
    group.id, b"x", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((COUNT, *SHAPE)), properties)), "32000")

# Values and objects elsewhere.
os.mkfifo("pipe")
data("source.h5", lambda group: group.create_dataset("x", data=IMAGES))
expect_error(data("external.h5", lambda group: group.create_dataset(
    "x", (COUNT, *SHAPE), "u1", external=[("source.h5", 0, IMAGES.size)])), "other files")
for source in ("source.h5", "pipe"):
    def virtual(group, rows):
        layout = h5py.VirtualLayout((COUNT, *SHAPE), "u1", maxshape=(rows, *SHAPE))
        inner = h5py.VirtualSource(source, "train/x", (COUNT, *SHAPE), maxshape=(rows, *SHAPE))
        layout[:] = inner
        group.create_virtual_dataset("x", layout)
    expect_error(data("virtual.h5", lambda group: virtual(group, COUNT)), "other files")
for link in (h5py.SoftLink("/train/y"), h5py.SoftLink("/train/x"), h5py.ExternalLink("source.h5", "/train/x"),
             h5py.ExternalLink("pipe", "/train/x")):
    def linked(group):
        group["x"] = link
    expect_error(data("linked.h5", linked), "link")
for link in (h5py.SoftLink("/other"), h5py.ExternalLink("source.h5", "/train"), h5py.ExternalLink("pipe", "/")):
    with h5py.File("group.h5", "w") as file:
        file["other/x"] = IMAGES
        file["train"] = link
    expect_error("group.h5", "link", at=":train")


def hard(group):
    group.file["images"] = IMAGES
    group["x"] = group.file["images"]


trains(data("hard.h5", hard))


# Types and shapes.
def typed(name, dtype, shape=(COUNT, *SHAPE)):
    return data(name, lambda group: group.create_dataset("x", shape, dtype))


expect_error(typed("text.h5", h5py.string_dtype()), "convert it")
expect_error(typed("fixed.h5", "S16"), "convert it")
expect_error(typed("reference.h5", h5py.ref_dtype), "convert it")
expect_error(typed("region.h5", h5py.regionref_dtype), "convert it")
expect_error(typed("compound.h5", [("a", "f4"), ("b", "i4")]), "convert it")
expect_error(typed("list.h5", h5py.vlen_dtype(np.float32)), "convert it")
expect_error(typed("array.h5", np.dtype(("f4", (2,)))), "convert it")
expect_error(typed("opaque.h5", "V8"), "convert it")
expect_error(typed("bool.h5", "?"), "but 0 are stored")
expect_error(typed("complex.h5", "c8"), "convert it")
expect_error(typed("extended.h5", np.longdouble), "convert it")
expect_error(typed("null.h5", "f4", h5py.Empty("f4").shape), "no elements")
expect_error(typed("scalar.h5", "f4", ()), "single value")
expect_error(typed("rank1.h5", "f4", (COUNT,)))
expect_error(typed("none.h5", "f4", (0, *SHAPE)), "zero images")
expect_error(typed("axis.h5", "f4", (COUNT, 1, 0, 8)), "empty")


def committed(group):
    group.file["type"] = np.dtype("f4")
    group.create_dataset("x", data=IMAGES / 255, dtype=group.file["type"])


trains(data("committed.h5", committed))
expect_error(data("a_type.h5", lambda group: group.__setitem__("x", np.dtype("f4"))))
expect_error(data("a_group.h5", lambda group: group.create_group("x")))
swapped = data("swapped.h5", lambda group: group.create_dataset("x", data=IMAGES.astype(">f4"), compression=1, shuffle=True))
trains(swapped)


# Attributes.
def marked(name, **attributes):
    def make(group):
        x = group.create_dataset("x", data=IMAGES)
        for key, value in attributes.items():
            x.attrs[key] = value
    return data(name, make)


wrong = ["text", ["a", "b"], np.array([(1, 2)], [("a", "i4"), ("b", "i4")]), h5py.Empty("f4"), [], np.nan, np.inf, 1e300,
         np.ones(3), np.ones((2, 2)), np.ones(1 << 12), np.array([h5py.Reference()], h5py.ref_dtype), np.bool_(True)]
for key, more in (("scale", [0, -1.0]), ("std", [0, -1.0, 1e-310]), ("mean", [])):
    for value in wrong + more:
        expect_error(marked("marked.h5", **{key: value}), key)
trains(marked("good.h5", scale=np.array([1 / 255]), mean=np.array([[0.5]]), std=np.float32(0.5)))


broken = marked("broken.h5", mean=np.array([1.25, 2.5, 3.75]))
replaced(broken, struct.pack("<QQ", 3, 3), struct.pack("<QQ", 1 << 20, 1 << 20))
expect_error(broken, "attribute")


def crowded(group):
    x = group.create_dataset("x", data=IMAGES)
    for i in range(5000):
        x.attrs[f"attribute {i}"] = i
    x.attrs["scale"] = 1 / 255


trains(data("crowded.h5", crowded, libver="latest"))

# A user block that is not as long as the file says.
trains(data("block.h5", lambda group: group.create_dataset("x", data=IMAGES), userblock_size=1024))
with open("block.h5", "rb") as file:
    contents = file.read()
for name, changed in (("moved.h5", contents[1024:]), ("padded.h5", bytes(1024) + contents), ("cut.h5", contents[:3000])):
    with open(name, "wb") as file:
        file.write(changed)
    done = run(*TRAIN, name, status=None, limits=LIMIT)
    assert done.returncode in (0, 2) and (done.returncode == 0 or name in done.stderr), done
print("forged data: ok")
