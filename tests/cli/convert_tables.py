"""fakequant dataset from-csv and from-text: the values, classes and words of the files; errors name the line
of a record."""

import csv
import gzip
import os
import random
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import fails, result, run  # noqa: E402

RANDOM = random.Random(0)


def write(name, text, encoding="utf-8"):
    with open(name, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode(encoding))
    return name


def from_csv(*arguments):
    return ["dataset", "from-csv", *arguments, "-o", "out.h5"]


def read(part, group="train"):
    with h5py.File("out.h5") as file:
        return file[group][part][...]


def classes():
    with h5py.File("out.h5") as file:
        return [name.decode() for name in np.atleast_1d(file.attrs["classes"])]


rows = [(i, RANDOM.gauss(0, 1), RANDOM.choice(["red", "green", "a, \"blue\"\none"]), RANDOM.choice(["oak", "ash", "elm"]))
        for i in range(200)]
expected = np.array([row[:2] for row in rows], np.float32)
names = sorted({row[3] for row in rows})


def table(name, delimiter=",", header=True, **more):
    with open(name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, **more)
        if header:
            writer.writerow(["id", "size", "colour", "tree"])
        writer.writerows(rows)
    return name


# Every way of writing the same table gives the same numbers.
with open(table("trees.csv"), "rb") as file:
    plain = file.read()
for name in (table("trees.csv"), table("semicolon.csv", ";"), table("tabs.tsv", "\t"), table("bars.csv", "|"),
             table("quoted.csv", quoting=csv.QUOTE_ALL), write("bom.csv", b"\xef\xbb\xbf" + plain), write("trees.csv.gz", gzip.compress(plain)),
             table("unix.csv", lineterminator="\n"), table("empty_lines.csv", lineterminator="\r\n\n")):
    run(*from_csv(name, "--label", "tree", "--drop", "colour", "--test", "0", "--keep-values"))
    assert np.array_equal(read("x"), expected), name
    assert classes() == names and [names[i] for i in read("y")] == [row[3] for row in rows], name
run(*from_csv(table("bare.csv", header=False), "--label", "3", "--drop", "2", "--test", "0", "--keep-values"))
assert np.array_equal(read("x"), expected)
run(*from_csv("trees.csv", "--label", "tree", "--columns", "size", "--test", "0", "--keep-values"))
assert np.array_equal(read("x"), expected[:, 1:])
assert '3 classes: a, "blue"\\x0aone, green, red\n' in run(*from_csv("trees.csv", "--label", "colour", "--drop", "tree", "--test", "0")).stdout

# Texts become numbers; the input of the network.
found = result(*from_csv("trees.csv", "--label", "tree", "--one-hot", "colour", "--test", "0"))
colours = sorted({row[2] for row in rows})
assert found["columns"] == ["id", "size", *("colour=" + colour for colour in colours)], found
wide = np.hstack([expected, [[float(row[2] == colour) for colour in colours] for row in rows]])
assert np.array_equal(read("x"), wide.astype(np.float32))
with h5py.File("out.h5") as file:
    seen = (read("x") - file["train/x"].attrs["mean"]) / file["train/x"].attrs["std"]
assert np.allclose(seen.mean(axis=0), 0, atol=1e-6) and np.allclose(seen.std(axis=0), 1, atol=1e-6)
write("constant.csv", "a,b,t\n" + "".join(f"{i},7,{i % 2}\n" for i in range(20)))
run(*from_csv("constant.csv", "--label", "t"))
with h5py.File("out.h5") as file:
    assert file["train/x"].attrs["std"][1] == 1 and file["train/x"].attrs["mean"][1] == 7 and file.attrs["classes"] == 2

# A second table by the columns and classes of the first.
write("first.csv", "a,colour,t\n1,red,x\n2,green,y\n3,red,z\n4,green,x\n")
write("second.csv", "t,colour,a\nz,green,9\n")
run(*from_csv("first.csv", "--label", "t", "--one-hot", "colour", "--test-file", "second.csv", "--keep-values"))
assert read("x", "test").tolist() == [[9, 1, 0]] and read("y", "test").tolist() == [2] and len(read("x")) == 4
for text, expected_text in (("t,colour,a\nw,green,9\n", ["line 2", "label 'w'"]), ("t,colour,a\nz,blue,9\n", ["line 2", "'blue'", "'colour'"]),
                   ("t,color,a\nz,green,9\n", ["no column 'colour'", "did you mean 'color'"]), ("t,colour,a\n", "no complete records")):
    fails(2, expected_text, *from_csv("first.csv", "--label", "t", "--one-hot", "colour", "--test-file", write("other.csv", text)))

