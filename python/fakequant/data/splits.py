"""Assigns samples to the groups train, val and test: by the seed alone, with the same share of every class."""
import math

import numpy as np

from .common import DataError

GROUPS = ("train", "val", "test")
TRAIN, VALIDATION, TEST = range(3)

_SPLIT_SEED = 0x73706C6974  # differs from the seeds of shuffling and augmentation
_LOW = (1 << 32) - 1


def philox(counters, first, second, key):
    """Returns the first 64 bits of Philox4x32-10 for each of `counters` (uint64), as uint64."""
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
    count, at = 0, 0  # number of draws, number of exchanged positions
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


def check_shares(validation, test):
    if validation + test > 1:
        raise DataError(f"--val is {validation:g} and --test is {test:g}: their sum may be at most 1")


def split(labels, count, validation, test, seed):
    """Returns the group of each of `count` samples. A class keeps a sample for training, unless there is no training.

    `labels` are class numbers, or None to draw from all samples alike. The running counts of the groups stay nearest to the sums of
    the shares.
    """
    check_shares(validation, test)
    groups, wanted, given = np.full(count, TRAIN, np.uint8), {TEST: 0.0, VALIDATION: 0.0}, {TEST: 0, VALIDATION: 0}
    labels = np.zeros(count, np.int64) if labels is None else labels
    order = np.argsort(labels, kind="stable")
    values, begins = np.unique(labels[order], return_index=True)
    for label, rows in zip(values.tolist(), np.split(order, begins[1:])):
        rows, size = rows.tolist(), len(rows)
        shuffle(rows, seed ^ _SPLIT_SEED, label)
        left = size - 1 if validation + test < 1 - 1e-9 else size
        for group, share in ((TEST, test), (VALIDATION, validation)):
            wanted[group] += size * share
            whole = math.floor(wanted[group])
            taken = min(max(whole + (wanted[group] - whole >= 0.5) - given[group], 0), left)
            given[group] += taken
            left -= taken
            groups[rows[:taken]] = group
            rows = rows[taken:]
    return groups


def draw_groups(flags, part, test_elsewhere):
    """Returns the group of each sample of a part, by --val, --test and --seed."""
    test = 0.0 if test_elsewhere and not flags.given("test") else flags["test"]
    labels = part.labels.values if part.labels.task == "classes" else None
    return split(labels, len(part.samples), flags["val"], test, flags["seed"])
