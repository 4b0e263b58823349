"""fakequant dataset from-text --windows: the windows of one text and the tokens behind them, the vocabulary, the held-out
tail; a gpt trained on it, quantized and evaluated; and rejected input."""

import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, result, run  # noqa: E402


def write(name, text):
    with open(name, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return name


def windows(name, *more, length=8, out="out.h5"):
    return ["dataset", "from-text", name, "--windows", str(length), "-o", out, *more]


def read(name):
    with h5py.File("out.h5") as file:
        return file[name][...]


# Characters: sorted, from the whole text, including those that occur only in the held-out tail.
text = "To b\u00e9, or\nnot \\ to b\u00e9.\t" * 20 + "\u4e2d" * 9
write("text.txt", text)
found = result(*windows("text.txt"))
vocabulary = sorted(set(text))
ids = np.array([vocabulary.index(c) for c in text])
tail = len(ids) - round(0.1 * len(ids))
assert found["tokens"] == len(text) and found["vocabulary"] == len(vocabulary) and found["task"] == "dense", found
assert found["class_names"] == ["\\x09", "\\x0a", "\\x20", *vocabulary[3:]], found
assert bytes(read("vocabulary")).decode() == "".join(vocabulary)
for group, part in (("train", ids[:tail]), ("test", ids[tail:])):
    count = (len(part) - 1) // 8
    assert np.array_equal(read(f"{group}/x"), part[:8 * count].reshape(-1, 8)), group
    assert np.array_equal(read(f"{group}/y"), part[1:8 * count + 1].reshape(-1, 8)), group

# Windows that overlap are of the training alone; a validation lies between; --test 0 keeps everything.
run(*windows("text.txt", "--stride", "3", "--val", "0.2"))
middle = ids[len(ids) - round(0.3 * len(ids)):]
assert np.array_equal(read("train/x")[1], ids[3:11]) and np.array_equal(read("val/x")[1], middle[8:16])
assert list(result(*windows("text.txt", "--test", "0"))["groups"]) == ["train"]

# Bytes have id byte + 1, words the ids of the texts; another text gets the ids of the --like data set.
run(*windows("text.txt", "--tokens", "bytes", "--test", "0"))
assert bytes(i - 1 for i in read("train/x")[:3].ravel()).decode() == text.encode()[:24].decode()
assert "not" in result(*windows("text.txt", "--tokens", "words", length=2))["class_names"]
run(*windows("text.txt", out="like.h5"))
write("other.txt", "not b\u00e9 to " * 4)
run(*windows("other.txt", "--like", "like.h5", "--test", "1"))
assert "".join(vocabulary[i] for i in read("test/x").ravel()) == ("not b\u00e9 to " * 4)[:32]
run(*windows("text.txt", "--test-file", "other.txt"))
assert len(read("test/x")) == 4

# A network of it.
run("dataset", "check", "like.h5")
run("train", "--model", "gpt", "--model-options", '{"layers": 1, "width": 16, "heads": 2, "context": 8}', "--data", "like.h5",
    "--epochs", "8", "--batch", "8", "--lr", "0.01", "--seed", "1", "-o", "float.h5")
trained = result("evaluate", "float.h5", "--data", "like.h5", "--split", "train")["metrics"]
assert trained["bpc"] < 0.7 * np.log2(len(vocabulary)), trained
assert result("inspect", "float.h5")["identity"]["class_names"] == found["class_names"]
for command in (["calibrate", "float.h5", "--preset", "int8", "-o", "int8.h5"], ["qat", "int8.h5", "--epochs", "1", "--batch", "8", "-o", "qat.h5"],
                ["predict", "qat.h5", "-o", "predictions.h5"]):
    assert "names" not in run(*command, "--data", "like.h5").stderr, command
assert abs(result("evaluate", "int8.h5", "--data", "like.h5", "--split", "train")["metrics"]["bpc"] - trained["bpc"]) < 0.2
# Few bits of text follow the float network in half of the loss, eight the labels alone.
for preset, expected in (("w2a8", "rate 0.004; towards the float network (kl, temperature 1), a share of 0.5"), ("int8", "rate 0.0003\n")):
    report = run("qat", "float.h5", "--preset", preset, "--data", "like.h5", "--epochs", "1", "--batch", "8", "-o", "few.h5")
    assert expected in report.stdout and "matches no quantizer" not in report.stderr, (preset, report)  # @first is the table of tokens
assert "towards" not in run("qat", "float.h5", "--preset", "w2a8", "--data", "like.h5", "--epochs", "1", "--batch", "8", "--teacher", "none", "-o",
                            "few.h5").stdout
run(*windows("text.txt", length=5, out="short.h5"))
fails(2, ["windows of 8", "--input-shape 5"], "evaluate", "float.h5", "--data", "short.h5")
fails(2, "context", "train", "--model", "gpt", "--model-options", '{"context": 4}', "--data", "like.h5", "-o", "none.h5")

# Rejected input.
fails(2, ["latin.txt", "0xe9", "offset 3", "--tokens bytes"], *windows(write("latin.txt", b"abc\xe9 def" * 9)))
fails(2, ["cut.txt", "0xe4", "offset 40"], *windows(write("cut.txt", b"a" * 40 + "\u4e2d".encode()[:2])))
fails(2, ["1 tokens for the group test", "--windows"], *windows(write("short.txt", "abcdefghij"), length=8))
fails(2, "no tokens", *windows(write("empty.txt", "")))
fails(2, ["new.txt", "'!'", "offset 3"], *windows(write("new.txt", "not! " * 9), "--like", "like.h5"))
fails(2, ["--like like.h5 has characters", "--tokens"], *windows("text.txt", "--like", "like.h5", "--tokens", "bytes"))
fails(2, "use --windows", "dataset", "from-text", "text.txt", "--like", "like.h5", "-o", "none.h5")
fails(2, "use the same shape and type", *windows("other.txt", "--like", "like.h5", "--test", "1", length=4))
for flag in ("--labels", "--length", "--seed", "--classes"):
    fails(2, ["--windows", f"leave {flag} out"], *windows("text.txt", flag, "1"))
fails(2, "--stride is '9'", *windows("text.txt", "--stride", "9"))
fails(2, "--windows", "dataset", "from-text", "text.txt", "--stride", "4", "-o", "none.h5")
fails(2, "--tokens characters requires --windows", "dataset", "from-text", "text.txt", "--tokens", "characters", "-o", "none.h5")
fails(2, "is a folder", *windows("."))
print("text windows: ok")
