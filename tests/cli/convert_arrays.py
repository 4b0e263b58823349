"""fakequant dataset from-npy and from-idx: written values equal the input, and unsupported input is
rejected with its position and a remedy."""

import gzip
import io
import json
import os
import pickle
import signal
import struct
import sys
import time
import zipfile

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import TINY, fails, result, run, same_bytes, sanitized, start  # noqa: E402

RANDOM = np.random.default_rng(0)
N = 60


def npy(name, array, **more):
    np.save(name, array, **more)
    return name


def from_npy(*arguments):
    return ["dataset", "from-npy", *arguments, "-o", "out.h5"]


def groups(path="out.h5"):
    with h5py.File(path) as file:
        return {group: {part: file[group][part][...] for part in file[group]} for group in file}


def back(written, x, y=None):
    """Every sample of `x` is in exactly one group, in its order, with its label."""
    seen = 0
    for parts in written.values():
        at = 0
        for i, row in enumerate(parts["x"]):
            while not np.array_equal(x[at], row):
                at += 1
            assert y is None or np.array_equal(parts["y"][i], y[at]), (i, at)
            at += 1
        seen += len(parts["x"])
    assert seen == len(x), seen


def attributes(path="out.h5", of="train/x"):
    with h5py.File(path) as file:
        return dict(file[of].attrs)


# Types, byte orders and axis orders; values are unchanged.
labels = RANDOM.integers(0, 4, N)
npy("y.npy", labels)
TYPES = {"u1": "uint8", "i1": "int8", "f2": "float16", "f4": "float32", "f8": "float32", "b1": "uint8", "u2": "float32",
         "i2": "float32", "i4": "float32", "u4": "float32", "i8": "float32", "u8": "float32"}
for code, stored in TYPES.items():
    for order in "<>":
        for keep in (np.ascontiguousarray, np.asfortranarray):
            x = keep(RANDOM.integers(0, 2 if code == "b1" else 100, (N, 3, 6, 5)).astype(order + code))
            run(*from_npy(npy("x.npy", x), "--labels", "y.npy", "--layout", "nchw"))
            written = groups()
            assert written["train"]["x"].dtype == stored, (code, written["train"]["x"].dtype)
            back(written, x.astype(stored), labels)
x = RANDOM.integers(0, 256, (N, 6, 5, 3)).astype(np.uint8)
image, flat = npy("image.npy", x), npy("flat.npy", RANDOM.normal(size=(N, 7)))

# Axes are given by flags, or detected if there is no doubt.
done = run(*from_npy(image, "--labels", "y.npy"))
assert "channels at the end" in done.stdout, done.stdout
back(groups(), x.transpose(0, 3, 1, 2), labels)
assert attributes() == {"scale": 1 / 255, "axes": b"NCHW"}, attributes()
run(*from_npy(image, "--layout", "nchw"))
back(groups(), x)
assert "y" not in groups()["train"]
run(*from_npy(npy("grey.npy", x[..., 0])))
back(groups(), x[:, None, :, :, 0])
run(*from_npy(flat))
back(groups(), np.load(flat).astype(np.float32))
assert "signals" in run(*from_npy(npy("signal.npy", RANDOM.normal(size=(N, 2, 9)).astype(np.float32)))).stdout
run(*from_npy("signal.npy", "--layout", "nhw"))
assert groups()["train"]["x"].shape[1:] == (1, 2, 9)
ids = RANDOM.integers(0, 1000, (N, 12))
assert "token ids" in run(*from_npy(npy("ids.npy", ids))).stdout
back(groups(), ids)
run(*from_npy("ids.npy", "--layout", "flat"))
back(groups(), ids.astype(np.float32))
assert groups()["train"]["x"].dtype == np.float32
deep = RANDOM.integers(0, 65536, (N, 5, 5)).astype(np.uint16)
run(*from_npy(npy("deep.npy", deep)))
assert attributes()["scale"] == 1 / 65535
back(groups(), deep[:, None].astype(np.float32))
fails(2, ["--layout nhwc", "--layout nchw"], *from_npy(npy("doubt.npy", np.zeros((N, 9, 7, 1), np.float32))))
fails(2, ["[60, 7]", "--layout nchw requires 4 axes"], *from_npy(flat, "--layout", "nchw"))

