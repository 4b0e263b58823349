"""Errors, messages and byte streams that all sources share."""
import difflib
import gzip
import importlib.util
import os
import re
import sys
import zipfile
import zlib

MOST_LINE = 16 << 20  # bytes of a line, a record or a text file

unfinished = set()  # temporary files to remove when a signal ends the process

_HIDDEN = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\udc80-\udcff]")
_BEGINNINGS = {b"\x93NUMPY": "a NumPy array", b"\x89PNG": "a PNG image", b"\xff\xd8\xff": "a JPEG image", b"PAR1": "a Parquet file",
               b"\x89HDF\r\n\x1a\n": "an HDF5 file", b"\x1f\x8b": "a gzip archive", b"PK\x03\x04": "a zip archive",
               b"GGUF": "a GGUF file"}


class DataError(ValueError):
    """A bad argument or a bad input file. The message is one line."""


class SystemFailure(RuntimeError):
    """A failure of the system, for example a full disk."""


class MissingPackage(ImportError):
    """A Python package that the conversion needs is not installed."""


def check_packages(names):
    """Raises MissingPackage, with the command that installs them, unless the modules `names` are installed."""
    missing = [{"PIL": "Pillow"}.get(name, name) for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackage(f"{sys.executable} has no {', '.join(missing)}: run {sys.executable} -m pip install {' '.join(missing)}, or "
                             "set --python or FAKEQUANT_PYTHON to another Python")


def printable(text):
    """Returns one line that is safe to print. Control characters and bytes that are not UTF-8 are escaped, as "\\x1b"."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")

    def escape(match):
        code = ord(match[0])
        code = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return _HIDDEN.sub(escape, text)


def did_you_mean(name, names):
    """Returns ": did you mean 'x'?" if a name is similar, else the allowed names; empty without names."""
    names = list(names)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f": did you mean '{near[0]}'?"
    return f": use one of {', '.join(names[:12])}{', ..' if len(names) > 12 else ''}" if names else ""


def file_kind(path):
    """Returns the kind of a file, "a PNG image", by its first bytes; "a file of another kind" if they are unknown."""
    with open(path, "rb") as file:
        head = file.read(512)
    if os.path.splitext(path)[1] == ".pkl":
        return "a Python pickle"
    found = next((kind for beginning, kind in _BEGINNINGS.items() if head.startswith(beginning)), None)
    is_text = head and not re.search(rb"[^\t\n\r -~\x80-\xff]", head)
    return found or ("a text file" if is_text else "a file of another kind")


class Stream:
    """Bytes of a file or of a member of an archive. Errors name `place`."""

    def __init__(self, file, place):
        self.file, self.place = file, place

    @classmethod
    def open(cls, path):
        """Opens a file, plain or gzip."""
        try:
            file = open(path, "rb")  # closed with the stream
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        return cls(gzip.GzipFile(fileobj=file) if packed else file, path)

    def fail(self, problem):
        raise DataError(f"{self.place} {problem}")

    def call(self, function, *arguments):
        """Calls a function that reads the file. Turns the errors of gzip and zipfile into DataError."""
        try:
            return function(*arguments)
        except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None)
            self.fail(f"cannot be read: {reason}" if reason else f"is truncated or damaged: {error}")

    def read(self, size):
        """Returns at most `size` bytes; fewer only at the end."""
        return self.call(self.file.read, size)

    def read_exactly(self, size):
        found = self.read(size)
        if len(found) < size:
            self.fail("ends too early: it is truncated or damaged")
        return found

    def read_rest(self, limit):
        found = bytearray()
        while part := self.read(1 << 20):  # read(n) allocates n bytes at once
            found += part
            if len(found) > limit:
                self.fail(f"has more than {limit} bytes")
        return bytes(found)

    def lines(self):
        """Yields the lines with their ends."""
        number = 0
        while line := self.call(self.file.readline, MOST_LINE):
            number += 1
            if len(line) == MOST_LINE and not line.endswith(b"\n"):
                self.fail(f"has more than {MOST_LINE} bytes in line {number}")
            yield line
