"""Data frames of R's .rda files: XDR serialization, version 2 or 3 (R Internals, section 1.8), compressed in any way."""

import bz2
import gzip
import lzma
import struct

import numpy as np

SYMBOL, PAIRLIST, CHARS, LOGICALS, INTEGERS, REALS, STRINGS, VECTOR = 1, 2, 9, 10, 13, 14, 16, 19
NIL, REFERENCE = 254, 255
HAS_ATTRIBUTES, HAS_TAG = 1 << 9, 1 << 10


class Factor:
    """A categorical column: `codes` from 0, and the name of each class."""

    def __init__(self, codes, levels):
        self.codes, self.levels = [code - 1 for code in codes], levels


class Reader:
    def __init__(self, data):
        self.data, self.at, self.symbols = data, 0, []

    def take(self, count):
        if self.at + count > len(self.data):
            raise ValueError("the R file is cut")
        self.at += count
        return self.data[self.at - count:self.at]

    def integer(self):
        return struct.unpack(">i", self.take(4))[0]

    def numbers(self, kind):
        return np.frombuffer(self.take((count := self.integer()) * int(kind[2])), kind, count).tolist()

    def chars(self):
        length = self.integer()
        return None if length < 0 else self.take(length).decode("utf-8", "replace")

    def item(self):
        flags = self.integer()
        kind = flags & 255
        if kind == NIL:
            return None
        if kind == REFERENCE:
            return self.symbols[(flags >> 8 or self.integer()) - 1]
        if kind == SYMBOL:
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == CHARS:
            return self.chars()
        if kind == PAIRLIST:
            return self.pairs(flags)
        value = self.vector(kind)
        return self.with_attributes(value, self.item()) if flags & HAS_ATTRIBUTES else value

    def pairs(self, flags):
        """{tag: value} of a list of pairs, to its end."""
        out = {}
        while flags & 255 == PAIRLIST:
            if flags & HAS_ATTRIBUTES:
                self.item()
            tag = self.item() if flags & HAS_TAG else len(out)
            out[tag] = self.item()
            flags = self.integer()
        if flags & 255 != NIL:
            raise ValueError("the R file has a pair that is no list")
        return out

    def vector(self, kind):
        if kind in (LOGICALS, INTEGERS):
            return self.numbers(">i4")
        if kind == REALS:
            return self.numbers(">f8")
        if kind in (STRINGS, VECTOR):
            return [self.item() for _ in range(self.integer())]
        raise ValueError(f"the R file has a value of unsupported type {kind}")

    @staticmethod
    def with_attributes(value, attributes):
        if "levels" in attributes:
            return Factor(value, attributes["levels"])
        names = attributes.get("names")
        return dict(zip(names, value)) if names else value


def load(path):
    """The variables of a file by name; data frames are {column: values}."""
    with open(path, "rb") as file:
        data = file.read()
    for begin, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ", lzma)):
        if data.startswith(begin):
            data = module.decompress(data)
    if data[:5] not in (b"RDX2\n", b"RDX3\n") or data[5:7] != b"X\n":
        raise ValueError(f"{path} is no .rda file of XDR")
    reader = Reader(data)
    reader.at = 7
    version = reader.integer()
    reader.take(8)
    if version == 3:
        reader.take(reader.integer())
    return reader.item()
