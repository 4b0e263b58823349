"""Writes samples and labels to a data set file (docs/formats.md), a batch at a time."""
import contextlib
import errno
import fcntl
import json
import os
import re
import tempfile
from dataclasses import dataclass, field

import h5py
import numpy as np

from .common import DataError, SystemFailure, unfinished
from .reader import WRITER
from .splits import GROUPS, TRAIN

CHUNK_BYTES = 1 << 20
_ATTRIBUTE_BYTES = 48 << 10  # the limit of HDF5 is 64 KiB


class Samples:
    """`count` samples of one shape and dtype, read once and in order."""

    path, count, shape, dtype, scale, tokens = "", 0, (), None, 0.0, False
    left_out = ()  # [{"path": place, "reason": text}]

    def __len__(self):
        return self.count

    def arrays(self, size):
        """Yields arrays of about `size` samples."""
        raise NotImplementedError

    def batches(self, size):
        """Yields (row numbers, samples). Overridden by samples that leave out rows that cannot be read."""
        begin = 0
        for x in self.arrays(size):
            yield np.arange(begin, begin + len(x)), x
            begin += len(x)

    def place(self, row):
        """Returns the sample in words, for messages: "x.npy: row 7"."""
        return f"{self.path}: row {row}"

    @property
    def dtype_name(self):
        return dtype_name(self.dtype)


@dataclass
class Labels:
    """Labels of samples. `values` are int64 [N] of classes, uint8 [N, K] of several, float32 of real, int64 of dense."""

    task: str = "none"
    values: object = None
    names: list = field(default_factory=list)


@dataclass
class Part:
    """Samples of one source, and their groups (None: drawn later)."""

    samples: Samples
    labels: Labels = field(default_factory=Labels)
    groups: object = None

    def assign(self, group):
        """Puts all samples into one group. Returns the part."""
        self.groups = np.full(len(self.samples), group, np.uint8)
        return self


@dataclass
class DataSet:
    """Content of the file, and notes for the report."""

    like: object = None
    parts: list = field(default_factory=list)
    scale: float | None = None  # replaces the scale of the samples
    normalize: bool = False  # write mean and deviation of the training samples
    columns: list = field(default_factory=list)
    text: dict = field(default_factory=dict)  # tokens (str), tokenizer and vocabulary (bytes)
    notes: list = field(default_factory=list)
    report: dict = field(default_factory=dict)


def dtype_name(dtype):
    return f"{dtype.kind}{8 * dtype.itemsize}"


class Statistics:
    """Extremes of all samples; mean and deviation of each channel over the training samples."""

    def __init__(self, channels, moments):
        self.channels, self.moments = channels, moments
        self.smallest, self.largest = float("inf"), float("-inf")
        self.count, self.shift, self.sums = 0, None, np.zeros((2, channels))

    def add(self, x, training):
        """Adds a batch. Returns the first sample with a NaN or infinity, or None."""
        if x.dtype.kind == "f":
            finite = np.isfinite(x).reshape(len(x), -1).all(1)
            if not finite.all():
                return int(np.argmin(finite))
        self.smallest, self.largest = min(self.smallest, float(x.min())), max(self.largest, float(x.max()))
        if self.moments:
            values = x.reshape(len(x), self.channels, -1).astype(np.float64)
            if self.shift is None:
                self.shift = values[0, :, :1].copy()
            values = (values[training] - self.shift).transpose(1, 0, 2).reshape(self.channels, -1)
            self.count += values.shape[1]
            for i, terms in enumerate((values, values * values)):  # in sequence: the bits do not depend on the batches
                self.sums[i] = np.add.accumulate(np.concatenate([self.sums[i][:, None], terms], 1), axis=1)[:, -1]
        return None

    def scaled_moments(self, scale):
        """Returns (mean, deviation) of scaled values. The deviation of a channel with one value is 1."""
        mean, squares = self.sums / self.count
        variance = squares - mean * mean
        deviation = np.where((variance > 1e-12 * squares) & (variance > 0), np.sqrt(np.maximum(variance, 0)), 1.0)
        return (self.shift[:, 0] + mean) * scale, deviation * scale


