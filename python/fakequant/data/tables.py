"""Data sets of tables: a row of numbers for each record of a CSV or Parquet file, and a column of labels."""
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from .common import DataError
from .csv_records import check_width, find_column, parse_delimiter, read_records
from .labels import LabelCollector, all_names, field_hint, field_number, is_missing
from .reader import split_names
from .splits import TEST
from .writer import Labels, Part, Samples

_BATCH = 4096  # records
_MOST_TEXTS = 1000  # texts of a column of --one-hot
_FEW_COUNTS = 10  # consecutive numbers that are not a coincidence
_PLAIN = set("0123456789+-.eE")


@dataclass
class Feature:
    """A column that becomes numbers."""

    column: int
    name: str
    is_text: bool  # one number for each of its texts
    categories: list = field(default_factory=list)
    mean: float = 0.0
    counts: bool = False  # each number is one more than the number before

    @property
    def width(self):
        return len(self.categories) if self.is_text else 1


def _numbers(column):
    """Returns the numbers of a column of texts, NaN for other texts."""
    if set("".join(column)) <= _PLAIN:
        try:
            values = np.array(column, np.float64)
            return np.where(np.isfinite(values), values, np.nan)
        except ValueError:
            pass
    found = map(field_number, column)
    return np.array([np.nan if number is None else number for number in found])


