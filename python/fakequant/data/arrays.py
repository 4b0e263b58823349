"""Data sets of NumPy arrays (.npy, .npz) and of IDX files, as MNIST comes. Arrays are read a few rows at a time."""
import ast
import os
import re
import struct
import zipfile

import numpy as np

from .common import DataError, Stream, did_you_mean, file_kind, one_line_name, printable
from .labels import TASKS, labels_from_array
from .splits import TEST
from .writer import Part, Samples

LAYOUTS = ("auto", "nchw", "nhwc", "nhw", "ncl", "flat", "tokens")
_AXES = {"nchw": 4, "nhwc": 4, "nhw": 3, "ncl": 3, "flat": 2, "tokens": 2}
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_IN_MEMORY = 1 << 31
_MOST_ROW = 1 << 30  # bytes
_MOST_HEADER = 1 << 20
_MOST_ELEMENTS = 1 << 48
_WAY = "save x.astype(numpy.float32)"


class ArrayFile:
    """An array [N, ..], read once from its first row on. `size` is the number of bytes that its file can hold."""

    def __init__(self, stream, dtype, shape, fortran_order=False, size=None):
        self.stream, self.place, self.shape = stream, stream.place, tuple(shape)
        self.stored = np.dtype(dtype)
        self.fortran_order = fortran_order and len(shape) > 1
        if not shape:
            stream.fail("holds one number: give an array [N, ..]")
        elements = 1
        for length in shape:
            elements *= max(length, 1)
            if length < 0 or elements > _MOST_ELEMENTS:
                stream.fail(f"claims the shape {list(shape)}: it is damaged")
        if 0 in shape:
            stream.fail(f"has the shape {list(shape)}: there is nothing in it")
        if size is not None and elements > size // self.stored.itemsize:
            stream.fail(f"claims the shape {list(shape)}, but its file is too short for it: it is truncated or damaged")
        self.row_elements = elements // shape[0]
        if self.row_elements * self.stored.itemsize > _MOST_ROW:
            stream.fail(f"has rows of {self.row_elements} elements: at most 1 GiB a row")

    @property
    def dtype(self):
        """The dtype of the rows: unsigned integers of 16 bits and more are read as the next wider integer."""
        if self.stored.kind == "u" and self.stored.itemsize > 1:
            return np.dtype("i4" if self.stored.itemsize == 2 else "i8")
        return np.dtype("u1") if self.stored.kind == "b" else self.stored.newbyteorder("=")

    @property
    def is_text(self):
        return self.stored.kind in "SU"

    def batches(self, rows):
        """Arrays of `rows` rows, the last one shorter."""
        row_bytes = self.row_elements * self.stored.itemsize
        if self.fortran_order:
            if row_bytes * self.shape[0] > _MOST_IN_MEMORY:
                self.stream.fail(f"is an array of {row_bytes * self.shape[0]} bytes in Fortran order, at most {_MOST_IN_MEMORY} "
                                 "are read: save it by numpy.ascontiguousarray(x)")
            data = self.stream.exactly(row_bytes * self.shape[0])
            whole = np.frombuffer(data, self.stored).reshape(self.shape, order="F")
        for begin in range(0, self.shape[0], rows):
            count = min(rows, self.shape[0] - begin)
            if self.fortran_order:
                part = np.ascontiguousarray(whole[begin:begin + count])
            else:
                part = np.frombuffer(self.stream.exactly(count * row_bytes), self.stored).reshape(count, *self.shape[1:])
            yield part if self.is_text else part.astype(self.dtype, copy=False)
        self.stream.read(1)  # a gzip or zip stream checks its sum at the end

    def read_all(self):
        if self.row_elements * self.dtype.itemsize * self.shape[0] > _MOST_IN_MEMORY:
            self.stream.fail(f"has the shape {list(self.shape)}: labels of at most {_MOST_IN_MEMORY} bytes are read")
        rows = max(1, (1 << 24) // (self.row_elements * self.stored.itemsize))
        return np.concatenate(list(self.batches(rows)))


class _Member(Stream):
    """A member of a zip archive."""

    def _call(self, function, size):
        try:
            return super()._call(function, size)
        except (zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError) as error:
            if isinstance(error, DataError):
                raise
            self.fail(f"is damaged: {error}")


def _archive(path):
    """The zip archive at `path`; None for a file of another kind."""
    Stream.open(path).file.close()
    with open(path, "rb") as file:
        if file.read(2) != b"PK":
            return None
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path} is a damaged zip archive: {error}") from None
    for name in archive.namelist():
        if os.path.isabs(name) or "\\" in name or ".." in name.split("/"):
            raise DataError(f"{path} has a member '{printable(name)}', whose path leads out of the archive: it is not to be "
                            "trusted")
    return archive


