"""Runs the commands of docs/start.md and README.md unchanged. Each section must end with a file that ONNX Runtime computes
with the same bits, and with good accuracy."""

import os
import re
import shlex
import struct
import subprocess
import zlib

import h5py
import numpy as np
from lib import COMMAND, DIGITS, SOURCE, result

RANDOM = np.random.default_rng(0)
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def png(pixels):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = pixels.shape
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(
        b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))) + chunk(b"IEND", b"")


with h5py.File(DIGITS) as file:
    digits, labels = file["train/x"][:1000, 0] * 15, file["train/y"][:1000]


def images():
    for index, (pixels, label) in enumerate(zip(digits.astype(np.uint8), labels)):
        os.makedirs(f"pictures/{NAMES[label]}", exist_ok=True)
        with open(f"pictures/{NAMES[label]}/{index:04}.png", "wb") as file:
            file.write(png(np.kron(pixels, np.ones((4, 4), np.uint8))))


def arrays():
    np.save("x.npy", digits.astype(np.uint8)[..., None])
    np.save("y.npy", labels)


def table():
    centres = np.array([[3, 40, 0.1], [5, 20, 0.3], [9, 30, 0.2]])
    with open("table.csv", "w") as file:
        file.write("length,weight,share,species\n")
        for i in range(600):
            row = centres[i % 3] * RANDOM.normal(1, 0.1, 3)
            file.write(",".join(f"{value:.5g}" for value in row) + f",{['finch', 'robin', 'wren'][i % 3]}\n")


def texts():
    words = {"good": ["fine", "lovely", "moving", "brilliant"], "bad": ["dull", "poor", "awful", "weak"]}
    nouns = ["film", "story", "plot", "cast", "music"]
    with open("texts.txt", "w") as file, open("labels.txt", "w") as predictions:
        for i in range(1000):
            kind = ["good", "bad"][i % 2]
            one, two = RANDOM.choice(nouns, 2), RANDOM.choice(words[kind], 2)
            file.write(f"The {one[0]} is {two[0]} and the {one[1]} is {two[1]}.\n")
            predictions.write(kind + "\n")


def run_section(commands):
    """Returns the output of each line of a section. Conversion finds the system's Python, which has Pillow."""
    message = []
    others = {name: value for name, value in os.environ.items() if name != "FAKEQUANT_PYTHON"}
    for line in commands:
        words = shlex.split(line)
        assert words[0] == "fakequant", line
        own = others if words[1] == "dataset" else os.environ
        done = subprocess.run([COMMAND, *words[1:]], capture_output=True, text=True, timeout=300, env=own)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        message.append(done.stdout)
    return message


with open(os.path.join(SOURCE, "docs", "start.md"), encoding="utf-8") as page:
    sections = re.split(r"^## ", page.read(), flags=re.M)[1:]
os.symlink(os.path.join(SOURCE, "models"), "models")
MAKERS = {"A folder of images": images, "NumPy arrays": arrays, "A table": table, "Texts": texts}
found = {}
for section in sections:
    title, fenced = section.splitlines()[0], re.findall(r"^```(\w*)\n(.*?)^```$", section, re.M | re.S)
    blocks, shown = ([text for kind, text in fenced if kind == wanted] for wanted in ("sh", ""))
    if title not in MAKERS:
        assert not blocks, f"{title} has commands and no data here"
        continue
    MAKERS.pop(title)()
    commands = "".join(blocks).splitlines()
    assert len(commands) == 5, (title, commands)
    message = run_section(commands)
    assert re.search(r"^verify: 0 of [\d,]+ codes and 0 of [\d,]+ logits differ", message[-1], re.M), (title, message[-1])
    data = re.search(r"--data (\S+)", commands[-1])[1]
    found[title] = result("evaluate", "int8.h5", "--data", data)["accuracy"]
    for line in "".join(shown).splitlines():  # the page shows the printed lines
        assert line in "".join(message).splitlines(), (title, line, message)
    assert not any(entry["verdict"] == "wrong" for entry in result("dataset", "check", data)["findings"])
assert not MAKERS, f"docs/start.md has no section {list(MAKERS)}"
assert all(accuracy > 90 for accuracy in found.values()), found  # of 10, 10, 3 and 2 classes: no accident

# Only training and evaluation require labels.
with h5py.File("texts.h5") as file, h5py.File("bare.h5", "w") as bare:
    bare["test/x"] = file["test/x"][...]
run_section(["fakequant verify int8.onnx --checkpoint int8.h5 --data bare.h5", "fakequant inspect bare.h5",
             "fakequant predict int8.h5 --data bare.h5 -o answers.h5"])
os.symlink(os.path.join(SOURCE, "data"), "data")
with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as page:
    commands, shown = re.search(r"^## Use the command\n\n```sh\n(.*?)^```\n\n```\n(.*?)^```$", page.read(), re.M | re.S).groups()
assert shown.strip() in run_section(commands.splitlines())[-1].splitlines(), shown
print("start:", found)
