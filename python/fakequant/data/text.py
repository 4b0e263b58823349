"""Data sets of texts: the first tokens of each text, or windows of one long text."""
import math
import os

import numpy as np

from .common import MOST_LINE, DataError, Stream, did_you_mean, printable
from .csv_records import CsvReader, column_of, delimiter_of
from .folders import list_folder
from .labels import LabelCollector, all_names, is_missing
from .splits import GROUPS, TEST, TRAIN, VALIDATION
from .tokens import Bytes, Characters, chosen_unit, given_tokenizer, most_frequent
from .writer import Labels, Options, Part, Samples

_MOST_WINDOWED = 1 << 28  # bytes of a text that is cut into windows
_FILE_ENDINGS = (".txt", ".text", ".md")


class Lines:
    """The lines of a file without their ends. Empty lines are texts too."""

    def __init__(self, path):
        self.path = path
        self.count = sum(1 for _ in self)
        if not self.count:
            raise DataError(f"{path} has no lines")

    def __len__(self):
        return self.count

    def __iter__(self):
        for line in Stream.open(self.path).lines():
            yield line.removesuffix(b"\n").removesuffix(b"\r")

    def place(self, row):
        return f"{self.path}: line {row + 1}"


class Files:
    """Whole files."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __iter__(self):
        for path in self.paths:
            try:
                with open(path, "rb") as file:
                    data = file.read(MOST_LINE + 1)
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error.strerror}") from None
            if len(data) > MOST_LINE:
                raise DataError(f"{path} has more than {MOST_LINE} bytes")
            yield data

    def place(self, row):
        return self.paths[row]


class Fields:
    """A column of a CSV file. `labels` collects the column `label`, unless that is empty."""

    def __init__(self, path, delimiter, column, label, labels):
        self.path, self.delimiter, self.lines = path, delimiter, []
        reader = CsvReader(path, delimiter)
        records = iter(reader)
        _, header = next(records, (0, None))
        if header is None:
            raise DataError(f"{path} has no records")
        self.column = column_of(header, column, path)
        label_at = column_of(header, label, path) if label else None
        for line, fields in records:
            if len(fields) != len(header):
                reader.fail(f"has {len(fields)} fields, the first has {len(header)}: fields with a '{reader.delimiter}' in them stand "
                            "in quotes", line)
            if label_at is not None:
                take_label(labels, fields[label_at], lambda problem, line=line: reader.fail(problem, line))
            self.lines.append(line)
        if not self.lines:
            raise DataError(f"{path} has no records below its header")

    def __len__(self):
        return len(self.lines)

    def __iter__(self):
        records = iter(CsvReader(self.path, self.delimiter))
        next(records)
        for _, fields in records:
            yield fields[self.column].encode()

    def place(self, row):
        return f"{self.path}: line {self.lines[row]}"


def take_label(labels, text, fail):
    if is_missing(text):
        fail("has no label")
    if not labels.add(text):
        fail(f"has the label '{printable(text)}'{did_you_mean(text, labels.names)}")


class TextSamples(Samples):
    """The first `length` tokens of each text, i32 [length]."""

    tokens = True

    def __init__(self, texts, length):
        self.texts, self.tokenizer = texts, Bytes()
        self.shape, self.dtype = (length,), np.dtype("i4")

    def __len__(self):
        return len(self.texts)

    def batches(self, size):
        length, filling = self.shape[0], self.tokenizer.filling
        begin, rows = 0, []

        def batch():
            return np.arange(begin, begin + len(rows)), np.stack(rows)
        for row, text in enumerate(self.texts):
            ids = self.tokenizer.ids(text, self.place(row))[:length]
            if filling is None and len(ids) < length:
                raise DataError(f"a text has {len(ids)} tokens, a sample {length}, and the tokenizer has no token that fills, \"pad_id\" "
                                "or <pad>: give --windows, or a smaller --length")
            rows.append(np.pad(ids, (0, length - len(ids)), constant_values=filling or 0))
            if len(rows) == size:
                yield batch()
                begin, rows = begin + len(rows), []
        if rows:
            yield batch()

    def place(self, row):
        return self.texts.place(row)


class WindowSamples(Samples):
    """Windows of one text, i32 [length]. No window reads a token of another group."""

    tokens = True

    def __init__(self, path, ids, length):
        self.path, self.ids = path, ids
        self.shape, self.dtype = (length,), np.dtype("i4")
        self.starts, self.groups = np.empty(0, np.int64), np.empty(0, np.uint8)

    def add(self, group, begin, end, stride):
        """Adds the windows of the tokens [begin, end) of a group. Returns their number."""
        starts = np.arange(begin, max(begin, end - self.shape[0]), stride)
        self.starts = np.concatenate([self.starts, starts])
        self.groups = np.concatenate([self.groups, np.full(len(starts), group, np.uint8)])
        return len(starts)

    def next_tokens(self):
        """The next token of each token of each window, i64 [N, length]."""
        return self._windows(self.starts + 1).astype(np.int64)

    def _windows(self, starts):
        return self.ids[starts[:, None] + np.arange(self.shape[0])]

    def __len__(self):
        return len(self.starts)

    def batches(self, size):
        for begin in range(0, len(self), size):
            starts = self.starts[begin:begin + size]
            yield np.arange(begin, begin + len(starts)), self._windows(starts)

    def place(self, row):
        return f"{self.path}: token {self.starts[row]}"


def _open_texts(flags, path, label_file, known):
    """(texts, labels, groups) of a file or folder."""
    if os.path.isdir(path):
        listing = list_folder(path, _FILE_ENDINGS, known)
        if listing.groups and flags.given("test-file"):
            raise DataError(f"{path} has a folder for each group: --test-file is not taken beside it")
        labels = Labels("classes", np.array(listing.labels, np.int64), listing.classes) if listing.classes else Labels()
        return Files(listing.paths), labels, np.array(listing.groups, np.uint8) if listing.groups else None
    collector = LabelCollector(known)
    if flags.given("text"):
        texts = Fields(path, delimiter_of(flags), flags.text("text"), flags.text("label"), collector)
    else:
        texts = Lines(path)
        if label_file:
            lines = Lines(label_file)
            for row, line in enumerate(lines):
                def fail(problem, row=row):
                    raise DataError(f"{lines.place(row)} {problem}")
                take_label(collector, line.decode("utf-8", "replace"), fail)
            if len(lines) != len(texts):
                raise DataError(f"{label_file} has {len(lines)} lines, {path} has {len(texts)}: give one label for each")
    return texts, collector.take() if collector.values else Labels(), None


def text_parts(flags, names, notes, like, draw):
    """(parts, options, fields of the report) of `from-text`. `draw(part, test_elsewhere)` draws the groups of a part."""
    if flags.given("windows"):
        return _window_parts(flags, notes)
    if flags.given("stride"):
        raise DataError("--stride is between windows: give --windows, their size")
    length = like.shape[0] if like and not flags.given("length") else flags.integer("length", 1, 1 << 20)
    if flags.given("label") and not flags.given("text"):
        raise DataError("--label names a column of a CSV file: give --text, its column of texts, too")
    files = [(flags.required("file"), flags.text("labels"))]
    if flags.given("test-file"):
        files.append((flags.text("test-file"), flags.text("test-labels")))
    parts = []
    for path, label_file in files:
        texts, labels, groups = _open_texts(flags, path, label_file, names if not parts else names or all_names(parts[0].labels))
        part = Part(TextSamples(texts, length), labels, groups)
        if parts:
            part.groups = np.full(len(texts), TEST, np.uint8)
            part.labels.names = parts[0].labels.names
        elif part.groups is None:
            part.groups = draw(part, len(files) > 1)
        parts.append(part)
    tokenizer = _tokenizer(flags, parts[0].samples.texts, parts[0].groups)
    for part in parts:
        part.samples.tokenizer = tokenizer
    notes.append(f"tokens are {tokenizer.unit}: \"vocabulary\": {tokenizer.size} in a model")
    return parts, Options(**tokenizer.options()), {"vocabulary": tokenizer.size}


def _tokenizer(flags, texts, groups):
    """Words of the training texts, or what another data set or a file says."""
    given = given_tokenizer(flags)
    if given:
        if given.unit == "characters":
            raise DataError(f"--like {flags.text('like')} is windows of one text: give --windows")
        return given
    unit = chosen_unit(flags, "bytes")
    if unit == "characters":
        raise DataError("--tokens characters goes with --windows, one long text: of a text on each line give bytes or words")
    if unit == "bytes":
        return Bytes()
    any_training = (groups == TRAIN).any()
    return most_frequent(flags, (text for text, group in zip(texts, groups) if group == TRAIN or not any_training))


def _whole_text(path):
    if os.path.isdir(path):
        raise DataError(f"--windows takes one file, {path} is a folder: put its texts one behind another")
    return Stream.open(path).rest(_MOST_WINDOWED)


def _window_parts(flags, notes):
    for name in ("labels", "text", "label", "delimiter", "test-labels", "length", "classes", "seed"):
        if flags.given(name):
            raise DataError(f"--windows makes samples of one text, in its order, and labels of the tokens that follow: leave --{name} "
                            "out")
    if flags.given("test-file") and flags.given("test"):
        raise DataError("--test-file is the test: leave --test out")
    length, path, test_path = flags.integer("windows", 1, 1 << 20), flags.required("file"), flags.text("test-file")
    text = _whole_text(path)
    test = _whole_text(test_path) if test_path else b""
    tokenizer = given_tokenizer(flags)
    if tokenizer is None:
        unit = chosen_unit(flags, "characters")
        tokenizer = Bytes() if unit == "bytes" else Characters.of(text + test, path) if unit == "characters" else most_frequent(
            flags, [text + test])
    ids, test_ids = tokenizer.ids(text, path), tokenizer.ids(test, test_path)
    windows = WindowSamples(path, np.concatenate([ids, test_ids]), length)
    _add_groups(flags, windows, path, len(ids))
    if test_path:
        _add_group(windows, test_path, TEST, len(ids), len(ids) + len(test_ids), length)
    if not len(windows):
        raise DataError(f"{path} has no tokens")
    count = len(windows.ids)
    notes.append(f"{count} tokens, a vocabulary of {tokenizer.size} {tokenizer.unit}")
    labels = Labels("dense", windows.next_tokens(), tokenizer.class_names())
    return [Part(windows, labels, windows.groups)], Options(**tokenizer.options()), {"tokens": count, "vocabulary": tokenizer.size}


def _add_group(windows, path, group, begin, end, stride):
    length = windows.shape[0]
    if end > begin and windows.add(group, begin, end, stride) == 0:
        raise DataError(f"{path} has {end - begin} tokens for the group {GROUPS[group]}: windows of {length} need {length + 1} or more, so "
                        "give a longer text, smaller --windows or another --test or --val")


def _add_groups(flags, windows, path, count):
    """Adds the windows of the training, then of the validation, then of the test unless it has a file."""
    validation = flags.number("val", 0, 1)
    test = 0.0 if flags.given("test-file") else flags.number("test", 0, 1) if flags.given("test") else 0.1
    if validation + test > 1:
        raise DataError(f"--val is {validation:g} and --test is {test:g}: give no more than 1 together")
    length = windows.shape[0]
    held = math.floor(test * count + 0.5)
    validated = math.floor((validation + test) * count + 0.5)
    stride = flags.integer("stride", 1, length) if flags.given("stride") else length
    _add_group(windows, path, TRAIN, 0, count - validated, stride)
    _add_group(windows, path, VALIDATION, count - validated, count - held, length)
    _add_group(windows, path, TEST, count - held, count, length)
