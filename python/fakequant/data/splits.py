"""Assigns samples to the groups train, val and test: by the seed alone, with the same share of every class."""
import math

import numpy as np

from .common import DataError

GROUPS = ("train", "val", "test")
TRAIN, VALIDATION, TEST = range(3)

_SPLIT_SEED = 0x73706C6974  # differs from the seeds of shuffling and augmentation
_LOW = (1 << 32) - 1


def philox(counters, first, second, key):
    """The first 64 bits of Philox4x32-10 for each of `counters` (uint64), as uint64."""
    low, shift = np.uint64(_LOW), np.uint64(32)
    words = [counters & low, counters >> shift, np.full_like(counters, first), np.full_like(counters, second)]
    keys = [key & _LOW, key >> 32 & _LOW]
    for _ in range(10):
        p, q = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [(q >> shift) ^ words[1] ^ np.uint64(keys[0]), q & low, (p >> shift) ^ words[3] ^ np.uint64(keys[1]), p & low]
        keys = [(keys[0] + 0x9E3779B9) & _LOW, (keys[1] + 0xBB67AE85) & _LOW]
    return words[0] | words[1] << shift


def shuffle(rows, seed, stream):
    """Shuffles a list in place (Fisher and Yates), as the C++ class Draws does for (seed, stream, 0)."""
    limits = range(len(rows), 1, -1)
    count, at = 0, 0  # draws that were taken, positions that were exchanged
    while at < len(limits):
        draws = philox(np.arange(count, count + len(limits) - at, dtype=np.uint64), stream & _LOW, 0, seed).tolist()
        for draw in draws:
            count += 1
            limit = limits[at]
            if draw < (1 << 64) % limit:
                continue  # would favour small positions
            other = draw % limit
            rows[limit - 1], rows[other] = rows[other], rows[limit - 1]
            at += 1


class EvenRounding:
    """Whole numbers whose running sum stays nearest to the sum of the shares."""

    def __init__(self):
        self.sum = 0.0
        self.given = 0

    def next(self, wanted, most):
        self.sum += wanted
        whole = math.floor(self.sum)
        rounded = whole + (self.sum - whole >= 0.5)
        given = min(max(rounded - self.given, 0), most)
        self.given += given
        return given


def split(labels, count, validation, test, seed):
    """The group of each of `count` samples. A class keeps a sample for training, unless there is no training.

    `labels` are class numbers, or None to draw from all samples alike.
    """
    if validation + test > 1:
        raise DataError(f"--val is {validation:g} and --test is {test:g}: give no more than 1 together")
    rest = 1 - validation - test
    groups = np.full(count, TRAIN, np.uint8)
    tests, validations = EvenRounding(), EvenRounding()
    if labels is None:
        classes = [(0, list(range(count)))]
    else:
        order = np.argsort(labels, kind="stable")
        values, begins = np.unique(labels[order], return_index=True)
        classes = [(int(value), rows.tolist()) for value, rows in zip(values, np.split(order, begins[1:]))]
    for label, rows in classes:
        shuffle(rows, seed ^ _SPLIT_SEED, label)
        most = len(rows) - 1 if rest > 1e-9 else len(rows)
        tested = tests.next(len(rows) * test, most)
        held = validations.next(len(rows) * validation, most - tested)
        groups[rows[:tested]] = TEST
        groups[rows[tested:tested + held]] = VALIDATION
    return groups
