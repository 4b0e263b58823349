"""Records of a CSV file (RFC 4180), also with other delimiters, in gzip, and with a byte order mark."""
import csv
from itertools import chain

from .common import MOST_LINE, DataError, Stream, did_you_mean, printable

_MARKS = ",;\t|"
_MOST_FIELDS = 1 << 16


def parse_delimiter(flags):
    """Returns the value of --delimiter: a character, or "" for auto."""
    text = {"auto": "", "tab": "\t", "\\t": "\t"}.get(flags["delimiter"], flags["delimiter"])
    if len(text.encode()) > 1 or text in ("\"", "\n", "\r") or not text and flags["delimiter"] != "auto":
        raise DataError(f"--delimiter is '{text}': use one character, tab or auto")
    return text


def _lines(path):
    """Yields the lines of a file as text, with their ends."""
    stream = Stream.open(path)
    for number, line in enumerate(stream.lines(), 1):
        if number == 1:
            if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                stream.fail("is UTF-16: convert it to UTF-8 with iconv -f UTF-16 -t UTF-8")
            line = line.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in line:
            stream.fail(f"is not text: line {number} has a zero byte")
        try:
            yield line.decode()
        except UnicodeDecodeError:
            stream.fail(f"line {number} is not UTF-8 at '{printable(line[:80])}': convert the file to UTF-8, for example with iconv "
                        "-f LATIN1 -t UTF-8")


def read_records(path, delimiter=""):
    """Yields (line number, fields) of each record. Skips empty lines."""
    lines = _lines(path)
    first = next(lines, "")
    if not delimiter:
        outside = "".join(first.rstrip("\r\n").split('"')[::2])
        delimiter = max(_MARKS, key=outside.count)
    lines, number = chain([first], lines), 1

    def fail(problem):
        raise DataError(f"{path}: line {number} {problem}")
    csv.field_size_limit(MOST_LINE)
    for line in lines:
        if '"' not in line:
            records, count = [[field.strip(" \t") for field in text.split(delimiter)] for text in line.strip("\r\n").split("\r") if text], 1
        else:
            reader = csv.reader(chain([line], lines), delimiter=delimiter, skipinitialspace=True, strict=True)
            try:
                records, count = [next(reader)], reader.line_num
            except csv.Error as error:
                fail("opens a quote that is not closed" if "end of data" in str(error) else
                     f"is not a CSV record ({str(error).split(' - ')[0]}): double the quotes inside a field")
        for fields in records:
            if len(fields) > _MOST_FIELDS:
                fail(f"has more than {_MOST_FIELDS} fields")
            yield number, fields
        number += count


def check_width(path, line, fields, header):
    if len(fields) != len(header):
        raise DataError(f"{path}: line {line} has {len(fields)} fields, the first has {len(header)}: quote fields with a delimiter in "
                        "them")


def find_column(header, name, path):
    """Returns the position of the column with that name, or with that number from 0."""
    if header.count(name) > 1:
        raise DataError(f"{path} has more than one column '{name}': use its position, from 0")
    if name in header:
        return header.index(name)
    if name.isascii() and name.isdigit() and int(name) < len(header):
        return int(name)
    raise DataError(f"{path} has no column '{name}'{did_you_mean(name, header)}")