def npz_keys(path):
    """The names of the arrays in a .npz archive; none for another file."""
    archive = _archive(path)
    if archive is None:
        return []
    keys = [one_line_name(printable(name[:-4])) for name in archive.namelist() if name.endswith(".npy")]
    if not keys:
        raise DataError(f"{path} is a zip archive without NumPy arrays: unpack it, and give the folder to fakequant dataset "
                        "from-images, or its files to the others")
    return keys


def open_npy(path, key=""):
    """A .npy file, or the array `key` of a .npz archive."""
    archive = _archive(path)
    if archive is None:
        if key:
            raise DataError(f"{path} is one array: '{key}' names one of a .npz archive")
        kind = file_kind(path)
        if kind != "a NumPy array":
            raise DataError(f"{path} is {kind or 'something else'}, not a NumPy array (.npy) or an archive of them (.npz)")
        return _read_header(Stream.open(path), os.path.getsize(path))
    for info in archive.infolist():
        if info.filename in (key, key + ".npy"):
            stream = _Member(None, f"{path}:{one_line_name(printable(info.filename))}")
            stream.file = stream._call(lambda _: archive.open(info), 0)
            return _read_header(stream, info.file_size)
    raise DataError(f"{path} has no array '{key}'{did_you_mean(key, npz_keys(path))}")


def _read_header(stream, size):
    """An ArrayFile by the header of a .npy file (versions 1 to 3). Objects are never unpickled."""
    begin = stream.exactly(8)
    if begin[:6] != b"\x93NUMPY":
        stream.fail("is not a NumPy array (.npy)")
    version = begin[6]
    if not 1 <= version <= 3:
        stream.fail(f"is of version {version} of the format of NumPy arrays: 1, 2 and 3 are read")
    width = 2 if version == 1 else 4
    length = int.from_bytes(stream.exactly(width), "little")
    if length > _MOST_HEADER:
        stream.fail(f"claims a header of {length} bytes: it is damaged")
    text = re.sub(r"(\d)L\b", r"\1", stream.exactly(length).decode("utf-8" if version == 3 else "latin1", "replace"))
    shape = re.search(r"['\"]shape['\"]\s*:\s*\(([\d,\s-]*)\)", text)
    if not shape and re.search(r"['\"]shape['\"]", text):
        stream.fail("has a header with a damaged shape")
    try:
        header = ast.literal_eval(text.strip())
        descr, shape, fortran = header["descr"], header["shape"], header["fortran_order"]
        if any(length >= 1 << 63 for length in shape):
            stream.fail("has a header with a damaged shape")
    except KeyError as error:
        stream.fail(f"has a header without {error}: it is damaged")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        stream.fail("has a damaged header")
    if isinstance(descr, list):
        stream.fail("is an array of records: save one field, x[\"name\"], as an array of its own")
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError):
        stream.fail(f"has a damaged type '{printable(str(descr))}'")
    if dtype.hasobject:
        stream.fail("is an array of Python objects, which would have to be unpickled, and that runs whatever is in it: "
                    f"{_WAY}, or numpy.stack(list(x))")
    if dtype.kind not in "biufSU" or dtype.kind == "f" and dtype.itemsize > 8 or dtype.itemsize == 0:
        stream.fail(f"is an array of '{printable(str(descr))}': booleans, integers, floats of 16, 32 and 64 bits and, as labels, "
                    f"text are read: {_WAY}")
    if not isinstance(shape, tuple) or not all(isinstance(length, int) for length in shape):
        stream.fail("has a header with a damaged shape")
    return ArrayFile(stream, dtype, shape, bool(fortran), size - 8 - width - length)


def open_idx(path):
    """An IDX file, plain or in gzip."""
    stream = Stream.open(path)
    begin = stream.exactly(4)
    if begin[:2] != b"\0\0" or begin[3] == 0:
        stream.fail(f"is {file_kind(path) or 'something else'}, not an IDX file, as MNIST comes")
    if begin[2] not in _IDX_TYPES:
        stream.fail(f"is an IDX file of type 0x{begin[2]:02x}, which there is not")
    shape = struct.unpack(f">{begin[3]}I", stream.exactly(4 * begin[3]))
    packed = not hasattr(stream.file, "raw")
    return ArrayFile(stream, _IDX_TYPES[begin[2]], shape, size=None if packed else os.path.getsize(path) - 4 - 4 * begin[3])