class TableSamples(Samples):
    """Rows of numbers, f32 [F]. The table is read twice: first its labels, texts and means, then its values.

    `records(path)` yields (line, fields). `before` is the table of the training samples; its columns are found by name.
    """

    def __init__(self, path, records, flags, names, known_columns=(), before=None):
        self.path, self.records, self.flags = path, records, flags
        self.choose = flags.part.name == "from-csv"  # a Parquet file is read without the columns that are left out
        first = next((fields for _, fields in records(path)), None)
        if first is None:
            raise DataError(f"{path} has no records")
        if before:
            self._match_columns(before, first)
        else:
            self._choose_columns(first, known_columns)
        self.skipped, self.lines, self.first = 0, [], 0
        self.labels = self._survey(before, names)
        self.shape = (sum(feature.width for feature in self.features),)
        self.dtype = np.dtype("f4")

    def place(self, row):
        at = row - self.first
        return f"{self.path}: line {self.lines[at]}" if 0 <= at < len(self.lines) else f"{self.path}: row {row}"

    def _fail(self, line, problem):
        raise DataError(f"{self.path}: line {line} {problem}")

    def _choose_columns(self, first, known_columns):
        """Sets header, label and features by the flags and the first record."""
        flags, path = self.flags, self.path
        header_flag = flags["header"] or "yes"
        self.has_header = header_flag == "yes" or header_flag == "auto" and all(field_number(text) is None for text in first)
        self.header = first if self.has_header else [str(i) for i in range(len(first))]
        label, dropped = flags["label"], split_names(flags["drop"])
        if flags["task"] == "none":
            dropped, label = dropped + [label] * bool(label), None
        elif not label:
            raise DataError(f"--label is missing: name the column of labels, which is one of {', '.join(self.header)}, or give --task none")
        self.label = find_column(self.header, label, path) if label else None
        wanted, dropped = ({find_column(self.header, name, path) for name in names} if self.choose else set()
                           for names in (split_names(flags["columns"]), dropped))
        texts = {find_column(self.header, name, path) for name in split_names(flags["one-hot"])}
        self.features = [Feature(i, self.header[i], i in texts) for i in range(len(first))
                         if i != self.label and i not in dropped and (not wanted or i in wanted)]
        for feature in self.features:
            begin = feature.name + "="
            feature.categories = [name[len(begin):] for name in known_columns if feature.is_text and name.startswith(begin)]
        if not self.features:
            raise DataError(f"{path} has no column except the label: it has {', '.join(self.header)}")

    def _match_columns(self, before, first):
        """Sets header, label and features as in another table."""
        if not before.has_header and len(first) != len(before.header):
            raise DataError(f"{self.path} has {len(first)} columns, and the training table {len(before.header)}")

        def position(column):
            return find_column(first, before.header[column], self.path) if before.has_header else column
        self.has_header, self.header = before.has_header, first if before.has_header else before.header
        self.features = [Feature(position(f.column), f.name, f.is_text, f.categories, f.mean) for f in before.features]
        self.label = None if before.label is None else position(before.label)

    def column_names(self):
        """Returns the names of the numbers of a row: "size", or "colour=red" of a column of text."""
        return [f"{f.name}={text}" if f.is_text else f.name for f in self.features for text in (f.categories if f.is_text else [""])]

    def _blocks(self):
        """Yields (lines, columns, labels) of complete records. A column is an array of numbers, or a list of texts."""
        records = self.records(self.path)
        if self.has_header:
            next(records, None)
        while block := list(islice(records, _BATCH)):
            for line, fields in block:
                check_width(self.path, line, fields, self.header)
            lines, columns = [line for line, _ in block], list(zip(*(fields for _, fields in block)))
            errors, complete = [], np.ones(len(block), bool)
            values = [self._values(feature, columns[feature.column], lines, errors, complete) for feature in self.features]
            labels = None if self.label is None else self._label_texts(columns[self.label], lines, errors, complete)
            if errors:
                self._fail(*min(errors, key=lambda error: error[0]))
            self.skipped += len(block) - int(complete.sum())
            if complete.all():
                yield lines, values, labels
            elif complete.any():
                rows = np.flatnonzero(complete).tolist()
                yield ([lines[i] for i in rows], [one[complete] if isinstance(one, np.ndarray) else [one[i] for i in rows] for one in values],
                       None if labels is None else [labels[i] for i in rows])

    def _values(self, feature, column, lines, errors, complete):
        """Returns the values of a column. Adds (line, problem) of a bad field, and clears `complete` of incomplete records."""
        if not feature.is_text:
            column = self._with_points(column)
        values = list(column) if feature.is_text else _numbers(column)
        suspects = range(len(column)) if feature.is_text else np.flatnonzero(np.isnan(values)).tolist()
        missing, name = self.flags["missing"], feature.name
        for i in suspects:
            text = column[i]
            if is_missing(text):
                if missing == "error" or missing == "mean" and feature.is_text:
                    way = "" if feature.is_text else ", --missing mean uses the mean of the column"
                    errors.append((lines[i], f"has no value in the column '{name}': --missing skip leaves such records out{way}"))
                    break
                complete[i] &= missing == "mean"
            elif not feature.is_text:
                errors.append((lines[i], f"has '{text}' in the column '{name}', which is not a number: {field_hint(text)}--drop {name} "
                               f"leaves the column out, --one-hot {name} makes a column of 0 and 1 for each text"))
                break
        return values

    def _with_points(self, column):
        return [text.replace(",", ".") for text in column] if self.flags["decimal"] == "comma" else column

    def _label_texts(self, column, lines, errors, complete):
        texts = self._with_points(column) if self.flags["task"] == "real" else column
        for i in [i for i, text in enumerate(texts) if is_missing(text)]:
            complete[i] = False
            if self.flags["missing"] == "error":
                errors.append((lines[i], "has no label: --missing skip leaves such records out"))
                break
        return texts

    def _survey(self, before, names):
        """Reads the table once. Returns the labels; sets categories and means of the features."""
        width = len(self.features)
        sums, counts, last, counting = np.zeros(width), np.zeros(width, np.int64), np.zeros(width), np.ones(width, bool)
        texts = [dict() for _ in self.features]
        collector, reals = LabelCollector(all_names(before.labels) if before else names), []
        self.count = 0
        for lines, columns, labels in self._blocks():
            self.count += len(lines)
            for i, (feature, values) in enumerate(zip(self.features, columns)):
                if feature.is_text:
                    self._take_texts(feature, texts[i], values, lines)
                    continue
                values = values[~np.isnan(values)]
                if len(values):
                    sums[i] = np.add.accumulate(np.concatenate([sums[i:i + 1], values]))[-1]
                    chain = np.concatenate([last[i:i + 1], values]) if counts[i] else values
                    counting[i] &= bool((np.diff(chain) == 1).all())
                    last[i], counts[i] = values[-1], counts[i] + len(values)
            for line, text in zip(lines, labels or []):
                self._take_label(line, text, collector, reals)
        if self.count == 0:
            raise DataError(f"{self.path} has no complete records")
        for i, feature in enumerate(self.features if not before else []):
            if feature.is_text:
                feature.categories = feature.categories or sorted(texts[i])
            elif counts[i] == 0:
                raise DataError(f"{self.path} has no number in the column '{feature.name}': --drop it")
            else:
                feature.mean = float(sums[i] / counts[i])
                feature.counts = bool(counting[i]) and counts[i] >= _FEW_COUNTS
        return self._labels(collector, reals)

    def _take_texts(self, feature, texts, column, lines):
        for line, text in zip(lines, column):
            if feature.categories and text not in feature.categories:
                self._fail(line, f"has '{text}' in the column '{feature.name}', which the training data does not have")
            texts[text] = True
            if len(texts) > _MOST_TEXTS:
                self._fail(line, f"has the {_MOST_TEXTS + 1}th text in the column '{feature.name}': at most {_MOST_TEXTS}")

    def _take_label(self, line, text, collector, reals):
        if self.flags["task"] == "classes":
            collector.add(text, f"{self.path}: line {line}")
            return
        number = field_number(text)
        if number is None or abs(number) > float(np.finfo(np.float32).max):
            self._fail(line, f"has the label '{text}', which is not an f32 number: --task classes allows text")
        reals.append(number)

    def _labels(self, collector, reals):
        if self.label is None:
            return Labels()
        if self.flags["task"] == "real":
            return Labels("real", np.array(reals, np.float32))
        if not collector.names and len(collector.ids) > 20:
            numbers = [field_number(text) for text in collector.ids]
            if any(number is not None and number != int(number) for number in numbers):
                raise DataError(f"{self.path} has {len(numbers)} different numbers in the column '{self.header[self.label]}', which are "
                                "not whole: use --task real")
        return collector.take()

    def arrays(self, size):
        for self.lines, columns, _ in self._blocks():
            parts = []
            for feature, values in zip(self.features, columns):
                if feature.is_text:
                    parts += [[one == text for one in values] for text in feature.categories]
                else:
                    parts.append(np.where(np.isnan(values), feature.mean, values))
            with np.errstate(over="ignore"):
                x = np.stack([np.asarray(part, np.float32) for part in parts], 1)
            yield x
            self.first += len(x)


