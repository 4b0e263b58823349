"""Predictions of fakequant that an engine is compared with: one of the files that `fakequant verify` writes."""
import json

import h5py

BATCH = 256  # of files that do not state theirs


class Predictions:
    """Samples, logits and codes by quantizer. Where axis 0 of codes is not the samples (a network that computes sequence
    first), a batch of the file is only comparable to the same batch in an engine: `batch` is its size."""

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
        """Whether the codes do not depend on the samples: one copy is stored."""
        return self.axis(name) is None

    def axis(self, name):
        """The axis of the samples, or of a multiple of them."""
        return self.axes.get(name, 0)

    def size(self, name):
        return int(self.file["codes"][name].size)

    def codes(self, name, rows):
        """Returns the codes of some samples, which are whole batches unless axis 0 is the samples."""
        codes, axis = self.file["codes"][name], self.axis(name)
        each = codes.shape[axis] // len(self)
        return codes[(slice(None),) * axis + (slice(rows.start * each, rows.stop * each),)]
