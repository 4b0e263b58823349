"""Data sets as Python's sequences."""
import operator

from ._fakequant import Dataset, Subset

_BLOCK = 64  # samples that are read at once


def _sample(self, index):
    """data[3] is (x, y) of a sample, y None without labels; data[:100] is a data set."""
    if isinstance(index, slice):
        return Subset(self, range(*index.indices(len(self))))
    index = operator.index(index)
    if not -len(self) <= index < len(self):
        raise IndexError(f"[Dataset] {index} is no sample: there are {len(self)}")
    x, y = self.read([index % len(self)])
    return x[0], None if y is None else y[0]


def _samples(self):
    """(x, y) of each sample, parts of arrays that are read some at a time."""
    for begin in range(0, len(self), _BLOCK):
        x, y = self.read(range(begin, min(begin + _BLOCK, len(self))))
        for i in range(len(x)):
            yield x[i], None if y is None else y[i]


def _describe(self):
    labels = f", {self.classes} classes" if self.classes else ""
    return f"Dataset of {len(self)} samples {self.sample_shape}{labels}"


Dataset.__getitem__, Dataset.__iter__, Dataset.__repr__ = _sample, _samples, _describe
