"""fakequant.data: arrays, IDX files and images, compared with numpy and Pillow; splits, outputs and the command line."""
import io
import json
import os
import pathlib
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest
from fakequant import data
from fakequant.data.splits import philox, split

PACKAGE = pathlib.Path(data.__file__).parents[2]
RANDOM = np.random.default_rng(0)


def arrays(path):
    with h5py.File(path) as file:
        return {f"{group}/{name}": file[group][name][...] for group in ("train", "val", "test") if group in file for name in file[group]}


def save(path, array):
    np.save(path, array)
    return path


def command(*words, python=sys.executable, stdin=None):
    return subprocess.run([python, "-m", "fakequant.data", *map(str, words)], capture_output=True, text=True, input=stdin,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE)})


def test_draws_match_philox():
    # Random123's known answers for Philox4x32-10.
    assert hex(int(philox(np.zeros(1, np.uint64), 0, 0, 0)[0])) == "0xe169c58d6627e8d5"
    ones = (1 << 32) - 1
    assert hex(int(philox(np.full(1, (1 << 64) - 1, np.uint64), ones, ones, (1 << 64) - 1)[0])) == "0x41c83b0e408f276d"


def test_split_is_unchanged():
    # Written by the converter in C++ of 0.1.0 for 20 samples of 3 classes, --val 0.2, --seed 5.
    assert split(np.arange(20) % 3, 20, 0.2, 0.2, 5).tolist() == SPLIT
    counts = np.bincount(split(np.repeat([0, 7], [100, 300]), 400, 0.1, 0.25, 1))
    assert counts.tolist() == [260, 40, 100]


SPLIT = [0, 2, 0, 2, 2, 2, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("code, stored", [("u1", "u1"), ("i1", "i1"), ("f2", "f2"), (">f4", "f4"), ("f8", "f4"), ("b1", "u1"),
                                          (">u2", "f4"), ("i4", "f4"), ("u8", "f4")])
def test_arrays_keep_their_values(tmp_path, code, stored):
    x = RANDOM.integers(0, 2 if code == "b1" else 100, (50, 3, 6, 5)).astype(code)
    y = RANDOM.integers(0, 4, 50)
    for order in "CF":
        save(tmp_path / "x.npy", np.asarray(x, order=order))
        path, report = data.from_npy(tmp_path / "x.npy", tmp_path / "out.h5", labels=save(tmp_path / "y.npy", y), test=0, layout="nchw")
        found = arrays(path)
        assert found["train/x"].dtype == stored and np.array_equal(found["train/x"], x.astype(stored))
        assert np.array_equal(found["train/y"], y) and report["groups"] == {"train": 50} and report["classes"] == 4


def test_reads_archives_and_idx_files(tmp_path):
    x, y = RANDOM.integers(0, 256, (30, 7, 6)).astype(np.uint8), np.arange(30) % 3
    np.savez_compressed(tmp_path / "m.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    data.from_npy(tmp_path / "m.npz", tmp_path / "out.h5")
    found = arrays(tmp_path / "out.h5")
    assert np.array_equal(found["train/x"], x[:, None]) and np.array_equal(found["test/y"], y[:9])
    (tmp_path / "x.idx").write_bytes(struct.pack(">BBBB3I", 0, 0, 8, 3, *x.shape) + x.tobytes())
    data.from_idx(tmp_path / "x.idx", tmp_path / "idx.h5", test=0)
    assert np.array_equal(arrays(tmp_path / "idx.h5")["train/x"], x[:, None])


def test_normalises_by_training_samples(tmp_path):
    x = RANDOM.normal(3, 2, (400, 2, 5, 5)).astype(np.float32)
    data.from_npy(save(tmp_path / "x.npy", x), tmp_path / "out.h5", normalize=True)
    train = arrays(tmp_path / "out.h5")["train/x"].astype(np.float64)
    with h5py.File(tmp_path / "out.h5") as file:
        assert np.allclose(file["test/x"].attrs["mean"], train.mean((0, 2, 3)), rtol=1e-12)
        assert np.allclose(file["test/x"].attrs["std"], train.std((0, 2, 3)), rtol=1e-12)
    data.from_npy(tmp_path / "x.npy", tmp_path / "like.h5", like=tmp_path / "out.h5", test=1)
    with h5py.File(tmp_path / "out.h5") as file, h5py.File(tmp_path / "like.h5") as like:
        assert np.array_equal(like["test/x"].attrs["mean"], file["train/x"].attrs["mean"])


def test_rejects_invalid_arrays(tmp_path):
    good = io.BytesIO()
    np.save(good, np.zeros((4, 3), np.float32))
    good = good.getvalue()
    for contents, expected_text in ((good[:-1], "too short"), (good[:9], "damaged header"), (good.replace(b"(4, 3)", b"(-4, 3)"), "damaged"),
                           (b"1,2\n", "a text file, not a NumPy array"), (b"", "not a NumPy array"),
                           (good.replace(b"'<f4'", b"'|O' "), "unpickled")):
        (tmp_path / "bad.npy").write_bytes(contents)
        with pytest.raises(data.DataError, match=expected_text):
            data.from_npy(tmp_path / "bad.npy", tmp_path / "out.h5")
    with pytest.raises(data.DataError, match="row 2 has a NaN or infinity"):
        data.from_npy(save(tmp_path / "nan.npy", np.array([[1.0], [2], [np.nan]], np.float32)), tmp_path / "out.h5")
    with pytest.raises(data.DataError, match="label -1 in row 1"):
        data.from_npy(save(tmp_path / "x.npy", np.zeros((2, 3))), tmp_path / "out.h5", labels=save(tmp_path / "y.npy", np.array([0, -1])))
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "gif", "bmp", "tif", "ppm"])
def test_images_match_pillow(tmp_path, ending):
    image = pytest.importorskip("PIL.Image")
    operations = pytest.importorskip("PIL.ImageOps")
    y, x = np.mgrid[0:21, 0:17]
    samples = np.stack([(x * 9 + y * c) % 256 for c in (3, 5, 7)], -1).astype(np.uint8)
    for label in ("cat", "dog"):
        os.makedirs(tmp_path / "in" / label)
        exif = image.Exif()
        exif[0x0112] = 6
        more = {"exif": exif.tobytes()} if ending in ("png", "jpg", "webp", "tif") else {}
        image.fromarray(samples).save(tmp_path / "in" / label / f"1.{ending}", **more)
    _, report = data.from_images(tmp_path / "in", tmp_path / "out.h5", test=0)
    with image.open(tmp_path / "in" / "cat" / f"1.{ending}") as opened:
        upright = operations.exif_transpose(opened).convert("RGB")
    found = arrays(tmp_path / "out.h5")
    assert np.array_equal(found["train/x"][0], np.asarray(upright).transpose(2, 0, 1)) and report["class_names"] == ["cat", "dog"]
    data.from_images(tmp_path / "in", tmp_path / "out.h5", test=0, size="8x6", fit="stretch", channels=1)
    small = np.asarray(upright.resize((8, 6), image.Resampling.BILINEAR).convert("L"))
    assert np.array_equal(arrays(tmp_path / "out.h5")["train/x"][0, 0], small)