def add_tables(flags, names, data, records):
    """Adds the parts of `from-csv` and `from-parquet`. `records(path)` yields (line, fields)."""
    path, like = flags.required("file"), data.like
    table = TableSamples(path, records, flags, names, like.columns if like else ())
    data.columns = table.column_names()
    if like and like.columns and like.columns != data.columns:
        raise DataError(f"the columns are {', '.join(data.columns)}, and the columns of --like {like.path} are {', '.join(like.columns)}: "
                        "choose them with --columns and --drop")
    data.parts = [Part(table, table.labels)]
    if flags["test-file"]:
        test = TableSamples(flags["test-file"], records, flags, names, before=table)
        test.labels.names = table.labels.names
        data.parts.append(Part(test, test.labels).assign(TEST))
    for part in data.parts:
        if part.samples.skipped:
            data.notes.append(f"{part.samples.path}: {part.samples.skipped} incomplete records are left out")
    data.notes += [f"the column '{one.name}' counts the records: leave it out with --drop {one.name or one.column}, unless it has "
                   "about them" for one in table.features if one.counts]
    data.normalize = not flags.given("keep-values")


def read_csv(flags, names, data):
    """Adds the parts of `from-csv`."""
    delimiter = parse_delimiter(flags)
    add_tables(flags, names, data, lambda path: read_records(path, delimiter))
