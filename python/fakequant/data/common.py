"""Errors, messages and byte streams that the parts of `fakequant.data` share."""
import gzip
import importlib.util
import os
import re
import sys
import zlib

MOST_LINE = 16 << 20  # bytes of a line, a record or a text file

_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\udc80-\udcff]")
_BEGINNINGS = (
    (b"\x89FQS\r\n\x1a\n", "a file of fakequant"), (b"\x93NUMPY", "a NumPy array"), (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"), (b"GIF8", "a GIF image"), (b"BM", "a BMP image"), (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"), (b"PAR1", "a Parquet file"), (b"\0\0\x08\x03", "an IDX file of images, as MNIST comes"),
    (b"\0\0\x08\x01", "an IDX file of labels, as MNIST comes"), (b"\x1f\x8b", "a gzip archive"), (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"), (b"\x89HDF\r\n\x1a\n", "an HDF5 file"), (b"GGUF", "a GGUF file"))
_ENDINGS = {".onnx": "an ONNX model", ".npz": "an archive of NumPy arrays", ".pt": "a PyTorch file", ".pth": "a PyTorch file",
            ".pkl": "a Python pickle", ".safetensors": "a safetensors file"}


class DataError(ValueError):
    """A bad argument or a bad input file. The message is one line."""


class SystemFailure(RuntimeError):
    """A failure of the system, such as a full disk."""


class MissingPackage(ImportError):
    """A Python package that the conversion needs is not installed."""


def check_packages(names):
    """Raises MissingPackage, with the way to install them, unless the modules `names` are installed."""
    missing = [{"PIL": "Pillow"}.get(name, name) for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackage(f"{sys.executable} has no {', '.join(missing)}: run {sys.executable} -m pip install {' '.join(missing)}, or "
                             "name another Python by --python or FAKEQUANT_PYTHON")


def printable(text):
    """Text that a terminal may show. Control characters and bytes that are not UTF-8 are escaped, as "\\x1b"."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")

    def escape(match):
        code = ord(match[0])
        code = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return _CONTROL.sub(escape, text)


def one_line_name(name):
    """A name with its ASCII control characters escaped, for one line of a message or table."""
    return re.sub("[\0-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", name)


def edit_distance(a, b):
    """Edits from `a` to `b`, case ignored. An exchange of two neighbours is one edit."""
    a, b = a.lower(), b.lower()
    above, row = [], list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, above = above, row
        row = [i]
        for j, right in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right)))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                row[j] = min(row[j], before[j - 2] + 1)
    return row[-1]


def did_you_mean(name, names):
    """": did you mean 'x'?" where a name is near, else the nearest names; empty without names."""
    if not names:
        return ""
    best = sorted(names, key=lambda known: edit_distance(name, known))[:12]
    if edit_distance(name, best[0]) <= max(2, len(name) // 3):
        return f": did you mean '{best[0]}'?"
    return f": use one of {', '.join(best)}{', ..' if len(names) > 12 else ''}"


def folder_kind(path):
    """The kind of most files below a folder: "a directory of 3 .png files"."""
    counts = {}
    for _, _, names in os.walk(path):
        for name in names:
            ending = os.path.splitext(name)[1]
            counts[ending] = counts.get(ending, 0) + 1
        if sum(counts.values()) > 100_000:
            break
    if not counts:
        return "a directory"
    ending = min(counts, key=lambda known: (-counts[known], known))
    return f"a directory of {counts[ending]}{ending and ' ' + ending} {'file' if counts[ending] == 1 else 'files'}"


def file_kind(path):
    """The kind of a file by its first bytes, "a PNG image"; empty for an unknown kind."""
    try:
        if os.path.isdir(path):
            return folder_kind(path)
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError:
        return ""
    for beginning, kind in _BEGINNINGS:
        if head.startswith(beginning):
            return kind
    if os.path.splitext(path)[1] in _ENDINGS:
        return _ENDINGS[os.path.splitext(path)[1]]
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "a WebP image"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive"
    if head[257:262] == b"ustar":
        return "a tar archive"
    text = head and all(byte in b"\n\r\t" or byte >= 0x20 and byte != 0x7F for byte in head)
    return "a text file" if text else ""


class Stream:
    """Bytes of a file, expanded where it begins as gzip does. Errors name `place`."""

    def __init__(self, file, place):
        self.file, self.place = file, place

    @classmethod
    def open(cls, path):
        try:
            file = open(path, "rb")  # noqa: SIM115: closed with the stream
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        return cls(gzip.GzipFile(fileobj=file) if packed else file, path)

    def fail(self, problem):
        raise DataError(f"{self.place} {problem}")

    def _call(self, function, size):
        try:
            return function(size)
        except EOFError:
            self.fail("is truncated: it ends too early")
        except (gzip.BadGzipFile, zlib.error) as error:
            self.fail(f"is damaged: {error}")
        except OSError as error:
            self.fail(f"cannot be read: {error.strerror or error}")

    def read(self, size):
        """At most `size` bytes; fewer only at the end."""
        return self._call(self.file.read, size)

    def exactly(self, size):
        found = self.read(size)
        if len(found) < size:
            self.fail("ends too early: it is truncated or damaged")
        return found

    def rest(self, limit):
        found = self.read(limit + 1)
        if len(found) > limit:
            self.fail(f"has more than {limit} bytes")
        return found

    def lines(self):
        """The lines with their ends."""
        number = 0
        while line := self._call(self.file.readline, MOST_LINE):
            number += 1
            if len(line) == MOST_LINE and not line.endswith(b"\n"):
                self.fail(f"has more than {MOST_LINE} bytes in line {number}: is a quote open?")
            yield line
