"""The next byte of a text: x [N, 128], and y the same bytes one position later."""

import glob
import os

import numpy as np

from . import data_file, packages

LENGTH, HELD_OUT = 128, 0.1
FORTUNES = "usr/share/games/fortunes"


def read_bytes(given):
    paths = given.text
    if not paths:
        folder = os.path.join(packages.unpacked("fortunes", given.packages), FORTUNES)
        paths = sorted(p for p in glob.glob(os.path.join(folder, "*")) if os.path.isfile(p) and "." not in os.path.basename(p))
    content = b"".join(open(path, "rb").read() for path in paths)
    return np.frombuffer(content, np.uint8)


def make(output, given):
    text = read_bytes(given)
    count = (len(text) - 1) // LENGTH
    if count < 20:
        raise ValueError(f"the text has {len(text)} bytes: use {20 * LENGTH} or more")
    x, y = (text[begin:begin + count * LENGTH].reshape(count, LENGTH).astype(np.int16) for begin in (0, 1))
    train = round(count * (1 - HELD_OUT))
    data_file.write(output, {"train": (x[:train], y[:train]), "test": (x[train:], y[train:])})
