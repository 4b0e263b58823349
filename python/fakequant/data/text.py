"""Data sets of texts: the first tokens of each text, or windows of one long text."""
import math
import os
from itertools import islice

import numpy as np

from .common import MOST_LINE, DataError, Stream
from .csv_records import check_width, find_column, parse_delimiter, read_records
from .folders import list_folder
from .labels import LabelCollector, all_names, is_missing
from .splits import GROUPS, TEST, TRAIN, VALIDATION, check_shares, draw_groups
from .tokens import BYTES, character_tokens, given_tokenizer, most_frequent
from .writer import Labels, Part, Samples

_MOST_WINDOWED = 1 << 28  # bytes of a text that is cut into windows
_FILE_ENDINGS = (".txt", ".text", ".md")


def _lines(path):
    """Yields (place, line without its end) of a file. Empty lines are texts too."""
    for number, line in enumerate(Stream.open(path).lines(), 1):
        yield f"{path}: line {number}", line.removesuffix(b"\n").removesuffix(b"\r")


def _files(paths):
    """Yields (place, contents) of files."""
    for path in paths:
        yield path, Stream.open(path).read_rest(MOST_LINE)


def _fields(path, delimiter, column):
    """Yields (place, field) of a column of a CSV file."""
    records = read_records(path, delimiter)
    _, header = next(records, (0, None))
    if header is None:
        raise DataError(f"{path} has no records")
    at = find_column(header, column, path)
    for line, fields in records:
        check_width(path, line, fields, header)
        yield f"{path}: line {line}", fields[at].encode()


class TextSamples(Samples):
    """The first `length` tokens of each text, i32 [length]. `texts()` yields (place, text)."""

    tokens = True

    def __init__(self, texts, length, empty):
        self.texts, self.tokenizer = texts, BYTES
        self.count = sum(1 for _ in texts())
        if not self.count:
            raise DataError(empty)
        self.shape, self.dtype = (length,), np.dtype("i4")

    def place(self, row):
        return next(islice(self.texts(), row, None))[0]

    def arrays(self, size):
        length, filling = self.shape[0], self.tokenizer.filling
        rows = []
        for place, text in self.texts():
            ids = self.tokenizer.ids(text, place)[:length]
            if filling is None and len(ids) < length:
                raise DataError(f"a text has {len(ids)} tokens, a sample {length}, and the tokenizer has no padding token, \"pad_id\" "
                                "or <pad>: use --windows, or a smaller --length")
            rows.append(np.pad(ids, (0, length - len(ids)), constant_values=filling or 0))
            if len(rows) == size:
                yield np.stack(rows)
                rows = []
        if rows:
            yield np.stack(rows)


class WindowSamples(Samples):
    """Windows of one text, i32 [length]. No window reads a token of another group."""

    tokens = True

    def __init__(self, path, ids, length):
        self.path, self.ids = path, ids
        self.shape, self.dtype = (length,), np.dtype("i4")
        self.starts, self.groups = np.empty(0, np.int64), np.empty(0, np.uint8)

    def add(self, group, begin, end, stride):
        """Adds the windows of the tokens [begin, end) of a group."""
        starts = np.arange(begin, max(begin, end - self.shape[0]), stride)
        if end > begin and not len(starts):
            raise DataError(f"{self.path} has {end - begin} tokens for the group {GROUPS[group]}: windows of {self.shape[0]} need "
                            f"{self.shape[0] + 1} or more. Use a longer text, smaller --windows or another --test or --val")
        self.starts = np.concatenate([self.starts, starts])
        self.groups = np.concatenate([self.groups, np.full(len(starts), group, np.uint8)])

    def next_tokens(self):
        """Returns the next token of each token of each window, i64 [N, length]."""
        return self._windows(self.starts + 1).astype(np.int64)

    def _windows(self, starts):
        return self.ids[starts[:, None] + np.arange(self.shape[0])]

    def __len__(self):
        return len(self.starts)

    def arrays(self, size):
        for begin in range(0, len(self), size):
            yield self._windows(self.starts[begin:begin + size])

    def place(self, row):
        return f"{self.path}: token {self.starts[row]}"


def _collect_labels(texts, known, expected, source):
    """Returns the labels of the pairs (place, text). `expected` is the number of samples of `source`."""
    collector = LabelCollector(known)
    for place, label in texts:
        text = label.decode("utf-8", "replace")
        if is_missing(text):
            raise DataError(f"{place} has no label")
        collector.add(text, place)
    if len(collector.values) != expected:
        raise DataError(f"the labels have {len(collector.values)} lines, and {source} {expected} samples: use one label for each sample")
    return collector.take()