# Rows for prediction use the classes, texts, mean and deviation of the training data.
run(*from_csv("first.csv", "--label", "t", "--one-hot", "colour", "--test", "0"))
os.rename("out.h5", "training.h5")
run(*from_csv("second.csv", "--task", "none", "--drop", "t", "--columns", "a,colour", "--one-hot", "colour", "--test", "1"), status=2)
write("third.csv", "a,colour\n9,green\n1,green\n")
run(*from_csv("third.csv", "--task", "none", "--one-hot", "colour", "--test", "1", "--like", "training.h5"))
with h5py.File("training.h5") as file, h5py.File("out.h5") as like:
    assert like["test/x"][...].tolist() == [[9, 1, 0], [1, 1, 0]] and list(like) == ["test"]
    for name in ("mean", "std"):
        assert np.array_equal(like["test/x"].attrs[name], file["train/x"].attrs[name]), name
fails(2, ["line 2", "'blue'"], *from_csv(write("fourth.csv", "a,colour\n9,blue\n"), "--task", "none", "--one-hot", "colour", "--like", "training.h5"))
fails(2, ["columns are a, and the columns of --like", "a, colour=green, colour=red"], *from_csv("third.csv", "--task", "none", "--drop", "colour", "--like",
                                                                                     "training.h5"))
fails(2, ["no training sample", "--like"], *from_csv("third.csv", "--task", "none", "--one-hot", "colour", "--test", "1"))

# Labels: numbers that are not 0 .. K - 1 get names, real ones stay.
write("numbers.csv", "a,t\n" + "".join(f"{i},{(3, 10, 7)[i % 3]}\n" for i in range(30)))
run(*from_csv("numbers.csv", "--label", "t", "--test", "0"))
assert classes() == ["3", "7", "10"] and read("y")[:3].tolist() == [0, 2, 1]
run(*from_csv("trees.csv", "--label", "size", "--drop", "colour,tree", "--task", "real", "--test", "0"))
assert np.array_equal(read("y"), expected[:, 1])
fails(2, ["200 different numbers", "--task real"], *from_csv("trees.csv", "--label", "size", "--drop", "colour,tree"))
run(*from_csv("trees.csv", "--task", "none", "--drop", "colour,tree", "--test", "0"))
with h5py.File("out.h5") as file:
    assert "y" not in file["train"]
run(*from_csv("trees.csv", "--label", "tree", "--drop", "colour", "--classes", "oak,elm,ash,fir", "--test", "0"))
assert classes() == ["oak", "elm", "ash", "fir"] and set(read("y")) == {0, 1, 2}
fails(2, ["label 'elm'", "oak, ash"], *from_csv("trees.csv", "--label", "tree", "--drop", "colour", "--classes", "oak,ash"))

write("counted.csv", "a,t\n" + "".join(f"{i},{i % 2}\n" for i in range(10)))
run(*from_csv("counted.csv", "--label", "t", "--classes", "even,odd", "--test", "0"))
assert classes() == ["even", "odd"] and read("y").tolist() == [0, 1] * 5
fails(2, ["line 3", "label '1'"], *from_csv("counted.csv", "--label", "t", "--classes", "even"))

# Values that are missing.
write("gaps.csv", "a,b,t\n1,,x\n2,5,y\nNA,1,x\n4,3,?\n" + "5,6,y\n" * 10)
fails(2, ["gaps.csv: line 2", "'b'", "--missing skip", "--missing mean"], *from_csv("gaps.csv", "--label", "t"))
done = run(*from_csv("gaps.csv", "--label", "t", "--missing", "skip", "--test", "0", "--keep-values"))
assert "3 incomplete records" in done.stdout and read("x").tolist() == [[2, 5]] + [[5, 6]] * 10, done
run(*from_csv("gaps.csv", "--label", "t", "--missing", "mean", "--test", "0", "--keep-values"))
assert np.allclose(read("x")[0], [1, (5 + 1 + 60) / 12]) and np.allclose(read("x")[2], [(1 + 2 + 50) / 12, 1])

fails(2, "truncated", *from_csv(write("cut.csv.gz", gzip.compress(plain)[:-40]), "--label", "tree", "--drop", "colour"))

