"""Counting what an engine computes otherwise than fakequant did."""
import collections
import math

import numpy as np
from onnx import TensorProto

from onnx_engine import FLOAT8

BATCH, ALONE = 256, 8


def expected_codes(source, name, kind, stored):
    """The library's codes as the engine's tensor holds them: with the zero point, which the engine moves by 128 where it
    makes a signed tensor unsigned."""
    node = source.quantizer(name)
    if kind in FLOAT8:
        return stored.view(FLOAT8[kind]).astype(np.float32).view(np.int32)
    moved = kind == TensorProto.UINT8 and source.code_type(node) == TensorProto.INT8
    return stored.astype(np.int32) + source.zero_point(node) + (128 if moved else 0)


def logical(expected, value, order):
    """With the axes in that order or, where it is whether they are channels last, with the channels first. Where the shapes tell the order they have the word: the optimiser also moves the
    transpositions of the network itself. Where as many channels as pixels fit both ways, that one is taken in which fewer
    codes differ."""
    if isinstance(order, list):
        return np.ascontiguousarray(np.transpose(value, order))
    if value.ndim < 3:
        return value
    channels_last = order
    moved = np.moveaxis(value, -1, 1)
    first, last = value.shape == expected.shape, moved.shape == expected.shape
    orders = [np.ascontiguousarray(order) for order in ([moved, value] if channels_last else [value, moved])]
    if first and last:
        return min(orders, key=lambda order: codes_different(expected, order))
    return orders[0] if first == last or (last if channels_last else first) else orders[1]


def codes_different(expected, value):
    value = value.view(np.int32) if value.dtype == np.float32 else value
    return int((expected.ravel() != value.ravel()).sum())


def bits_different(expected, value):
    return int((expected.ravel().view(np.int32) != value.ravel().view(np.int32)).sum())


class Counts:
    """What differs from one network's evaluation."""

    def __init__(self):
        self.logits = self.logit_bits_different = self.flips = 0
        self.max_abs_diff = self.largest = 0.0
        self.compared = collections.Counter()  # codes by quantizer
        self.different = collections.Counter()  # of them
        self.steps = {}  # by quantizer, the largest difference of two codes; of integers only

    @property
    def codes(self):
        return sum(self.compared.values())

    @property
    def codes_different(self):
        return sum(self.different.values())

    def add_logits(self, expected, value):
        same = expected.view(np.int32) == value.view(np.int32)
        with np.errstate(invalid="ignore"):
            off = np.nan_to_num(np.where(same, 0, np.abs(expected.astype(np.float64) - value)), nan=np.inf)
        self.logits += expected.size
        self.logit_bits_different += int((~same).sum())
        if expected.ndim == 2:  # an answer for each sample
            self.flips += int((expected.argmax(-1) != value.argmax(-1)).sum())
        self.max_abs_diff = max(self.max_abs_diff, float(off.max(initial=0)))
        self.largest = max(self.largest, float(np.abs(np.nan_to_num(expected)).max(initial=0)))

    def add_codes(self, name, expected, value, integers):
        self.compared[name] += expected.size
        if value.size != expected.size:
            self.different[name] += expected.size
            return
        value = value.view(np.int32) if value.dtype == np.float32 else value.astype(np.int32)
        off = np.abs(expected.ravel().astype(np.int64) - value.ravel())
        if count := int((off != 0).sum()):
            self.different[name] += count
        if count and integers:
            self.steps[name] = max(self.steps.get(name, 0), int(off.max()))

    def within(self, tolerance, code_tolerance):
        if self.codes_different > code_tolerance * self.codes:
            return False
        if tolerance == 0:
            return self.logit_bits_different == 0
        return self.max_abs_diff <= tolerance * self.largest

    def text(self):
        return (f"{self.codes_different:,} of {self.codes:,} codes and {self.logit_bits_different:,} of {self.logits:,} "
                f"logits differ (bits), {self.flips:,} argmax flips, largest difference {self.max_abs_diff:.3g}")

    def as_json(self):
        """`max_abs_diff` is null where a logit is no number."""
        return {"codes_different": self.codes_different, "logit_bits_different": self.logit_bits_different,
                "flips": self.flips, "max_abs_diff": self.max_abs_diff if math.isfinite(self.max_abs_diff) else None,
                "different": self.different, "largest_steps": self.steps}


def count(engine, source, sides):
    """Of each side, a list of its files, which hold the same samples. Also counts in `engine` where it disagrees with
    itself: one by one, for the first few samples, and where codes are read."""
    counts = [Counts() for _ in sides]
    batch = source.batch(BATCH)
    for files in zip(*sides, strict=True):
        x = files[0]["x"]
        for start in range(0, len(x), batch):
            rows = slice(start, start + batch)
            logits = engine.logits(x[rows])
            values, of_exposed = engine.codes(x[rows])
            engine.exposed_different += bits_different(logits, of_exposed)
            if counts[0].logits == 0:
                alone = [engine.logits(x[i:i + 1]) for i in range(min(ALONE, len(logits)))]
                engine.alone_different = bits_different(logits[:ALONE], np.concatenate(alone))
            for side, file in zip(counts, files):
                add(side, engine, source, file, rows, logits, values)
    return counts


def add(counts, engine, source, file, rows, logits, values):
    expected = file["logits"][rows]
    if logits.shape != expected.shape:
        raise ValueError(f"it answers {list(logits.shape)} where the checkpoint answers {list(expected.shape)}")
    counts.add_logits(expected, logits)
    for name, (tensor, order, kind) in engine.found.items():
        wanted = expected_codes(source, name, kind, file["codes"][name][rows])
        counts.add_codes(name, wanted, logical(wanted, values[tensor], order), kind not in FLOAT8)