def _text_part(flags, path, label_file, known, length):
    """Returns the part of a file or folder."""
    if os.path.isdir(path):
        listing = list_folder(path, _FILE_ENDINGS, known)
        if listing.groups and flags["test-file"]:
            raise DataError(f"{path} has a folder for each group: leave --test-file out")
        return listing.part(TextSamples(lambda: _files(listing.paths), length, ""))
    if flags["text"]:
        delimiter = parse_delimiter(flags)
        samples = TextSamples(lambda: _fields(path, delimiter, flags["text"]), length, f"{path} has no records below its header")
        labels = _fields(path, delimiter, flags["label"]) if flags["label"] else None
    else:
        samples = TextSamples(lambda: _lines(path), length, f"{path} has no lines")
        labels = _lines(label_file) if label_file else None
    return Part(samples, _collect_labels(labels, known, len(samples), path) if labels else Labels())


def read_texts(flags, names, data):
    """Adds the parts of `from-text`."""
    if flags["windows"]:
        _add_windows(flags, data)
        return
    if flags["stride"]:
        raise DataError("--stride requires --windows: use both")
    if flags["label"] and not flags["text"]:
        raise DataError("--label is a column of a CSV file: use --text, the column of texts, too")
    length = data.like.shape[0] if data.like and not flags.given("length") else flags["length"]
    data.parts = [_text_part(flags, flags.required("file"), flags["labels"], names, length)]
    first = data.parts[0]
    if flags["test-file"]:
        test = _text_part(flags, flags["test-file"], flags["test-labels"], names or all_names(first.labels), length)
        test.labels.names = first.labels.names
        data.parts.append(test.assign(TEST))
    if first.groups is None:
        first.groups = draw_groups(flags, first, len(data.parts) > 1)
    tokenizer = _tokenizer(flags, first)
    for part in data.parts:
        part.samples.tokenizer = tokenizer
    data.notes.append(f"tokens are {tokenizer.unit}: \"vocabulary\": {tokenizer.size} in a model")
    data.text, data.report = tokenizer.stored(), {"vocabulary": tokenizer.size}


def _tokenizer(flags, part):
    """Returns the tokenizer of --tokenizer, --like or --tokens. Words come from the training texts."""
    given = given_tokenizer(flags)
    if given:
        if given.unit == "characters":
            raise DataError(f"--like {flags['like']} has windows of one text: use --windows")
        return given
    if flags["tokens"] == "characters":
        raise DataError("--tokens characters requires --windows, one long text: for a text on each line give bytes or words")
    if flags["tokens"] != "words":
        return BYTES
    any_training = (part.groups == TRAIN).any()
    texts = (text for (_, text), group in zip(part.samples.texts(), part.groups) if group == TRAIN or not any_training)
    return most_frequent(texts, flags["vocabulary"])


def _whole_text(path):
    if os.path.isdir(path):
        raise DataError(f"--windows takes one file, {path} is a folder: join its texts in one file")
    return Stream.open(path).read_rest(_MOST_WINDOWED)


def _add_windows(flags, data):
    for name in ("labels", "text", "label", "delimiter", "test-labels", "length", "classes", "seed"):
        if flags.given(name):
            raise DataError(f"--windows makes samples and labels from one text in its order: leave --{name} out")
    if flags["test-file"] and flags.given("test"):
        raise DataError("--test-file sets the group test: leave --test out")
    length, path, test_path = flags["windows"], flags.required("file"), flags["test-file"]
    if flags["stride"] and flags["stride"] > length:
        raise DataError(f"--stride is '{flags['stride']}': use a whole number from 1 to {length}")
    text = _whole_text(path)
    test_text = _whole_text(test_path) if test_path else b""
    tokenizer = given_tokenizer(flags)
    if tokenizer is None:
        tokenizer = (BYTES if flags["tokens"] == "bytes" else most_frequent([text + test_text], flags["vocabulary"])
                     if flags["tokens"] == "words" else character_tokens(text + test_text, path))
    ids, test_ids = tokenizer.ids(text, path), tokenizer.ids(test_text, test_path)
    count, total = len(ids), len(ids) + len(test_ids)
    test = 0.0 if test_path else flags["test"] if flags.given("test") else 0.1
    check_shares(flags["val"], test)
    held, validated = (count - math.floor(share * count + 0.5) for share in (test, flags["val"] + test))
    windows = WindowSamples(path, np.concatenate([ids, test_ids]), length)
    windows.add(TRAIN, 0, validated, flags["stride"] or length)
    windows.add(VALIDATION, validated, held, length)
    windows.add(TEST, held, count, length)
    windows.add(TEST, count, total, length)
    if not len(windows):
        raise DataError(f"{path} has no tokens")
    data.notes.append(f"{total} tokens, a vocabulary of {tokenizer.size} {tokenizer.unit}")
    labels = Labels("dense", windows.next_tokens(), tokenizer.class_names())
    data.parts = [Part(windows, labels, windows.groups)]
    data.text, data.report = tokenizer.stored(), {"tokens": total, "vocabulary": tokenizer.size}