def test_names_unreadable_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    os.makedirs(tmp_path / "in" / "a")
    image.new("RGB", (8, 8)).save(tmp_path / "in" / "a" / "good.png")
    whole = (tmp_path / "in" / "a" / "good.png").read_bytes()
    (tmp_path / "in" / "a" / "cut.png").write_bytes(whole[:-20])
    (tmp_path / "in" / "a" / "empty.jpg").write_bytes(b"")
    _, report = data.from_images(tmp_path / "in", tmp_path / "out.h5", size=8, test=0)
    reasons = {os.path.basename(entry["path"]): entry["reason"] for entry in report["skipped"]}
    assert set(reasons) == {"cut.png", "empty.jpg"} and "truncated" in reasons["cut.png"] and reasons["empty.jpg"] == "is empty"
    with pytest.raises(data.DataError, match="cut.png"):
        data.from_images(tmp_path / "in", tmp_path / "out.h5", size=8, strict=True)


def test_replaces_only_data_sets(tmp_path):
    x = save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for output, expected_text in ((notes, "a text file"), (x, "--file reads"), (tmp_path / "no" / "out.h5", "No such file"), (tmp_path, "directory")):
        with pytest.raises(data.DataError, match=expected_text):
            data.from_npy(x, output)
    assert notes.read_text() == "mine"
    data.from_npy(x, notes, force=True)
    data.from_npy(x, notes)
    os.symlink(notes, tmp_path / "link.h5")
    data.from_npy(x, tmp_path / "link.h5")
    assert (tmp_path / "link.h5").is_symlink() and sorted(entry.name for entry in tmp_path.iterdir()) == ["link.h5", "notes.txt", "x.npy"]


def test_runs_from_the_command_line(tmp_path):
    x = save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    done = command("from-npy", x, "-o", tmp_path / "out.h5", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["groups"] == {"train": 4, "test": 1}, done
    assert "--layout NAME (=auto)" in command("from-npy", "--help").stdout
    for words, expected_text in (([x, "--outpt", "o"], "unknown flag --outpt: did you mean '--output'?"), ([x], "--output is missing"),
                        ([x, x, "-o", "o"], "too many arguments"), ([x, "-o", "o", "--test", "2"], "--test is '2'"),
                        ([x, "-o", "o", "--seed"], "--seed needs a value"), ([x, "-o", "o", "--seed=1", "--seed=2"], "more than once")):
        done = command("from-npy", *words)
        assert done.returncode == 2 and expected_text in done.stderr and done.stderr.count("\n") == 1, done
    done = command("from-np", x)
    assert done.returncode == 2 and "did you mean 'from-npy'?" in done.stderr


def test_names_a_missing_package(tmp_path):
    source = os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "python")  # without the compiled module, which needs numpy
    done = subprocess.run([sys.executable, "-S", "-c", "import sys; sys.path[:0] = [sys.argv.pop()]; from fakequant.data.__main__ import main; "
                           "sys.exit(main(['from-images', 'x', '-o', 'y']))", source], capture_output=True, text=True)
    assert done.returncode == 2 and "-m pip install Pillow numpy h5py" in done.stderr, done


def test_encode_prints_ids():
    tokenizers = pytest.importorskip("tokenizers")
    path = pathlib.Path(__file__).parents[1] / "data" / "tokenizers" / "byte_level.json"
    done = command("encode", "--tokenizer", path, stdin="The text caf\u00e9")
    expected = tokenizers.Tokenizer.from_file(str(path)).encode("The text caf\u00e9", add_special_tokens=False).ids
    assert done.returncode == 0 and json.loads(done.stdout) == expected, done
