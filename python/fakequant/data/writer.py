"""Writes samples and labels to a data set file (docs/formats.md), a batch at a time."""
import errno
import fcntl
import json
import os
import re
import tempfile
from dataclasses import dataclass, field

import h5py
import numpy as np

from .common import DataError, SystemFailure, file_kind
from .splits import GROUPS, TRAIN

WRITER = "fakequant dataset"
CHUNK_BYTES = 1 << 20
_ATTRIBUTE_BYTES = 48 << 10  # the limit of HDF5 is 64 KiB


class Samples:
    """Samples of one shape and dtype, read once and in order."""

    shape, dtype, scale, tokens = (), None, 0.0, False
    first_left_out = ""

    def __len__(self):
        raise NotImplementedError

    def batches(self, size):
        """(rows, x): row numbers and their samples, about `size` at once. Rows that cannot be read are left out."""
        raise NotImplementedError

    def place(self, row):
        """The sample in words, for messages: "x.npy: row 7"."""
        raise NotImplementedError

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
    """Samples that are written, and the group of each."""

    samples: Samples
    labels: Labels = field(default_factory=Labels)
    groups: object = None


@dataclass
class Options:
    """Attributes of the data set beside its arrays."""

    scale: float | None = None  # instead of the scale of the samples
    normalize: bool = False  # write mean and deviation of the training samples
    like: object = None  # a `Like` with the scale, mean and deviation
    columns: list = field(default_factory=list)
    tokens: str = ""
    tokenizer: bytes = b""
    vocabulary: bytes = b""


@dataclass
class Summary:
    """Properties of the written data set."""

    rows: list
    left_out: int = 0
    classes: int = 0
    scale: float = 0.0
    mean: object = None
    deviation: object = None
    smallest: float = float("inf")
    largest: float = float("-inf")


def dtype_name(dtype):
    return f"{dtype.kind}{8 * dtype.itemsize}"


class Statistics:
    """Extremes of all samples; mean and deviation of each channel over the training samples, in the order of the samples."""

    def __init__(self, shape, moments):
        self.channels, self.moments = shape[0], moments
        self.smallest, self.largest = float("inf"), float("-inf")
        self.count, self.shift, self.sums = 0, None, None

    def add(self, x, training):
        """Adds a batch. Returns the first sample with a NaN or infinity, or None."""
        if x.dtype.kind == "f":
            finite = np.isfinite(x).reshape(len(x), -1).all(1)
            if not finite.all():
                return int(np.argmin(finite))
        self.smallest, self.largest = min(self.smallest, float(x.min())), max(self.largest, float(x.max()))
        if not self.moments:
            return None
        values = x.reshape(len(x), self.channels, -1).astype(np.float64)
        if self.shift is None:
            self.shift = values[0, :, :1].copy()
            self.sums = np.zeros((2, self.channels))
        moved = (values[training] - self.shift).transpose(1, 0, 2).reshape(self.channels, -1)
        self.count += moved.shape[1]
        for i, terms in enumerate((moved, moved * moved)):
            if x.dtype.kind == "f":  # in sequence: the bits of the sums do not depend on the batches
                self.sums[i] = np.add.accumulate(np.concatenate([self.sums[i][:, None], terms], 1), axis=1)[:, -1]
            else:
                self.sums[i] += terms.sum(1)  # exact
        return None

    def mean(self):
        return self.shift[:, 0] + self.sums[0] / self.count

    def deviation(self):
        """1 for a channel with one value."""
        mean, squares = self.sums[0] / self.count, self.sums[1] / self.count
        variance = squares - mean * mean
        return np.where((variance > 1e-12 * squares) & (variance > 0), np.sqrt(np.maximum(variance, 0)), 1.0)


def _remove_unfinished(folder, prefix):
    """Removes temporary files without a lock: their writers were killed."""
    for name in os.listdir(folder):
        if name.startswith(prefix):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(file.name)
            except OSError:
                pass  # another process writes or has removed it