# Scale and normalisation of the network's input; they are checked by reading the file as the network does.
assert "--scale 0.0039" in run(*from_npy(npy("big.npy", x.astype(np.float32)))).stdout
assert "--scale" not in run(*from_npy("big.npy", "--scale", "1")).stdout
assert "largest value is 15" in run(*from_npy(npy("dim.npy", (x // 17).astype(np.uint8)))).stdout
run(*from_npy(image, "--labels", "y.npy", "--normalize", "--test", "0.25", "--val", "0.25"))
found, written = attributes(), groups()
assert set(written) == {"train", "val", "test"} and all(attributes(of=f"{g}/x").keys() == found.keys() for g in written)
seen = (written["train"]["x"] / 255 - found["mean"][:, None, None]) / found["std"][:, None, None]
assert np.allclose(seen.mean(axis=(0, 2, 3)), 0, atol=1e-9) and np.allclose(seen.std(axis=(0, 2, 3)), 1, atol=1e-9)

os.rename("out.h5", "normal.h5")
run(*from_npy(image, "--like", "normal.h5", "--test", "1"))
assert all(np.array_equal(attributes(of="test/x")[name], found[name]) for name in found), attributes(of="test/x")
fails(2, "no training sample", *from_npy(image, "--normalize", "--test", "1"))
fails(2, ["samples are [7] f32", "[3, 6, 5] u8"], *from_npy(flat, "--like", "normal.h5"))
fails(2, "leave --scale out", *from_npy(image, "--like", "normal.h5", "--scale", "1"))

# Splits: as large a share of every class, by the seed alone.
counts = np.arange(1, 9) * 10
many = np.repeat(np.arange(8), counts)
x_many = np.arange(len(many), dtype=np.float32)[:, None]
npy("many.npy", x_many), npy("many_y.npy", many)
run(*from_npy("many.npy", "--labels", "many_y.npy", "--test", "0.2", "--val", "0.1"))
written = groups()
for group, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):
    assert np.abs(np.bincount(written[group]["y"], minlength=8) - share * counts).max() <= 1, group
back(written, x_many, many)
run("dataset", "from-npy", "many.npy", "--labels", "many_y.npy", "--test", "0.2", "--val", "0.1", "-o", "again.h5")
assert same_bytes("out.h5", "again.h5")
run("dataset", "from-npy", "many.npy", "--labels", "many_y.npy", "--test", "0.2", "--val", "0.1", "--seed", "1", "-o", "again.h5")
assert not np.array_equal(groups("again.h5")["test"]["x"], written["test"]["x"])
run(*from_npy("many.npy", "--labels", "many_y.npy", "--test", "0"))
assert set(groups()) == {"train"}
run(*from_npy("many.npy", "--test", "1"))
assert set(groups()) == {"test"}
run(*from_npy(npy("few.npy", np.zeros((5, 2), np.float32)), "--labels", npy("few_y.npy", np.arange(5)), "--test", "0.5"))
assert set(groups()) == {"train"}, "a class keeps a sample for training"
run(*from_npy("many.npy", "--labels", "many_y.npy", "--test-file", "few.npy", "--test-labels", "few_y.npy"), status=2)
fails(2, ["training samples are [1] f32", "test samples [2] f32"], *from_npy("many.npy", "--test-file", "few.npy"))
fails(2, "--val is 0.6 and --test is 0.6", *from_npy("many.npy", "--val", "0.6", "--test", "0.6"))
run(*from_npy("many.npy", "--labels", "many_y.npy", "--test-file", "many.npy", "--test-labels", "many_y.npy", "--val", "0.5"))
assert {group: len(parts["y"]) for group, parts in groups().items()} == {"train": 180, "val": 180, "test": 360}

# Labels of every kind.
run(*from_npy(image, "--labels", npy("names.npy", np.array(["dog", "cat", "newt"])[labels % 3])))
with h5py.File("out.h5") as file:
    assert [name.decode() for name in file.attrs["classes"]] == ["cat", "dog", "newt"]
back(groups(), x.transpose(0, 3, 1, 2), np.array([1, 0, 2])[labels % 3])
os.rename("out.h5", "named.h5")
run(*from_npy(image, "--labels", npy("cats.npy", np.array(["newt"] * N)), "--like", "named.h5"))
assert set(groups()["train"]["y"]) == {2}
fails(2, ["row 0 has the label 'bird'", "cat, dog"], *from_npy(image, "--labels", npy("bird.npy", np.array(["bird"] * N)), "--like", "named.h5"))
run(*from_npy(image, "--labels", "y.npy", "--classes", "a, b,c,d"))
assert result("inspect", "out.h5")["groups"]["train"]["class_names"] == ["a", "b", "c", "d"]
fails(2, ["has the label 3", "3 names"], *from_npy(image, "--labels", npy("y3.npy", np.full(N, 3)), "--classes", "a,b,c"))
fails(2, "'a' more than once", *from_npy(image, "--labels", "y.npy", "--classes", "a,b,a,c"))
run(*from_npy(image, "--labels", npy("float_y.npy", labels.astype(np.float64))))
back(groups(), x.transpose(0, 3, 1, 2), labels)
run(*from_npy(image, "--labels", npy("column.npy", labels[:, None])))
assert groups()["train"]["y"].ndim == 1
several = RANDOM.integers(0, 2, (N, 4))
run(*from_npy(image, "--labels", npy("several.npy", several), "--task", "several"))
back(groups(), x.transpose(0, 3, 1, 2), several)
real = RANDOM.normal(size=(N, 2)).astype(np.float32)
run(*from_npy(image, "--labels", npy("real.npy", real), "--task", "real"))
back(groups(), x.transpose(0, 3, 1, 2), real)
dense = RANDOM.integers(0, 3, (N, 6, 5))
run(*from_npy(image, "--labels", npy("dense.npy", dense), "--task", "dense"))
back(groups(), x.transpose(0, 3, 1, 2), dense)
run(*from_npy(image, "--labels", "y.npy", "--task", "none"))
assert "y" not in groups()["train"]
for name, y, expected in (
        ("negative", np.where(np.arange(N) == 7, -1, labels), ["label -1 in row 7", "from 0 on"]),
        ("half", np.where(np.arange(N) == 9, 0.5, labels), ["label 0.5 in row 9", "--task real"]),
        ("nan", np.where(np.arange(N) == 3, np.nan, labels), ["label nan in row 3"]),
        ("short", labels[:50], ["50 labels", "60 samples"]),
        ("onehot", np.eye(4)[labels], ["y.argmax(1)", "--task several"])):
    fails(2, expected, *from_npy(image, "--labels", npy(f"{name}.npy", y)))
fails(2, "NaN or infinity in row 3", *from_npy(image, "--labels", "nan.npy", "--task", "real"))
fails(2, "0.5 in row 9", *from_npy(image, "--labels", npy("half2.npy", np.where(np.arange(N) == 9, 0.5, labels % 2)[:, None]), "--task", "several"))

# NaN and infinity in the samples: the row is named, and nothing is written.
for value in (np.nan, np.inf, -np.inf):
    bad = np.load(flat).copy()
    bad[41, 3] = value
    fails(2, ["bad.npy: row 41", "NaN or infinity"], *from_npy(npy("bad.npy", bad)))

# Archives, by the names that are usual, and by others.
parts = {"x_train": x, "y_train": labels, "x_test": x[:9], "y_test": labels[:9]}
for save in (np.savez, np.savez_compressed):
    save("mnist.npz", **parts)
    run("dataset", "from-npy", "mnist.npz", "-o", "out.h5")
    written = groups()
    back({"train": written["train"]}, x.transpose(0, 3, 1, 2), labels)
    back({"test": written["test"]}, x[:9].transpose(0, 3, 1, 2), labels[:9])
np.savez("other.npz", pictures=x, kinds=labels)
fails(2, ["pictures, kinds", "--x-key"], *from_npy("other.npz"))
run(*from_npy("other.npz", "--x-key", "pictures", "--y-key", "kinds"))
back(groups(), x.transpose(0, 3, 1, 2), labels)
fails(2, ["no array 'picture'", "did you mean 'pictures'"], *from_npy("other.npz", "--x-key", "picture"))


def archive(name, members, **more):
    with zipfile.ZipFile(name, "w", **more) as file:
        for member, contents in members.items():
            file.writestr(member, contents)
    return name


def npy_bytes(array, **more):
    buffer = io.BytesIO()
    np.save(buffer, array, **more)
    return buffer.getvalue()


for member in ("../x.npy", "/etc/x.npy", "a/../../x.npy", "..\\x.npy"):
    fails(2, ["leads out of the archive"], *from_npy(archive("climb.npz", {member: npy_bytes(x)})))
run(*from_npy(archive("bzip2.npz", {"x.npy": npy_bytes(x)}, compression=zipfile.ZIP_BZIP2)))
back(groups(), x.transpose(0, 3, 1, 2))
fails(2, "without NumPy arrays", *from_npy(archive("pictures.zip", {"a.png": b"x"})))
whole = open(archive("whole.npz", {"x.npy": npy_bytes(x)}, compression=zipfile.ZIP_DEFLATED), "rb").read()
for index in range(0, len(whole), 97):  # damage anywhere is found, or does not touch the values
    with open("damaged.npz", "wb") as file:
        file.write(whole[:index] + bytes([whole[index] ^ 0x55]) + whole[index + 1:])
    done = run(*from_npy("damaged.npz"), status=None)
    assert done.returncode == 2 or done.returncode == 0, done
    if done.returncode == 0:
        back(groups(), x.transpose(0, 3, 1, 2))
    with open("damaged.npz", "wb") as file:
        file.write(whole[:index])
    fails(2, "damaged.npz", *from_npy("damaged.npz"))

# Files that are no arrays, and arrays that cannot be read.
fails(2, ["Python objects", "unpickled"], *from_npy(npy("objects.npy", np.array([{}, os], dtype=object)[:1], allow_pickle=True)))


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


fails(2, "unpickled", *from_npy(npy("bomb.npy", np.array([Bomb()], dtype=object), allow_pickle=True)))
with open("bomb.pkl", "wb") as file:
    pickle.dump(Bomb(), file)
fails(2, "a Python pickle, not a NumPy array", *from_npy("bomb.pkl"))
assert not os.path.exists("exploded")
fails(2, "records", *from_npy(npy("records.npy", np.zeros(3, [("a", "f4"), ("b", "i4")]))))
fails(2, ["'<c16'", "astype"], *from_npy(npy("complex.npy", np.zeros((3, 2), complex))))
fails(2, "'<M8[D]'", *from_npy(npy("dates.npy", np.zeros((3, 2), "datetime64[D]"))))
fails(2, "from-text", *from_npy(npy("text.npy", np.array([["a"], ["b"]]))))
fails(2, "one number", *from_npy(npy("scalar.npy", np.float32(1))))
fails(2, "it is empty", *from_npy(npy("empty.npy", np.zeros((0, 3), np.float32))))
fails(2, "[3, 1, 1, 1, 1]", *from_npy(npy("five.npy", np.zeros((3, 1, 1, 1, 1), np.float32))))
fails(2, "[60]", *from_npy("y.npy"))
good = npy_bytes(np.zeros((4, 3), np.float32))
for name, contents, expected in (
        ("nothing.npy", b"", "nothing.npy"), ("cut.npy", good[:-1], "too short for it"), ("head.npy", good[:9], "damaged header"),
        ("huge.npy", good.replace(b"(4, 3)", b"(400000000000, 3)"), "too short for it"),
        ("past.npy", good.replace(b"(4, 3)", b"(4000000000000000000000, 3)"), "too short for it"),
        ("wide.npy", good.replace(b"(4, 3)", b"(4, 3000000000)"), "too short for it"),
        ("minus.npy", good.replace(b"(4, 3)", b"(-4, 3)"), "damaged"), ("open.npy", good.replace(b"(4, 3)", b"(4, 3 "), "damaged header"),
        ("version.npy", good[:6] + b"\x09" + good[7:], "version 9"), ("keys.npy", good.replace(b"shape", b"shope"), "'shope'"),
        ("long.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31) + bytes(100), "damaged header"),
        ("csv.npy", b"1,2,3\n", "a text file")):
    with open(name, "wb") as file:
        file.write(contents)
    fails(2, expected, *from_npy(name), limits=None if sanitized() else "ulimit -v 2000000")
fails(2, "No such file", *from_npy("missing.npy"))
fails(2, "directory", *from_npy("."))


# IDX, plain and in gzip, by a folder under the names of MNIST or by files.
def idx(array, code):
    return struct.pack(">BBBB", 0, 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(
        array.dtype.newbyteorder(">")).tobytes()


os.makedirs("mnist")
pictures = RANDOM.integers(0, 256, (N, 7, 6)).astype(np.uint8)
for prefix, count in (("train", N), ("t10k", 20)):
    with gzip.open(f"mnist/{prefix}-images-idx3-ubyte.gz", "wb") as file:
        file.write(idx(pictures[:count], 8))
    with open(f"mnist/{prefix}-labels-idx1-ubyte", "wb") as file:
        file.write(idx(labels[:count].astype(np.uint8), 8))
found = result("dataset", "from-idx", "mnist", "-o", "out.h5")
assert found["groups"] == {"train": 60, "test": 20} and found["classes"] == 4, found
back({"train": groups()["train"]}, pictures[:, None], labels)
run("dataset", "from-idx", "mnist/train-images-idx3-ubyte.gz", "--labels", "mnist/train-labels-idx1-ubyte", "-o", "out.h5")
back(groups(), pictures[:, None], labels)
for code, kind in ((9, "i1"), (0xb, "i2"), (0xc, "i4"), (0xd, "f4"), (0xe, "f8")):
    values = RANDOM.integers(-100, 100, (N, 2, 3, 4)).astype(kind)
    with open("values.idx", "wb") as file:
        file.write(idx(values, code))
    run("dataset", "from-idx", "values.idx", "-o", "out.h5")
    back(groups(), values.astype(np.int8 if kind == "i1" else np.float32))
for name, contents, expected in (("bad.idx", idx(pictures, 8)[:-5], "too short for it"), ("type.idx", idx(pictures, 7), "0x07"),
                             ("png.idx", b"\x89PNG\r\n\x1a\n" + bytes(20), "a PNG image"), ("none.idx", b"", "too early"),
                             ("cut.gz", gzip.compress(idx(pictures, 8))[:-40], "truncated"),
                             ("crc.gz", gzip.compress(idx(pictures, 8))[:-8] + bytes(8), "damaged")):
    with open(name, "wb") as file:
        file.write(contents)
    done = run("dataset", "from-idx", name, "-o", "bad.h5", status=None)
    assert done.returncode == 2 and expected in done.stderr, (name, done)
os.makedirs("nowhere")
fails(2, "train-images-idx3-ubyte", "dataset", "from-idx", "nowhere", "-o", "bad.h5")

# A signal during the run: no file is written or left. Before that, a first file next to the output tests if it is writable.
TRIAL = 4096


def file_size(name):
    try:
        return os.path.getsize(name)
    except FileNotFoundError:
        return 0


np.lib.format.open_memmap("sparse.npy", "w+", np.float32, (250000, 1000))
before = set(os.listdir())
started = start("dataset", "from-npy", "sparse.npy", "-o", "stopped.h5")
while started.poll() is None and not any(file_size(name) > TRIAL for name in set(os.listdir()) - before):
    time.sleep(0.01)
started.send_signal(signal.SIGTERM)
_, error = started.communicate()
assert started.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM: nothing was written" in error, (started.returncode, error)
assert set(os.listdir()) == before
os.remove("sparse.npy")

# A full disk, and existing files.
before = open("out.h5", "rb").read()
npy("large.npy", np.zeros((3000, 1000), np.float32))
done = run("dataset", "from-npy", "large.npy", "-o", "out.h5", status=1, limits="ulimit -f 4000")
assert "cannot be written: File too large" in done.stderr and done.stderr.count("\n") == 1, done.stderr
assert open("out.h5", "rb").read() == before and not [name for name in os.listdir() if name.startswith(".out")]
fails(2, "--force", "dataset", "from-npy", flat, "-o", "y.npy")
fails(2, ["--output", "--file"], "dataset", "from-npy", flat, "-o", flat, "--force")
run("dataset", "from-npy", flat, "-o", "/dev/null", status=2)

# Both words of the command, and similar words.
fails(2, "fakequant dataset --help", "dataset")
fails(2, "did you mean 'from-npy'", "dataset", "from-np")
assert json.loads(run(*from_npy(flat), "--json").stdout.splitlines()[-1])["command"] == "dataset from-npy"
run(*from_npy(image, "--labels", "y.npy"))
run("train", *TINY, "--data", "out.h5", "--epochs", "1", "--batch", "16", "-o", "net.h5")
print("convert arrays: ok")
