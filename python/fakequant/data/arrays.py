"""Data sets of NumPy arrays (.npy, .npz) and of IDX files, the format of MNIST. Arrays are read a few rows at a time."""
import io
import os
import struct
import warnings
import zipfile

import numpy as np

from .common import DataError, Stream, did_you_mean, file_kind
from .labels import labels_from_array
from .splits import TEST
from .writer import Part, Samples

_AXES = {"nchw": 4, "nhwc": 4, "nhw": 3, "ncl": 3, "flat": 2, "tokens": 2}
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_IN_MEMORY = 1 << 31
_MOST_ROW = 1 << 30  # bytes
_MOST_HEADER = 1 << 20


class ArrayFile:
    """An array [N, ..], read once from the first row. `size` is the largest number of bytes of its file."""

    def __init__(self, stream, dtype, shape, fortran_order=False, size=None):
        self.stream, self.place, self.shape = stream, stream.place, tuple(shape)
        self.stored = np.dtype(dtype)
        self.fortran_order = fortran_order and len(shape) > 1
        if not shape:
            stream.fail("holds one number: use an array [N, ..]")
        if min(shape) <= 0:
            stream.fail(f"has the shape {list(shape)}: it is empty or damaged")
        self.row_elements = int(np.prod(shape[1:], dtype=object))
        self.row_bytes = self.row_elements * self.stored.itemsize
        if size is not None and self.row_bytes * shape[0] > size:
            stream.fail(f"claims the shape {list(shape)}, but its file is too short for it: it is truncated or damaged")
        if self.row_bytes > _MOST_ROW:
            stream.fail(f"has rows of {self.row_elements} elements: at most 1 GiB per row")

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
        """Yields arrays of `rows` rows, the last one shorter."""
        whole = None
        if self.fortran_order:
            if self.row_bytes * self.shape[0] > _MOST_IN_MEMORY:
                self.stream.fail(f"is an array of more than {_MOST_IN_MEMORY} bytes in Fortran order: save numpy.ascontiguousarray(x)")
            data = self.stream.read_exactly(self.row_bytes * self.shape[0])
            whole = np.frombuffer(data, self.stored).reshape(self.shape, order="F")
        for begin in range(0, self.shape[0], rows):
            count = min(rows, self.shape[0] - begin)
            if whole is not None:
                part = np.ascontiguousarray(whole[begin:begin + count])
            else:
                part = np.frombuffer(self.stream.read_exactly(count * self.row_bytes), self.stored).reshape(count, *self.shape[1:])
            yield part if self.is_text else part.astype(self.dtype, copy=False)
        self.stream.read(1)  # a gzip or zip stream checks its sum at the end

    def read_all(self):
        if self.row_bytes * self.shape[0] > _MOST_IN_MEMORY:
            self.stream.fail(f"has the shape {list(self.shape)}: labels may have at most {_MOST_IN_MEMORY} bytes")
        return np.concatenate(list(self.batches(max(1, (1 << 24) // max(self.row_bytes, 1)))))


def _archive(path):
    """Returns the zip archive at `path`; None for a file of another kind."""
    stream = Stream.open(path)
    if stream.read(2) != b"PK":
        return None
    archive = stream.call(zipfile.ZipFile, path)
    for name in archive.namelist():
        if os.path.isabs(name) or "\\" in name or ".." in name.split("/"):
            raise DataError(f"{path} has a member '{name}', whose path leads out of the archive: do not trust the file")
    return archive


def npz_keys(path):
    """Returns the names of the arrays in a .npz archive; none for another file."""
    archive = _archive(path)
    keys = [name[:-4] for name in archive.namelist() if name.endswith(".npy")] if archive else []
    if archive and not keys:
        raise DataError(f"{path} is a zip archive without NumPy arrays: unpack it, and use fakequant dataset from-images for the folder, "
                        "or another from-.. for its files")
    return keys


def open_npy(path, key=""):
    """Opens a .npy file, or the array `key` of a .npz archive."""
    archive = _archive(path)
    if archive is None:
        if key:
            raise DataError(f"{path} is one array (.npy), and '{key}' selects an array of a .npz archive")
        kind = file_kind(path)
        if kind != "a NumPy array":
            raise DataError(f"{path} is {kind}, not a NumPy array (.npy) or an archive of them (.npz)")
        return _read_header(Stream.open(path), os.path.getsize(path))
    for info in archive.infolist():
        if info.filename in (key, key + ".npy"):
            stream = Stream(None, f"{path}:{info.filename}")
            stream.file = stream.call(archive.open, info)
            return _read_header(stream, info.file_size)
    raise DataError(f"{path} has no array '{key}'{did_you_mean(key, npz_keys(path))}")


def _read_header(stream, size):
    """Returns an ArrayFile by the header of a .npy file. Python objects are never unpickled."""
    head = io.BytesIO(stream.read(_MOST_HEADER))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            major, _ = np.lib.format.read_magic(head)
            if not 1 <= major <= 3:
                raise ValueError(f"version {major} of the format is unknown")
            read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            shape, fortran_order, dtype = read(head)
    except Exception as error:  # numpy raises many classes for damaged headers
        stream.fail(f"has a damaged header: {' '.join(str(error).split())[:200]}")
    if dtype.names:
        stream.fail("is an array of records: save one field, x[\"name\"], as an array of its own")
    if dtype.hasobject:
        stream.fail("is an array of Python objects, which can run code when they are unpickled: save x.astype(numpy.float32)")
    if dtype.kind not in "biufSU" or dtype.kind == "f" and dtype.itemsize > 8 or dtype.itemsize == 0:
        stream.fail(f"is an array of '{dtype.str}': booleans, integers, floats of 16, 32 and 64 bits and, as labels, text are read: "
                    "save x.astype(numpy.float32)")
    stream.call(stream.file.seek, head.tell())
    return ArrayFile(stream, dtype, shape, fortran_order, size - head.tell())


def open_idx(path):
    """Opens an IDX file, plain or gzip."""
    stream = Stream.open(path)
    begin = stream.read_exactly(4)
    if begin[:2] != b"\0\0" or begin[3] == 0:
        stream.fail(f"is {file_kind(path)}, not an IDX file, the format of MNIST")
    if begin[2] not in _IDX_TYPES:
        stream.fail(f"is an IDX file of the unknown type 0x{begin[2]:02x}")
    shape = struct.unpack(f">{begin[3]}I", stream.read_exactly(4 * begin[3]))
    size = os.path.getsize(path) - 4 - 4 * begin[3] if isinstance(stream.file, io.BufferedReader) else None
    return ArrayFile(stream, _IDX_TYPES[begin[2]], shape, size=size)


def _layout(array, notes):
    """Returns the layout of an array by its type and shape. Adds a note if more than one is possible."""
    shape = list(array.shape)
    one_byte = array.dtype.itemsize == 1
    if len(shape) == 2:
        if array.dtype.kind == "f" or one_byte:
            return "flat"
        notes.append(f"{array.place}: {shape} read as token ids; --layout flat reads numbers")
        return "tokens"
    if len(shape) == 3:
        if one_byte or array.stored.kind == "u" and array.stored.itemsize == 2:
            return "nhw"
        notes.append(f"{array.place}: {shape} read as signals, channels first; --layout nhw reads images of one channel")
        return "ncl"
    if len(shape) != 4:
        array.stream.fail(f"has the shape {shape}: use [N, C, H, W], [N, H, W, C], [N, H, W], [N, C, L] or [N, F]")
    _, height, width, last = shape
    if height <= 4 or width <= 4 or last not in (1, 3, 4):
        return "nchw"
    if last == 1 and height != width:
        array.stream.fail(f"has the shape {shape}: use --layout nhwc if the channels are the last axis, or --layout nchw if they are "
                          "the second")
    notes.append(f"{array.place}: {shape} read as images with channels at the end, and stored with channels first; --layout nchw keeps "
                 "the order")
    return "nhwc"


class ArraySamples(Samples):
    """Samples of one array, channels first."""

    def __init__(self, array, layout, notes):
        if array.is_text:
            array.stream.fail("is an array of text: write it to a file of lines for fakequant dataset from-text")
        self.array, self.path, self.count = array, array.place, array.shape[0]
        self.layout = _layout(array, notes) if layout == "auto" else layout
        if len(array.shape) != _AXES[self.layout]:
            array.stream.fail(f"has the shape {list(array.shape)}: --layout {self.layout} requires {_AXES[self.layout]} axes")
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

    def arrays(self, size):
        for x in self.array.batches(size):
            if self.layout == "nhwc":
                x = x.transpose(0, 3, 1, 2)
            with np.errstate(over="ignore"):
                yield np.ascontiguousarray(x.reshape(len(x), *self.shape), self.dtype)


class JoinedSamples(Samples):
    """Rows with the elements of several arrays, for networks with several inputs."""

    def __init__(self, sources):
        first = sources[0]
        self.sources, self.path, self.count = sources, first.place, first.shape[0]
        for array in sources:
            if array.is_text:
                array.stream.fail("is an array of text: only numbers can be joined")
            if array.shape[0] != self.count:
                array.stream.fail(f"has {array.shape[0]} samplesand {self.path} {self.count}: use the same number")
        whole = all(array.dtype.kind != "f" for array in sources)
        one_byte = all(array.dtype == np.uint8 for array in sources)
        self.shape = (sum(array.row_elements for array in sources),)
        self.tokens = whole and not one_byte
        self.dtype = np.dtype("u1" if one_byte else "i8" if whole else "f4")

    def arrays(self, size):
        for parts in zip(*(array.batches(size) for array in self.sources)):
            with np.errstate(over="ignore"):
                yield np.concatenate([part.reshape(len(part), -1).astype(self.dtype) for part in parts], 1)


def _samples(name, flags, notes):
    """Returns the samples of (file, key); a key "ids,mask" selects several arrays."""
    path, key = name
    keys = key.split(",")
    if len(keys) < 2:
        return ArraySamples(open_npy(path, key), flags["layout"], notes)
    if flags.given("layout"):
        raise DataError(f"--layout is for one array: --x-key {key} joins the elements of several arrays to rows")
    arrays, places, begin = [open_npy(path, one) for one in keys], [], 0
    for one, array in zip(keys, arrays):
        places.append(f"{one} {list(array.shape[1:])} {begin}..{begin + array.row_elements - 1}")
        begin += array.row_elements
    notes.append(f"{path}: rows of {begin} elements, {', '.join(places)}")
    return JoinedSamples(arrays)


def _archive_parts(flags, path, keys):
    """Returns the (x, y) of each part of an archive, by the names that archives use."""
    def among(known):
        return next((key for key in known if key in keys), "")
    x = flags["x-key"] or (keys[0] if len(keys) == 1 else among(("x_train", "train_images", "x", "X", "images", "data")))
    if not x:
        raise DataError(f"{path} has the arrays {', '.join(keys)}: use the array of samples by --x-key")
    known = {"x_train": ("y_train",), "train_images": ("train_labels",)}.get(x, ("y", "Y", "labels", "target", "targets"))
    y = flags["y-key"] or among(known)
    parts = [((path, x), (path, y) if y else None)]
    test = {"x_train": ("x_test", "y_test"), "train_images": ("test_images", "test_labels")}.get(x)
    if not flags.given("x-key") and test and test[0] in keys:
        parts.append(((path, test[0]), (path, test[1]) if test[1] in keys else None))
    return parts


def _add_parts(data, files, names, open_samples, open_labels, task):
    """Adds a part for each (x, y) of `files`; the second is the group test."""
    for x, y in files:
        part = Part(open_samples(x))
        if y:
            part.labels = labels_from_array(open_labels(y), task, len(part.samples), names)
        if data.parts:
            part.assign(TEST)
        names = names or part.labels.names
        data.parts.append(part)


def read_npy(flags, names, data):
    """Adds the parts of `from-npy`."""
    path = flags.required("file")
    keys = npz_keys(path)
    files = _archive_parts(flags, path, keys) if keys else [((path, ""), None)]
    if flags["labels"]:
        files[0] = (files[0][0], (flags["labels"], ""))
    if flags["test-file"]:
        y = (flags["test-labels"], "") if flags["test-labels"] else None
        files = [files[0], ((flags["test-file"], flags["x-key"] or ""), y)]
    elif flags["test-labels"]:
        raise DataError("--test-labels requires --test-file: use both")
    _add_parts(data, files, names, lambda x: _samples(x, flags, data.notes), lambda y: open_npy(*y), flags["task"])


def _mnist(folder, group):
    """Returns the files of images and labels of a group in a folder of MNIST; None for a missing file."""
    found = []
    for name in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        known = [f"{group}-{form}{ending}" for form in (name, name.replace("-ubyte", ".ubyte")) for ending in ("", ".gz")]
        paths = [os.path.join(folder, one) for one in known]
        found.append(next(filter(os.path.isfile, paths), None))
    return found


def read_idx(flags, names, data):
    """Adds the parts of `from-idx`."""
    path = flags.required("file")
    files = [(path, flags["labels"]), (flags["test-file"], flags["test-labels"])]
    if os.path.isdir(path):
        files = [_mnist(path, "train"), _mnist(path, "t10k")]
        if not files[0][0]:
            raise DataError(f"{path} has no train-images-idx3-ubyte and no train-images-idx3-ubyte.gz: use the file of images, "
                            "and --labels")
    files = [one for one in files if one[0]]
    _add_parts(data, files, names, lambda x: ArraySamples(open_idx(x), "auto", data.notes), open_idx, "classes")