# Bad tables, by the line that is bad.
good = "a,b,t\n1,2,x\n3,4,y\n"
for text, expected_text in (
        ("a,b,t\n1,2,x\n3,4\n", ["line 3 has 2 fields, the first has 3"]), ("a,b,t\n1,2,x\n3,4,y,5\n", ["line 3 has 4 fields"]),
        ("a,b,t\n1,2,x\n3,four,y\n", ["line 3", "'four'", "'b'", "--drop b", "--one-hot b"]), ("a,b,t\n1,\"2,x\n", ["line 2", "not closed"]),
        ("a,b,t\n1,\"2\"3,x\n", ["line 2", "double the quotes"]), ("", "no records"), ("a,b,t\n", "no complete records"),
        ("\n\n\n", "no records"), (b"a,b,t\n1,2,\xe4\xff\n", ["line 2 is not UTF-8", "iconv"]), (good.encode("utf-16"), "is UTF-16"),
        (b"a,b\x00,t\n1,2,x\n", "zero byte"), ("a,a,t\n1,2,x\n", None), ("a,b,t\n1,1e999,x\n", ["'1e999'"]),
        ("a,b,t\n1,\"1,5\",x\n", ["'1,5'"]), ("a,b,t\n1,nan,x\n", ["no value", "'b'"]), ("a,b,t\n1,inf,x\n", ["'inf'"]),
        ("a,b,t\n,,\n", "no value"), ("t\nx\ny\n", "no column except the label")):
    if expected_text is None:
        run(*from_csv(write("bad.csv", text), "--label", "t"))
        fails(2, "more than one column 'a'", *from_csv("bad.csv", "--label", "t", "--drop", "a"))
    else:
        fails(2, expected_text, *from_csv(write("bad.csv", text), "--label", "t"))
write("good.csv", good)
fails(2, ["--label is missing", "a, b, t", "--task none"], *from_csv("good.csv"))
fails(2, ["no column 'tt'", "did you mean 't'"], *from_csv("good.csv", "--label", "tt"))
fails(2, "no column '3'", *from_csv("good.csv", "--label", "3"))
fails(2, "--delimiter is ', '", *from_csv("good.csv", "--label", "t", "--delimiter", ", "))
fails(2, "directory", *from_csv("."))
fails(2, ["'x'", "--task classes"], *from_csv("good.csv", "--label", "t", "--task", "real"))
write("many.csv", "a,t\n" + "".join(f"w{i},{i % 2}\n" for i in range(1100)))
fails(2, ["line 1002", "at most 1000"], *from_csv("many.csv", "--label", "t", "--one-hot", "a"))
fails(2, "more than 65536 fields", *from_csv(write("wide.csv", "1," * 70000 + "1\n"), "--label", "0"))
for _ in range(200):  # any text gives one error line or a data set
    text = "".join(RANDOM.choice("ab1.,;\"'\n\r\t -\u00e9") for _ in range(RANDOM.randrange(60)))
    done = run(*from_csv(write("random.csv", text), "--label", "0"), status=None)
    assert done.returncode == 0 or done.returncode == 2 and done.stderr.count("\n") == 1, (text, done)


# Texts, as bytes and as words.
def from_text(*arguments):
    return ["dataset", "from-text", *arguments, "-o", "out.h5"]


texts = ["Good film, GOOD!", "bad", "it's caf\u00e9 \u4e2d", "", "a b c d e f g h i j"] * 6
labels = ["pos", "neg", "pos", "neg", "pos"] * 6
write("texts.txt", "\n".join(texts) + "\n")
write("labels.txt", "\n".join(labels))
found = result(*from_text("texts.txt", "--labels", "labels.txt", "--length", "12", "--test", "0"))
assert found["vocabulary"] == 257 and found["class_names"] == ["neg", "pos"], found
for text, row, label in zip(texts, read("x"), read("y")):
    ids = [byte + 1 for byte in text.encode()[:12]]
    assert row.tolist() == ids + [0] * (12 - len(ids)) and ["neg", "pos"][label] == labels[texts.index(text)]
run(*from_text("texts.txt", "--labels", "labels.txt", "--length", "6", "--tokens", "words", "--vocabulary", "8", "--test", "0"))
with h5py.File("out.h5") as file:
    words = bytes(file["vocabulary"][...]).decode().split("\n")[:-1]
