"""Predictions of fakequant, and counts of the codes, logit bits and predictions of an engine that differ."""
import collections
import json
import math

import h5py
import numpy as np

BATCH = 256  # batch size of files that do not state it


class Predictions:
    """A file that `fakequant verify` writes: samples, logits, and codes by quantizer.

    If axis 0 of codes is not the samples (a network that computes sequence first), a batch of the file can only be compared with the same
    batch in the engine. `batch` is its size.
    """

    def __init__(self, path):
        self.file = h5py.File(path)
        stated = json.loads(self.file["attributes"][()]) if "attributes" in self.file else {}
        self.batch, self.axes = stated.get("batch", BATCH), stated.get("batch_axes", {})
        self.names = list(self.file.get("codes", ()))

    def __len__(self):
        return len(self.file["x"])

    def batches(self, size):
        return [slice(start, min(start + size, len(self))) for start in range(0, len(self), size)]

    def x(self, rows):
        return self.file["x"][rows]

    def logits(self, rows):
        return self.file["logits"][rows]

    def is_constant(self, name):
        """Returns whether the codes do not depend on the samples. The file then has one copy."""
        return self.axis(name) is None

    def axis(self, name):
        """Returns the axis of the codes whose length is the number of samples or a multiple of it."""
        return self.axes.get(name, 0)

    def size(self, name):
        return int(self.file["codes"][name].size)

    def codes(self, name, rows):
        """Returns the codes of some samples, which are whole batches unless axis 0 is the samples."""
        codes, axis = self.file["codes"][name], self.axis(name)
        each = codes.shape[axis] // len(self)
        return codes[(slice(None),) * axis + (slice(rows.start * each, rows.stop * each),)]


class Counts:
    """Counts of the differences from the evaluation of one network."""

    def __init__(self):
        self.logits = self.logit_bits_different = self.answers = self.flips = 0
        self.max_abs_diff = self.largest = 0.0
        self.compared = collections.Counter()  # codes by quantizer
        self.different = collections.Counter()  # different codes by quantizer
        self.steps = {}  # largest difference of two codes by quantizer, integers only
        self.begun = {}  # {quantizer: [different codes, codes]} of samples whose earlier codes agree

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
        if expected.ndim > 1:  # one prediction per sample, or per position of a sample; axis 1 is the classes
            self.answers += expected.size // max(expected.shape[1], 1)
            self.flips += int((expected.argmax(1) != value.argmax(1)).sum())
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

    def add_begun(self, name, expected, value, agree):
        """Counts codes of samples whose earlier codes agree. Updates `agree`, one flag for each sample."""
        if value.size != expected.size or expected.size % max(len(agree), 1):
            agree[:] = False
            return
        off = (expected.reshape(len(agree), -1) != value.reshape(len(agree), -1)).sum(1)
        begun = self.begun.setdefault(name, [0, 0])
        begun[0] += int(off[agree].sum())
        begun[1] += int(agree.sum()) * (expected.size // max(len(agree), 1))
        agree &= off == 0

    def within(self, tolerance, code_tolerance, flip_tolerance=1.0):
        if self.codes_different > code_tolerance * self.codes or self.flips > flip_tolerance * self.answers:
            return False
        if tolerance == 0:
            return self.logit_bits_different == 0
        return self.max_abs_diff <= tolerance * self.largest

    def text(self):
        return (f"{self.codes_different:,} of {self.codes:,} codes and {self.logit_bits_different:,} of {self.logits:,} "
                f"logits differ (bits), {self.flips:,} argmax flips, largest difference {self.max_abs_diff:.3g}")

    def as_json(self):
        """Returns the counts as a dict for JSON. `max_abs_diff` is None if a logit is not finite."""
        return {"codes_different": self.codes_different, "logit_bits_different": self.logit_bits_different,
                "answers": self.answers, "flips": self.flips,
                "max_abs_diff": self.max_abs_diff if math.isfinite(self.max_abs_diff) else None,
                "different": self.different, "largest_steps": self.steps}