def _layout(array, layout, notes):
    """The layout of an array. Adds a note where more than one is possible."""
    if array.is_text:
        array.stream.fail("is an array of text: write it to a file of lines for fakequant dataset from-text")
    if layout != "auto":
        return layout
    shape = list(array.shape)
    one_byte = array.dtype.itemsize == 1
    if len(shape) == 2:
        if array.dtype.kind == "f" or one_byte:
            return "flat"
        notes.append(f"{array.place}: {shape} read as token ids; --layout flat makes numbers of them")
        return "tokens"
    if len(shape) == 3:
        if one_byte or array.stored.kind == "u" and array.stored.itemsize == 2:
            return "nhw"
        notes.append(f"{array.place}: {shape} read as signals, channels before samples; --layout nhw makes images of one channel "
                     "of them")
        return "ncl"
    if len(shape) != 4:
        array.stream.fail(f"has the shape {shape}: give [N, C, H, W], [N, H, W, C], [N, H, W], [N, C, L] or [N, F]")
    _, height, width, last = shape
    if height <= 4 or width <= 4 or last not in (1, 3, 4):
        return "nchw"
    if last == 1 and height != width:
        array.stream.fail(f"has the shape {shape}: say whether its channels are the last axis, by --layout nhwc, or the one behind "
                          "N, by --layout nchw")
    notes.append(f"{array.place}: {shape} read as images with their channels at the end, stored with them first; --layout nchw "
                 "leaves them")
    return "nhwc"


class ArraySamples(Samples):
    """Samples of one array, channels first."""

    def __init__(self, array, layout, notes):
        self.array, self.layout = array, _layout(array, layout, notes)
        if len(array.shape) != _AXES[self.layout]:
            array.stream.fail(f"has the shape {list(array.shape)}: --layout {self.layout} is of {_AXES[self.layout]} axes")
        self.tokens = self.layout == "tokens"
        if self.tokens and array.dtype.kind == "f":
            array.stream.fail("is an array of floats: tokens are integers")
        self.shape = array.shape[1:]
        if self.layout == "nhw":
            self.shape = (1, *self.shape)
        elif self.layout == "nhwc":
            self.shape = (self.shape[2], *self.shape[:2])
        one_byte = array.dtype.itemsize == 1
        if self.tokens:
            self.dtype = np.dtype("i4") if one_byte else array.dtype
        else:
            self.dtype = array.dtype if one_byte or array.dtype == np.float16 else np.dtype("f4")
        if len(self.shape) == 3 and array.stored.kind == "u" and array.stored.itemsize <= 2:
            self.scale = 1 / (255 if array.stored.itemsize == 1 else 65535)

    def __len__(self):
        return self.array.shape[0]

    def batches(self, size):
        begin = 0
        for x in self.array.batches(size):
            if self.layout == "nhwc":
                x = x.transpose(0, 3, 1, 2)
            with np.errstate(over="ignore"):
                x = np.ascontiguousarray(x.reshape(len(x), *self.shape), self.dtype)
            yield np.arange(begin, begin + len(x)), x
            begin += len(x)

    def place(self, row):
        return f"{self.array.place}: row {row}"


class JoinedSamples(Samples):
    """Flat rows of the elements of several arrays side by side, for networks with several inputs."""

    def __init__(self, arrays):
        self.arrays = arrays
        for array in arrays:
            if array.is_text:
                array.stream.fail("is an array of text: numbers are put side by side")
            if array.shape[0] != arrays[0].shape[0]:
                array.stream.fail(f"has {array.shape[0]} samples, {arrays[0].place} has {arrays[0].shape[0]}: they must be of the "
                                  "same")
        whole = all(array.dtype.kind != "f" for array in arrays)
        one_byte = all(array.dtype == np.uint8 for array in arrays)
        self.shape = (sum(array.row_elements for array in arrays),)
        self.tokens = whole and not one_byte
        self.dtype = np.dtype("u1" if one_byte else "i8" if whole else "f4")

    def __len__(self):
        return self.arrays[0].shape[0]

    def batches(self, size):
        begin = 0
        for parts in zip(*(array.batches(size) for array in self.arrays)):
            with np.errstate(over="ignore"):
                x = np.concatenate([part.reshape(len(part), -1).astype(self.dtype) for part in parts], 1)
            yield np.arange(begin, begin + len(x)), x
            begin += len(x)

    def place(self, row):
        return f"{self.arrays[0].place}: row {row}"