assert words == ["<pad>", "<unk>", "good", "!", ",", "a", "b", "bad"], words
assert read("x")[:3].tolist() == [[2, 1, 4, 2, 3, 0], [7, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]]
os.rename("out.h5", "words.h5")
write("new.txt", "BAD good unseen\n")
run(*from_text("new.txt", "--like", "words.h5", "--test", "1"))
assert read("x", "test").tolist() == [[7, 2, 1, 0, 0, 0]]
fails(2, "--like words.h5 has words", *from_text("new.txt", "--like", "words.h5", "--tokens", "bytes"))
fails(2, "not a data set of fakequant dataset from-text", *from_text("new.txt", "--like", os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "data", "digits.h5")))
# Words that occur only in the test text are not in the vocabulary.
write("train.txt", "red red\nblue\n" * 5)
write("held.txt", "green red\n")
run(*from_text("train.txt", "--tokens", "words", "--length", "2", "--test-file", "held.txt"))
assert read("x", "test").tolist() == [[1, 2]]
with open("reviews.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([["text", "stars"], *((text + "\nx, y", label) for text, label in zip(texts, labels))])
run(*from_text("reviews.csv", "--text", "text", "--label", "stars", "--length", "20", "--test", "0"))
assert [bytes(i - 1 for i in row if i).decode(errors="ignore") for row in read("x")] == [
    (text + "\nx, y").encode()[:20].decode(errors="ignore") for text in texts]
for group, count in (("train", 6), ("test", 2)):
    for label in ("spam", "ham"):
        os.makedirs(f"mail/{group}/{label}")
        for i in range(count):
            write(f"mail/{group}/{label}/{i}.txt", f"{label} {i}")
found = result(*from_text("mail", "--length", "8"))
assert found["groups"] == {"train": 12, "test": 4} and found["class_names"] == ["ham", "spam"], found
assert bytes(i - 1 for i in read("x", "test")[-1] if i) == b"spam 1"
fails(2, ["6 lines", "30"], *from_text("texts.txt", "--labels", write("short.txt", "a\n" * 6)))
fails(2, "gaps.txt: line 2 has no label", *from_text("texts.txt", "--labels", write("gaps.txt", "a\n\nb\n")))
fails(2, ["labels.txt: line 2", "'neg'"], *from_text("texts.txt", "--labels", "labels.txt", "--classes", "pos,other"))
fails(2, ["empty.csv: line 3", "no label"], *from_text(write("empty.csv", "text,stars\na,b\nc,\n"), "--text", "text", "--label", "stars"))
fails(2, "no lines", *from_text(write("none.txt", "")))
fails(2, "no column 'txt'", *from_text("reviews.csv", "--text", "txt"))
fails(2, "--text", *from_text("reviews.csv", "--label", "stars"))
fails(2, "below its header", *from_text(write("head.csv", "text,stars\n"), "--text", "text"))
os.makedirs("hollow/a")
fails(2, [".txt", "its folders a have none"], *from_text("hollow"))

# Tables as other programs write them: decimal commas, dates, booleans, an index, one class.
german = "".join(f"{i % 7},5;-{i},25;{'ja' if i % 2 else 'nein'}\n" for i in range(30))
write("german.csv", "a;b;y\n" + german)
fails(2, ["german.csv: line 2 has '0,5' in the column 'a'", "a number with a decimal comma, which --decimal comma reads"],
      *from_csv("german.csv", "--label", "y"))
run(*from_csv("german.csv", "--label", "y", "--decimal", "comma", "--test", "0", "--keep-values"))
assert np.array_equal(read("x"), np.array([[i % 7 + 0.5, -i - 0.25] for i in range(30)], np.float32))
run(*from_csv("german.csv", "--label", "b", "--task", "real", "--drop", "y", "--decimal", "comma", "--test", "0"))
assert np.array_equal(read("y").ravel(), np.array([-i - 0.25 for i in range(30)], np.float32))
fails(2, "'point'", *from_csv("german.csv", "--label", "y", "--decimal", "pount"))
write("dates.csv", "day,y\n" + "".join(f"2026-01-{i % 28 + 1:02},{'ab'[i % 2]}\n" for i in range(30)))
fails(2, ["'2026-01-01'", "a date, which has to be converted"], *from_csv("dates.csv", "--label", "y"))
write("shares.csv", "share,y\n" + "".join(f"{i} %,{'ab'[i % 2]}\n".replace(" ", "") for i in range(30)))
fails(2, ["'0%'", "a percentage"], *from_csv("shares.csv", "--label", "y"))
write("flags.csv", "on,y\n" + "".join(f"{('True', 'FALSE', 'false')[i % 3]},{'ab'[i % 2]}\n" for i in range(30)))
run(*from_csv("flags.csv", "--label", "y", "--test", "0", "--keep-values"))
assert np.array_equal(read("x").ravel(), np.arange(30) % 3 == 0)
write("index.csv", ",a,y\n" + "".join(f"{i},{i % 5}.5,{'ab'[i % 2]}\n" for i in range(30)))
assert "note: the column '' counts the records: leave it out with --drop 0" in run(*from_csv("index.csv", "--label", "y")).stdout
assert "note" not in run(*from_csv("index.csv", "--label", "y", "--drop", "0")).stdout
write("same.csv", "a,y\n" + "".join(f"{i % 5}.5,same\n" for i in range(30)))
assert "note: all samples have one class" in run(*from_csv("same.csv", "--label", "y")).stdout

# A class with one sample goes to training, and an empty group is reported. Names are printed on one line.
write("unique.csv", 'a,b,y\n1,2,"y\nnew"\n3,4,z\n')
message = run(*from_csv("unique.csv", "--label", "y")).stdout
assert "note: no sample is left for the group test" in message and "y\\x0anew, z" in message, message
assert "group test" not in run(*from_csv("unique.csv", "--label", "y", "--test", "0")).stdout
assert "no sample is left" not in run(*from_csv("same.csv", "--label", "y")).stdout

print("convert tables: ok")
