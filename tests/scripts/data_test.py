"""scripts/data: images of fonts that are here, tables as R writes them, texts; its output trains a network."""

import gzip
import json
import os
import struct
import subprocess
import sys

try:
    import h5py
    import numpy as np
    from PIL import Image  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SOURCE, FAKEQUANT = os.environ["FAKEQUANT_SOURCE_DIR"], os.environ["FAKEQUANT"]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
from data import packages, r_data  # noqa: E402

FONTS = "/usr/share/fonts"


def script(*arguments, status=0):
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "data"), *arguments], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done)
    return done.stdout if status == 0 else done.stderr


def fakequant(*arguments):
    done = subprocess.run([FAKEQUANT, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def short_run(name, data):
    """All phases of a recipe with one epoch each, without the engine's."""
    with open(os.path.join(SOURCE, "recipes", name + ".json")) as file:
        recipe = json.loads("".join(line for line in file if not line.lstrip().startswith("//")))
    if "/" in recipe["model"]:
        recipe["model"] = os.path.join(SOURCE, recipe["model"])
    recipe["phases"] = [{**phase, **({"epochs": 1} if "epochs" in phase else {})} for phase in recipe["phases"]
                        if phase["command"] not in ("verify", "export")]
    with open("short.json", "w") as file:
        json.dump(recipe, file)
    return fakequant("run", "short.json", "--data", data, "--output", name)


def r_string(text):
    return struct.pack(">ii", 9, len(text)) + text.encode()


def r_strings(texts):
    return struct.pack(">ii", 16, len(texts)) + b"".join(map(r_string, texts))


def r_pairs(values):
    """A list of pairs with tags, each tag a symbol of its own."""
    return b"".join(struct.pack(">ii", 2 | 1 << 10, 1) + r_string(tag) + value for tag, value in values.items()) + struct.pack(">i", 254)


def r_file(path, name, columns, label):
    """An .rda file of a data frame: numbers by column, and a factor."""
    codes, levels = label
    values = [struct.pack(f">ii{len(v)}d", 14, len(v), *v) for v in columns.values()]
    values.append(struct.pack(f">ii{len(codes)}i", 13 | 1 << 9, len(codes), *codes) + r_pairs({"levels": r_strings(levels)}))
    frame = struct.pack(">ii", 19 | 1 << 9, len(values)) + b"".join(values) + r_pairs({"names": r_strings([*columns, "kind"])})
    with gzip.open(path, "wb") as file:
        file.write(b"RDX2\nX\n" + struct.pack(">iii", 2, 0x40000, 0x20300) + r_pairs({name: frame}))


r_file("t.rda", "Table", {"a": [1.5, 2.0, -3.0], "b": [0.0, 1e-3, 7.0]}, ([2, 1, 2], ["no", "yes"]))
table = r_data.load("t.rda")["Table"]
assert table["a"] == [1.5, 2.0, -3.0] and table["b"] == [0.0, 1e-3, 7.0], table
assert table["kind"].codes == [1, 0, 1] and table["kind"].levels == ["no", "yes"]
with gzip.open("t.rda") as file:
    whole = file.read()
for bad in (b"", b"RDX2\nA\n", whole[:len(whole) // 2]):
    with open("bad.rda", "wb") as file:
        file.write(bad)
    try:
        r_data.load("bad.rda")
        raise AssertionError(bad)
    except ValueError:
        pass

with open("words.txt", "w") as file:
    file.write("the quick brown fox jumps over the lazy dog\n" * 120)
script("text", "--text", "words.txt", "-o", "text.h5")
with h5py.File("text.h5") as file:
    x, y = file["train/x"][:], file["train/y"][:]
assert x.shape[1] == 128 and np.array_equal(x.ravel()[1:], y.ravel()[:-1])
assert "all phases done" in short_run("text", "text.h5")
assert "use 2560 or more" in script("text", "--text", "bad.rda", "-o", "none.h5", status=1)
assert not os.path.exists("none.h5")

if packages.installed("r-cran-mlbench"):
    script("letters", "-o", "letters.h5")
    short_run("letters", "letters.h5")
    with h5py.File("letters.h5") as file:
        assert file["train/x"].shape == (16000, 16) and len(file.attrs["classes"]) == 26
else:
    print("skipped: letters, as r-cran-mlbench is not installed")

if any(name.endswith(".ttf") for _, _, names in os.walk(FONTS) for name in names):
    for name in ("glyphs.h5", "again.h5"):
        script("glyphs", "--fonts", FONTS, "-o", name)
    with h5py.File("glyphs.h5") as file, h5py.File("again.h5") as again:
        assert file["train/x"].shape[1:] == (1, 28, 28) and file["train/x"].dtype == np.uint8
        assert np.array_equal(file["train/x"][:], again["train/x"][:]), "another run draws other images"
        assert np.ptp(file["test/x"][:].reshape(len(file["test/x"]), -1), axis=1).min() > 40, "an image is empty"
        assert sorted(set(file["train/y"][:])) == list(range(47))
    assert "47 classes" in fakequant("dataset", "check", "glyphs.h5")
    assert "all phases done" in short_run("glyphs", "glyphs.h5")
    assert "two or more" in script("glyphs", "--fonts", ".", "-o", "none.h5", status=1)
else:
    print("skipped: glyphs, as there are no fonts")

# Texts and tables do not need Pillow; glyphs without it give a message with the package to install.
os.makedirs("without/PIL", exist_ok=True)
with open("without/PIL/__init__.py", "w") as file:
    file.write("raise ModuleNotFoundError(\"No module named 'PIL'\", name='PIL')\n")
os.environ["PYTHONPATH"] = os.path.abspath("without")
with open("lines.txt", "w") as file:
    file.write("To be, or not to be, that is the question. " * 400)
script("text", "--text", "lines.txt", "-o", "without.h5")
printed = script("glyphs", "-o", "none.h5", status=1)
assert "has no PIL" in printed and "python3-pil" in printed and not os.path.exists("none.h5"), printed
print("scripts/data: ok")