class Target:
    """The output file under a temporary name in its folder, until it is complete."""

    def __init__(self, path):
        self.path = path
        try:
            self.target = os.path.realpath(path)
            exists = os.path.exists(path)
            if not exists and os.path.islink(self.target) or path.endswith("/"):
                raise OSError(40 if os.path.islink(self.target) else 21, "it leads to no file")
            if os.path.isdir(path):
                raise IsADirectoryError(21, "Is a directory")
            if exists and not os.path.isfile(path):
                raise OSError(29, "it is not a regular file")
            if exists and not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied")
            self.mode = os.stat(path).st_mode & 0o7777 if exists else None
            if len(os.fsencode(os.path.basename(self.target))) > 255:
                raise OSError(36, "File name too long")
            folder, name = os.path.split(self.target)
            prefix = f".{name[:50]}.fakequant-"
            _remove_unfinished(folder, prefix)
            self.file, self.name = tempfile.mkstemp(dir=folder, prefix=prefix)
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
                raise SystemFailure(f"{path} cannot be written: {error.strerror}") from None
            raise DataError(f"--output: {path} cannot be written: {error.strerror}") from None

    def commit(self):
        try:
            os.fsync(self.file)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(self.file, 0o666 & ~mask if self.mode is None else self.mode)
            os.replace(self.name, self.target)
            self.name = None
            folder = os.open(os.path.dirname(self.target), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise SystemFailure(f"{self.path} cannot be written: {error.strerror}") from None

    def close(self):
        os.close(self.file)
        if self.name:
            os.unlink(self.name)


def check_output(path, read, force):
    """Raises DataError for an output that is one of the input files `read` ({flag: path}), or a file of another kind."""
    for flag, source in read.items():
        if os.path.isfile(path) and os.path.exists(source) and os.path.samefile(path, source):
            raise DataError(f"--output would write over {source}, which --{flag} reads: name another file")
    if force or not os.path.isfile(path) or os.path.getsize(path) == 0:
        return
    kind = file_kind(path) or "a file that fakequant does not write"
    if kind == "an HDF5 file":
        try:
            with h5py.File(path, "r") as file:
                writer = file.attrs.get("writer", b"")
        except OSError:
            writer, kind = b"", "a damaged HDF5 file"
        if (writer.decode(errors="replace") if isinstance(writer, bytes) else writer) == WRITER:
            return
    raise DataError(f"--output would replace {path}, which is {kind}, by a data set of fakequant dataset: name another file, "
                    "or give --force")


def set_attribute(h5_object, name, value):
    """Writes numbers, a text or a list of texts as fakequant's data sets keep them."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
        texts = [text.encode("utf-8", "replace") for text in value]
        longest = max(1, *map(len, texts))
        if len(texts) > 1 and longest * len(texts) <= _ATTRIBUTE_BYTES:
            h5_object.attrs.create(name, np.array(texts, f"S{longest}"), dtype=h5py.string_dtype("utf-8", longest))
            return
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
        if len(data) > _ATTRIBUTE_BYTES:
            h5_object.attrs.create(name, value, dtype=h5py.string_dtype("utf-8"))
        else:
            h5_object.attrs.create(name, np.bytes_(data), dtype=h5py.string_dtype("utf-8", max(1, len(data))))
        return
    numbers = np.asarray(value, np.float64).reshape(-1)
    h5_object.attrs.create(name, numbers if len(numbers) > 1 else numbers[0])


class Rows:
    """A dataset that grows by whole chunks."""

    def __init__(self, file, name, dtype, shape, rows):
        row_bytes = max(1, dtype.itemsize)
        for size in shape:
            row_bytes *= size
        self.chunk = min(max(CHUNK_BYTES // row_bytes, 1), max(rows, 1))
        self.data = file.create_dataset(name, (0, *shape), dtype, maxshape=(None, *shape), chunks=(self.chunk, *shape))
        self.waiting, self.count = [], 0

    def append(self, x):
        self.waiting.append(x)
        self.count += len(x)
        if self.count >= self.chunk:
            self.flush(self.count // self.chunk * self.chunk)

    def flush(self, count=None):
        if self.count == 0:
            return
        rows = np.concatenate(self.waiting)
        count = self.count if count is None else count
        begin = len(self.data)
        self.data.resize(begin + count, axis=0)
        self.data[begin:begin + count] = rows[:count]
        self.waiting = [rows[count:]]
        self.count -= count


def write(path, parts, options, progress=lambda done: None):
    """Writes the data set. Returns its Summary. Nothing is written at `path` unless all of it is."""
    target = Target(path)
    try:
        file = None
        try:
            file = h5py.File(target.name, "w", rdcc_nbytes=0, locking=False)
            summary = _write(file, path, parts, options, progress)
            file.close()
        except OSError as error:
            system = re.search(r"errno = (\d+)", str(error))
            number = int(system[1]) if system else error.errno
            if number is None:
                raise
            raise SystemFailure(f"{path} cannot be written: {os.strerror(number)}") from None
        finally:
            try:
                if file:
                    file.close()
            except (OSError, RuntimeError, ValueError):
                pass  # the first error is reported
        target.commit()
        return summary
    finally:
        target.close()


def check_labels(parts):
    """The number of classes; 0 for labels without classes. Raises DataError for a label without a name."""
    labels = parts[0].labels
    if labels.task == "several":
        return labels.values.shape[1]
    if labels.task not in ("classes", "dense"):
        return 0
    named, classes = len(labels.names), len(labels.names)
    for part in parts:
        values = part.labels.values.reshape(len(part.samples), -1)
        classes = max(classes, int(values.max()) + 1) if values.size else classes
        if named and classes > named:
            row = int(np.argmax((values >= named).any(1)))
            value = values[row][values[row] >= named][0]
            raise DataError(f"{part.samples.place(row)} has the label {value}, but there are {named} names of classes")
    return classes


def _write(file, path, parts, options, progress):
    first = parts[0].samples
    summary = Summary(rows=[0] * len(GROUPS), classes=check_labels(parts))
    statistics = Statistics(first.shape, options.normalize and not options.like)
    expected = sum(np.bincount(part.groups, minlength=len(GROUPS)) for part in parts)
    row_bytes = max(1, first.dtype.itemsize * int(np.prod(first.shape, dtype=np.int64)))
    x_rows, kept, done = {}, {group: [] for group in range(len(GROUPS))}, 0
    for part in parts:
        for rows, x in part.samples.batches(max(1, CHUNK_BYTES // row_bytes)):
            groups = part.groups[rows]
            bad = statistics.add(x, groups == TRAIN) if len(x) else None
            if bad is not None:
                raise DataError(f"{part.samples.place(int(rows[bad]))} has a NaN or infinity: leave that sample out, or give it "
                                "a value")
            for group in np.unique(groups).tolist():
                chosen = groups == group
                if group not in x_rows:
                    x_rows[group] = Rows(file, f"{GROUPS[group]}/x", first.dtype, first.shape, int(expected[group]))
                x_rows[group].append(x[chosen])
                kept[group].append((part.labels.values, rows[chosen]))
                summary.rows[group] += int(chosen.sum())
            done += len(rows)
            progress(done)
    total = sum(len(part.samples) for part in parts)
    summary.left_out = total - sum(summary.rows)
    if not any(summary.rows):
        raise DataError(f"no sample is left for {path}: {first.first_left_out}")
    summary.smallest, summary.largest = statistics.smallest, statistics.largest
    _choose_scale(summary, path, first, options, statistics)
    for group, rows in x_rows.items():
        rows.flush()
        _finish_group(file, GROUPS[group], rows.data, kept[group], parts[0].labels, first, summary)
    _finish_file(file, parts[0].labels, summary, options)
    return summary


def _choose_scale(summary, path, samples, options, statistics):
    if samples.tokens:
        return
    like = options.like
    summary.scale = options.scale if options.scale is not None else like.scale if like else samples.scale
    if like:
        summary.mean, summary.deviation = like.mean, like.deviation
    elif options.normalize:
        if not summary.rows[TRAIN]:
            raise DataError(f"{path} gets no sample for training, by whose mean and deviation values are normalised: give the "
                            "data set of the training by --like")
        scale = summary.scale or 1.0
        summary.mean, summary.deviation = statistics.mean() * scale, statistics.deviation() * scale


def _finish_group(file, group, x, kept, labels, samples, summary):
    if summary.scale > 0:
        set_attribute(x, "scale", summary.scale)
    if summary.mean is not None:
        set_attribute(x, "mean", summary.mean)
    if summary.deviation is not None:
        set_attribute(x, "std", summary.deviation)
    if len(samples.shape) == 3:
        set_attribute(x, "axes", "NCHW")
    if labels.task != "none":
        y = np.concatenate([values[rows] for values, rows in kept])
        _write_all(file, f"{group}/y", y)


def _finish_file(file, labels, summary, options):
    set_attribute(file, "writer", WRITER)
    if labels.names:
        set_attribute(file, "classes", list(labels.names))
    elif summary.classes:
        set_attribute(file, "classes", summary.classes)
    if options.columns:
        set_attribute(file, "columns", options.columns)
    if options.tokens:
        set_attribute(file, "tokens", options.tokens)
    for name in ("tokenizer", "vocabulary"):
        if data := getattr(options, name):
            _write_all(file, name, np.frombuffer(data, np.uint8))


def _write_all(file, name, values):
    rows = Rows(file, name, values.dtype, values.shape[1:], len(values))
    rows.append(values)
    rows.flush()