def _remove_unfinished(folder, prefix):
    """Removes temporary files without a lock: their writers were killed."""
    for name in os.listdir(folder):
        if name.startswith(prefix):
            with contextlib.suppress(OSError), open(os.path.join(folder, name), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(file.name)


def _open_output(path):
    """Returns (file, temporary name, target, mode) of an output. Raises OSError if the output cannot be written."""
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
    if os.path.isdir(path) or path.endswith("/"):
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    if mode is not None and not os.path.isfile(path):
        raise OSError(errno.ESPIPE, "it is not a regular file")
    if mode is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "Permission denied")
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    prefix = f".{name[:50]}.fakequant-"
    _remove_unfinished(folder, prefix)
    file, temporary = tempfile.mkstemp(dir=folder, prefix=prefix)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file, temporary, target, mode


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary file in the folder of `path`, which replaces `path` at the end of a block without an error."""
    try:
        file, temporary, target, mode = _open_output(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
            raise SystemFailure(f"{path} cannot be written: {error.strerror}") from None
        raise DataError(f"--output: {path} cannot be written: {error.strerror}") from None
    unfinished.add(temporary)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        os.fsync(file)
        os.fchmod(file, 0o666 & ~mask if mode is None else mode & 0o7777)
        os.replace(temporary, target)
        unfinished.discard(temporary)
        folder = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        system = re.search(r"errno = (\d+)", str(error))  # errors of HDF5 have the number in their text
        number = int(system[1]) if system else error.errno
        if number is None:
            raise
        raise SystemFailure(f"{path} cannot be written: {os.strerror(number)}") from None
    finally:
        os.close(file)
        if temporary in unfinished:
            unfinished.discard(temporary)
            os.unlink(temporary)


def set_attribute(h5_object, name, value):
    """Writes numbers, a text or a list of texts in the form that data sets have."""
    if isinstance(value, list):
        data = [text.encode("utf-8", "replace") for text in value]
        longest = max(1, *map(len, data))
        if len(data) > 1 and longest * len(data) <= _ATTRIBUTE_BYTES:
            h5_object.attrs.create(name, np.array(data, f"S{longest}"), dtype=h5py.string_dtype("utf-8", longest))
            return
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
        fits = len(data) <= _ATTRIBUTE_BYTES
        h5_object.attrs.create(name, np.bytes_(data) if fits else value,
                               dtype=h5py.string_dtype("utf-8", max(1, len(data)) if fits else None))
        return
    numbers = np.asarray(value, np.float64).reshape(-1)
    h5_object.attrs.create(name, numbers if len(numbers) > 1 else numbers[0])


def create(file, name, dtype, shape):
    """Creates an array that is stored in chunks of about 1 MiB along the first axis."""
    row_bytes = max(1, dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64)))
    chunk = min(max(CHUNK_BYTES // row_bytes, 1), max(shape[0], 1))
    return file.create_dataset(name, shape, dtype, maxshape=(None, *shape[1:]), chunks=(chunk, *shape[1:]))


def count_classes(parts):
    """Returns the number of classes; 0 for labels without classes. Raises DataError for a label without a name."""
    labels = parts[0].labels
    if labels.task == "several":
        return labels.values.shape[1]
    if labels.task not in ("classes", "dense"):
        return 0
    named, classes = len(labels.names), len(labels.names)
    for part in parts:
        values = part.labels.values.reshape(len(part.samples), -1)
        classes = max(classes, int(values.max(initial=-1)) + 1)
        if named and classes > named:
            row = int(np.argmax((values >= named).any(1)))
            raise DataError(f"{part.samples.place(row)} has the label {values[row][values[row] >= named][0]}, but there are {named} "
                            "names of classes")
    return classes


class Writer:
    """Writes a DataSet to an HDF5 file. Keeps counts, scale and statistics for the report."""

    def __init__(self, data, progress):
        self.data, self.samples, self.progress = data, data.parts[0].samples, progress
        self.classes = count_classes(data.parts)
        self.counts = sum(np.bincount(part.groups, minlength=len(GROUPS)) for part in data.parts).tolist()
        self.rows, self.left_out = [0] * len(GROUPS), 0
        self.scale, self.mean, self.deviation = 0.0, None, None
        self.statistics = Statistics(self.samples.shape[0], data.normalize and not data.like)

    def write(self, path):
        """Writes the file. Nothing is written at `path` unless all of it is."""
        with replacing(path) as temporary:
            file = h5py.File(temporary, "w", rdcc_nbytes=0, locking=False)
            try:
                self._write(file, path)
                file.close()
            except BaseException:
                with contextlib.suppress(OSError, RuntimeError, ValueError):  # the first error is reported
                    file.close()
                raise

    def _write(self, file, path):
        arrays, kept, done = {}, {}, 0
        total = sum(len(part.samples) for part in self.data.parts)
        row_bytes = max(1, self.samples.dtype.itemsize * int(np.prod(self.samples.shape, dtype=np.int64)))
        for part in self.data.parts:
            for rows, x in part.samples.batches(max(1, CHUNK_BYTES // row_bytes)):
                groups = part.groups[rows]
                bad = self.statistics.add(x, groups == TRAIN)
                if bad is not None:
                    raise DataError(f"{part.samples.place(int(rows[bad]))} has a NaN or infinity: leave that sample out, or give it a value")
                for group in np.unique(groups).tolist():
                    if group not in arrays:
                        arrays[group] = create(file, f"{GROUPS[group]}/x", x.dtype, (self.counts[group], *self.samples.shape))
                    chosen = groups == group
                    begin = self.rows[group]
                    self.rows[group] += int(chosen.sum())
                    arrays[group][begin:self.rows[group]] = x[chosen]
                    if part.labels.task != "none":
                        kept.setdefault(group, []).append(part.labels.values[rows[chosen]])
                done += len(rows)
                self.progress(done, total)
        self.progress(total, total)
        self.left_out = total - sum(self.rows)
        if not arrays:
            first = self.samples.left_out[0]
            raise DataError(f"no sample is left for {path}: {first['path']} {first['reason']}")
        self._choose_scale(path)
        for group, x in arrays.items():
            x.resize(self.rows[group], axis=0)
            self._set_attributes(x)
            if group in kept:
                y = np.concatenate(kept[group])
                create(file, f"{GROUPS[group]}/y", y.dtype, y.shape)[...] = y
        self._finish(file)

    def _choose_scale(self, path):
        if self.samples.tokens:
            return
        like, own = self.data.like, self.data.scale
        self.scale = own if own is not None else like.scale if like else self.samples.scale
        if like:
            self.mean, self.deviation = like.mean, like.deviation
        elif self.data.normalize:
            if not self.rows[TRAIN]:
                raise DataError(f"{path} has no training sample for the mean and deviation of --normalize: use the data set of the "
                                "training by --like")
            self.mean, self.deviation = self.statistics.scaled_moments(self.scale or 1.0)

    def _set_attributes(self, x):
        for name, value in (("scale", self.scale or None), ("mean", self.mean), ("std", self.deviation)):
            if value is not None:
                set_attribute(x, name, value)
        if len(self.samples.shape) == 3:
            set_attribute(x, "axes", "NCHW")

    def _finish(self, file):
        set_attribute(file, "writer", WRITER)
        classes = list(self.data.parts[0].labels.names) or self.classes
        for name, value in (("classes", classes), ("columns", self.data.columns), ("tokens", self.data.text.get("tokens"))):
            if value:
                set_attribute(file, name, value)
        for name in ("tokenizer", "vocabulary"):
            if value := self.data.text.get(name):
                create(file, name, np.dtype("u1"), (len(value),))[...] = np.frombuffer(value, np.uint8)