def _samples(name, flags, notes):
    """The samples of (file, key); a key "ids,mask" names several arrays."""
    path, key = name
    keys = [word for word in key.split(",")] if key else []
    if len(keys) < 2:
        return ArraySamples(open_npy(path, key), flags.choice("layout", LAYOUTS), notes)
    if flags.given("layout"):
        raise DataError(f"--layout is of one array: several, --x-key {key}, are rows of all their elements")
    arrays, places, begin = [open_npy(path, one) for one in keys], [], 0
    for one, array in zip(keys, arrays):
        places.append(f"{one} {list(array.shape[1:])} {begin}..{begin + array.row_elements - 1}")
        begin += array.row_elements
    notes.append(f"{path}: rows of {begin} elements, {', '.join(places)}")
    return JoinedSamples(arrays)


def _archive_parts(flags, path, keys):
    """The (x, y) of each part of an archive, by the names that archives use."""
    def among(known):
        return next((key for key in known if key in keys), "")
    x = flags.text("x-key") or (keys[0] if len(keys) == 1 else
                                among(("x_train", "train_images", "x", "X", "images", "data")))
    if not x:
        raise DataError(f"{path} has the arrays {', '.join(keys)}: say which holds the samples, by --x-key")
    known = {"x_train": ("y_train",), "train_images": ("train_labels",)}.get(x, ("y", "Y", "labels", "target", "targets"))
    y = flags.text("y-key") or among(known)
    parts = [((path, x), (path, y) if y else None)]
    test = {"x_train": ("x_test", "y_test"), "train_images": ("test_images", "test_labels")}.get(x)
    if not flags.given("x-key") and test and test[0] in keys:
        parts.append(((path, test[0]), (path, test[1]) if test[1] in keys else None))
    return parts


def npy_parts(flags, names, notes):
    """The parts of `from-npy`."""
    task = flags.choice("task", TASKS)
    flags.choice("layout", LAYOUTS)
    path = flags.required("file")
    keys = npz_keys(path)
    chosen = _archive_parts(flags, path, keys) if keys else [((path, ""), None)]
    if flags.given("labels"):
        chosen[0] = (chosen[0][0], (flags.text("labels"), ""))
    if flags.given("test-file"):
        y = (flags.text("test-labels"), "") if flags.given("test-labels") else None
        chosen = [chosen[0], ((flags.text("test-file"), flags.text("x-key")), y)]
    elif flags.given("test-labels"):
        raise DataError("--test-labels are those of --test-file, which is missing")
    parts = []
    for x, y in chosen:
        part = Part(_samples(x, flags, notes))
        if y:
            part.labels = labels_from_array(open_npy(*y), task, len(part.samples), names)
        if parts:
            part.groups = np.full(len(part.samples), TEST, np.uint8)
        names = names or part.labels.names
        parts.append(part)
    return parts


def _idx_in(folder, name):
    """The file of that name in a folder of MNIST, plain or in gzip; empty where there is none."""
    head, _, tail = name.rpartition("-")
    for known in (name, f"{head}.{tail}"):
        for ending in ("", ".gz"):
            path = os.path.join(folder, known + ending)
            if os.path.isfile(path):
                return path
    return ""


def idx_parts(flags, names, notes):
    """The parts of `from-idx`."""
    path = flags.required("file")
    if os.path.isdir(path):
        files = [(_idx_in(path, f"{part}-images-idx3-ubyte"), _idx_in(path, f"{part}-labels-idx1-ubyte"))
                 for part in ("train", "t10k")]
        if not files[0][0]:
            raise DataError(f"{path} has no train-images-idx3-ubyte, nor that with .gz: give the file of images, and --labels")
        files = files if files[1][0] else files[:1]
    else:
        files = [(path, flags.text("labels"))]
        if flags.given("test-file"):
            files.append((flags.text("test-file"), flags.text("test-labels")))
    parts = []
    for x, y in files:
        part = Part(ArraySamples(open_idx(x), "auto", notes))
        if y:
            part.labels = labels_from_array(open_idx(y), "classes", len(part.samples), names)
        if parts:
            part.groups = np.full(len(part.samples), TEST, np.uint8)
        parts.append(part)
    return parts
