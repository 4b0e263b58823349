"""Records of a CSV file (RFC 4180), also with other delimiters, in gzip, and with a byte order mark."""
import re

from .common import MOST_LINE, DataError, Stream, did_you_mean, printable

_MARKS = ",;\t|"
_MOST_FIELDS = 1 << 16


def delimiter_of(flags):
    """The value of --delimiter: a character; empty for auto."""
    text = flags.text("delimiter")
    if text == "auto":
        return ""
    if text in ("tab", "\\t"):
        return "\t"
    if len(text.encode()) != 1 or text in "\"\n\r":
        raise DataError(f"--delimiter is '{text}': give one character, tab or auto")
    return text


class CsvReader:
    """Yields (line number, fields) of each record, empty lines left out.

    A record without quotes is split at once; only records with quotes are read character by character.
    """

    def __init__(self, path, delimiter=""):
        self.path, self.delimiter = path, delimiter
        self.line = 1

    def fail(self, problem, line=None):
        raise DataError(f"{self.path}: line {self.line if line is None else line} {problem}")

    def _lines(self):
        stream = Stream.open(self.path)
        for number, line in enumerate(stream.lines(), 1):
            if number == 1:
                if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    stream.fail("is UTF-16: write it as UTF-8, by iconv -f UTF-16 -t UTF-8")
                line = line.removeprefix(b"\xef\xbb\xbf")
            if b"\0" in line:
                stream.fail(f"is not text: it has bytes of 0 in line {number}")
            try:
                text = line.decode()
            except UnicodeDecodeError:
                self.fail(f"is not UTF-8 at '{printable(line[:80])}': write the file as UTF-8, by iconv -f LATIN1 -t UTF-8", number)
            if number == 1 and not self.delimiter:
                outside = "".join(text.rstrip("\r\n").split('"')[::2])
                self.delimiter = max(_MARKS, key=outside.count)
            yield number, text

    def __iter__(self):
        lines = self._lines()
        for number, text in lines:
            self.line = number
            if '"' not in text:
                for part in text.rstrip("\n").split("\r"):
                    if part:
                        yield number, self._checked([field.strip(" \t") for field in part.split(self.delimiter)])
                continue
            at = 0
            while at < len(text):
                if text[at] in "\r\n":
                    at += 1
                    continue
                fields, text, at = self._quoted_record(text, at, lines)
                yield self.line, self._checked(fields)
                self.line += text.count("\n", 0, at)

    def _checked(self, fields):
        if len(fields) > _MOST_FIELDS:
            self.fail(f"has more than {_MOST_FIELDS} fields")
        return fields

    def _quoted_record(self, text, at, lines):
        """The fields of the record at `at`, the text with the lines that the record needs, and the end of the record."""
        fields = []
        text, begin = text[at:], self.line
        at = 0
        while True:
            while text[at:at + 1] == " ":
                at += 1
            if text[at:at + 1] == '"':
                field, text, at = self._quoted_field(text, at + 1, lines, begin)
            else:
                end = re.compile(f"[^{re.escape(self.delimiter)}\r\n]*").match(text, at).end()
                field, at = text[at:end].strip(" \t"), end
            fields.append(field)
            if text[at:at + 1] != self.delimiter:
                return fields, text, at
            at += 1

    def _quoted_field(self, text, at, lines, begin):
        parts = []
        while True:
            end = text.find('"', at)
            while end < 0:
                more = next(lines, None)
                if more is None:
                    self.fail("opens a quote that nothing closes", begin)
                if len(text) + len(more[1]) > MOST_LINE:
                    self.fail(f"has more than {MOST_LINE} bytes: is a quote open?", begin)
                searched = len(text)
                text += more[1]
                end = text.find('"', max(at, searched))
            parts.append(text[at:end])
            at = end + 1
            if text[at:at + 1] != '"':
                break
            parts.append('"')
            at += 1
        while text[at:at + 1] == " " or text[at:at + 1] == "\t" != self.delimiter:
            at += 1
        if at < len(text) and text[at] != self.delimiter and text[at] not in "\r\n":
            self.fail(f"has text behind the quoted '{printable(''.join(parts))}': quotes in a field are doubled", begin)
        return "".join(parts), text, at


def column_of(header, name, path):
    """The position of the column with that name, or with that number from 0."""
    if header.count(name) > 1:
        raise DataError(f"{path} has more than one column '{name}': name it by its place, from 0")
    if name in header:
        return header.index(name)
    if name.isascii() and name.isdigit() and int(name) < len(header):
        return int(name)
    raise DataError(f"{path} has no column '{printable(name)}'{did_you_mean(name, header)}")
