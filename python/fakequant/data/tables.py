"""Data sets of tables: a row of numbers for each record of a CSV or Parquet file, and a column of labels."""
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from .common import DataError, did_you_mean, printable
from .csv_records import CsvReader, column_of, delimiter_of
from .labels import LabelCollector, all_names, field_hint, field_number, is_missing
from .like import split_names
from .splits import TEST
from .writer import Labels, Options, Part, Samples

_BATCH = 4096  # records
_MOST_TEXTS = 1000  # of a column of --one-hot
_FEW_COUNTS = 10  # numbers in sequence that are no coincidence
_PLAIN = set("0123456789+-.eE")


@dataclass
class Feature:
    """A column that becomes numbers."""

    column: int
    text: bool  # one number for each of its texts
    categories: list = field(default_factory=list)
    mean: float = 0.0
    counts: bool = False  # each number is one more than the number before


@dataclass
class Schema:
    """How the columns of a table are read."""

    header: list
    has_header: bool
    label: int | None
    features: list
    classes: list = field(default_factory=list)

    def names(self):
        """The names of the numbers of a row: "size", or "colour=red" of a column of text."""
        return [f"{self.header[f.column]}={text}" if f.text else self.header[f.column]
                for f in self.features for text in (f.categories if f.text else [""])]


@dataclass
class TableOptions:
    """The flags of a table."""

    header: str
    label: str
    task: str
    columns: list
    drop: list
    one_hot: list
    known: list  # columns of --like
    missing: str
    decimal: str
    classes: list

    @classmethod
    def of(cls, flags, names, like, choose):
        decimal = "," if flags.knows("decimal") and flags.choice("decimal", ("point", "comma")) == "comma" else "."
        options = cls(flags.choice("header", ("auto", "yes", "no")) if flags.knows("header") else "yes", flags.text("label"),
                      flags.choice("task", ("classes", "real", "none")),
                      *(split_names(flags.text(name)) if choose or name == "one-hot" else []
                        for name in ("columns", "drop", "one-hot")),
                      like.columns if like else [], flags.choice("missing", ("error", "skip", "mean")), decimal, names)
        if options.task == "none" and options.label:
            options.drop.append(options.label)
            options.label = ""
        return options


def _has_header(first, choice):
    return choice == "yes" if choice != "auto" else all(field_number(text) is None for text in first)


def make_schema(first, options, path):
    """The columns by the options, from the first record of a table."""
    has_header = _has_header(first, options.header)
    header = first if has_header else [str(i) for i in range(len(first))]
    label = column_of(header, options.label, path) if options.label else None
    wanted, texts, dropped = ({column_of(header, name, path) for name in names}
                              for names in (options.columns, options.one_hot, options.drop))
    features = [Feature(i, i in texts) for i in range(len(first))
                if i != label and i not in dropped and (not wanted or i in wanted)]
    for feature in features:
        begin = header[feature.column] + "="
        if feature.text:
            feature.categories = [name[len(begin):] for name in options.known if name.startswith(begin)]
    if not features:
        raise DataError(f"{path} has no column left beside the label: it has {', '.join(header)}")
    return Schema(header, has_header, label, features)


def schema_like(before, first, path):
    """The columns of another file with the same table, found by their names."""
    if not before.has_header and len(first) != len(before.header):
        raise DataError(f"{path} has {len(first)} columns, the table before it {len(before.header)}")

    def moved(column):
        return column_of(first, before.header[column], path) if before.has_header else column
    features = [Feature(moved(f.column), f.text, f.categories, f.mean) for f in before.features]
    label = None if before.label is None else moved(before.label)
    return Schema(first if before.has_header else before.header, before.has_header, label, features, before.classes)


class TableSamples(Samples):
    """Rows of numbers, f32 [F]. The table is read twice: first its labels, texts and means, then its values.

    `reader` makes an iterator over (line, fields) with a method `fail`.
    """

    def __init__(self, path, reader, options, before=None):
        self.path, self.reader, self.options = path, reader, options
        first = next((fields for _, fields in reader()), None)
        if first is None:
            raise DataError(f"{path} has no records")
        self.schema = schema_like(before, first, path) if before else make_schema(first, options, path)
        self.count = self.skipped = 0
        self.lines = []  # of the batch that is read
        self.labels = self._survey(before is not None)
        self.shape = (sum(len(f.categories) if f.text else 1 for f in self.schema.features),)
        self.dtype = np.dtype("f4")

    def __len__(self):
        return self.count

    def _records(self):
        """(source, lines, records) of up to 4096 complete records."""
        source = self.reader()
        records = iter(source)
        if self.schema.has_header:
            next(records, None)
        while batch := list(islice(records, _BATCH)):
            kept = [pair for pair in batch if self._keep(source, *pair)] if not self._are_plain(batch) else batch
            if kept:
                yield source, [line for line, _ in kept], [fields for _, fields in kept]

    def _are_plain(self, batch):
        """Whether each record is complete and each field a finite number: nothing to report."""
        width, label = len(self.schema.header), self.schema.label
        if self.options.decimal != "." or any(len(fields) != width for _, fields in batch):
            return False
        if label is not None and any(is_missing(fields[label]) for _, fields in batch):
            return False
        for feature in self.schema.features:
            column = [fields[feature.column] for _, fields in batch]
            if feature.text:
                if any(map(is_missing, column)):
                    return False
            elif not set("".join(column)) <= _PLAIN or (values := _numbers(column)) is None or not np.isfinite(values).all():
                return False
        return True

    def _keep(self, source, line, fields):
        """Whether a record is kept. Reports the first field that is not as it must be."""
        schema, options = self.schema, self.options
        if options.decimal != ".":
            plain = [f.column for f in schema.features if not f.text] + [schema.label] * (options.task == "real")
            for column in plain:
                if column is not None and column < len(fields):
                    fields[column] = fields[column].replace(options.decimal, ".")
        if len(fields) != len(schema.header):
            source.fail(f"has {len(fields)} fields, the first has {len(schema.header)}: fields with a '{source.delimiter}' in them "
                        "stand in quotes", line)
        gap = False
        for feature in schema.features:
            text, name = fields[feature.column], printable(schema.header[feature.column])
            if is_missing(text):
                gap = True
                if options.missing == "error" or options.missing == "mean" and feature.text:
                    source.fail(f"has no value in the column '{name}': --missing skip leaves such records out"
                                f"{'' if feature.text else ', --missing mean puts the mean of the column there'}", line)
            elif not feature.text and field_number(text) is None:
                source.fail(f"has '{printable(text)}' in the column '{name}', which is no number: {field_hint(text)}--drop {name} "
                            f"leaves the column out, --one-hot {name} makes a number of each text", line)
        if schema.label is not None and is_missing(fields[schema.label]):
            if options.missing == "error":
                source.fail("has no label: --missing skip leaves such records out", line)
            gap = True
        elif options.missing == "mean":
            gap = False
        self.skipped += gap
        return not gap

    def _survey(self, known):
        """Reads the table once. Returns the labels; sets categories, means and classes of the schema."""
        schema, task = self.schema, self.options.task
        width = len(schema.features)
        sums, counts, last, counting = np.zeros(width), np.zeros(width, np.int64), np.zeros(width), np.ones(width, bool)
        texts = [{} for _ in schema.features]
        collector, reals = LabelCollector(schema.classes if known else self.options.classes), []
        for source, lines, records in self._records():
            self.count += len(records)
            for i, feature in enumerate(schema.features):
                column = [fields[feature.column] for fields in records]
                if feature.text:
                    self._take_texts(source, feature, texts[i], column, lines)
                    continue
                values = _values(column)
                values = values[~np.isnan(values)]
                if len(values):
                    sums[i] = np.add.accumulate(np.concatenate([sums[i:i + 1], values]))[-1]
                    chain = np.concatenate([last[i:i + 1], values]) if counts[i] else values
                    counting[i] &= bool((np.diff(chain) == 1).all())
                    last[i], counts[i] = values[-1], counts[i] + len(values)
            if schema.label is not None:
                for line, fields in zip(lines, records):
                    self._take_label(source, line, fields[schema.label], collector, reals)
        if self.count == 0:
            raise DataError(f"{self.path} has no records that are complete")
        if not known:
            self._finish_columns(texts, sums, counts, counting)
        if schema.label is None:
            return Labels()
        if task == "real":
            return Labels("real", np.array(reals, np.float32))
        if not collector.names and len(collector.ids) > 20:
            numbers = [field_number(text) for text in collector.ids]
            if any(number is not None and number != int(number) for number in numbers):
                raise DataError(f"{self.path} has {len(numbers)} different numbers in the column '{schema.header[schema.label]}': they "
                                "look like no classes; give --task real")
        labels = collector.take()
        if not known:
            schema.classes = all_names(labels)
        return labels

    def _take_texts(self, source, feature, texts, column, lines):
        name = self.schema.header[feature.column]
        known = set(feature.categories)
        for line, text in zip(lines, column):
            if known and text not in known:
                source.fail(f"has '{printable(text)}' in the column '{name}', which the training data has not", line)
            if not known and text not in texts:
                texts[text] = True
                if len(texts) > _MOST_TEXTS:
                    source.fail(f"has the {_MOST_TEXTS + 1}th text in the column '{name}': at most {_MOST_TEXTS}", line)

    def _take_label(self, source, line, text, collector, reals):
        if self.options.task == "classes":
            if not collector.add(text):
                source.fail(f"has the label '{printable(text)}'{did_you_mean(text, collector.names)}", line)
            return
        number = field_number(text)
        if number is None or abs(number) > float(np.finfo(np.float32).max):
            source.fail(f"has the label '{printable(text)}', which is no number that f32 has: --task classes takes text", line)
        reals.append(number)

    def _finish_columns(self, texts, sums, counts, counting):
        for i, feature in enumerate(self.schema.features):
            if feature.text:
                feature.categories = feature.categories or sorted(texts[i])
            elif counts[i] == 0:
                raise DataError(f"{self.path} has no number in the column '{self.schema.header[feature.column]}': --drop it")
            else:
                feature.mean = float(sums[i] / counts[i])
                feature.counts = bool(counting[i]) and counts[i] >= _FEW_COUNTS

    def batches(self, size):
        begin = 0
        for _, self.lines, records in self._records():
            x = np.empty((len(records), *self.shape), np.float32)
            at = 0
            for feature in self.schema.features:
                column = [fields[feature.column] for fields in records]
                if feature.text:
                    for text in feature.categories:
                        x[:, at] = [one == text for one in column]
                        at += 1
                    continue
                values = _values(column)
                with np.errstate(over="ignore"):
                    x[:, at] = np.where(np.isnan(values), feature.mean, values)
                at += 1
            self.first = begin
            yield np.arange(begin, begin + len(records)), x
            begin += len(records)

    def place(self, row):
        at = row - getattr(self, "first", 0)
        return f"{self.path}: line {self.lines[at]}" if 0 <= at < len(self.lines) else f"{self.path}: row {row}"


def _numbers(column):
    """The numbers of a column of texts; None where one is no number."""
    try:
        return np.array(column, np.float64)
    except ValueError:
        return None


def _values(column):
    """The numbers of a column, NaN for missing ones."""
    values = _numbers(column) if set("".join(column)) <= _PLAIN else None
    if values is None or not np.isfinite(values).all():
        found = map(field_number, column)
        values = np.array([np.nan if number is None else number for number in found])
    return values


def table_parts(flags, names, notes, like, open_table, choose=True):
    """(parts, options) of `from-csv` and `from-parquet`. `open_table(path)` gives the function that reads the records.

    `choose`: whether --columns and --drop choose among the fields of a record.
    """
    options = TableOptions.of(flags, names, like, choose)
    path = flags.required("file")
    if not options.label and options.task != "none":
        first = next((fields for _, fields in open_table(path)()), None)
        if first is None:
            raise DataError(f"{path} has no records")
        header = first if _has_header(first, options.header) else [str(i) for i in range(len(first))]
        raise DataError(f"--label is missing: name the column of labels, which is one of {', '.join(header)}, or give --task none")
    table = TableSamples(path, open_table(path), options)
    columns = table.schema.names()
    if like and like.columns and like.columns != columns:
        raise DataError(f"the columns are {', '.join(columns)}, those of --like {like.path} are {', '.join(like.columns)}: choose "
                        "them by --columns and --drop")
    parts = [Part(table, table.labels)]
    if flags.given("test-file"):
        other = flags.text("test-file")
        test = TableSamples(other, open_table(other), options, table.schema)
        test.labels.names = table.labels.names
        parts.append(Part(test, test.labels, np.full(len(test), TEST, np.uint8)))
    for part in parts:
        if part.samples.skipped:
            notes.append(f"{part.samples.path}: {part.samples.skipped} records without all values are left out")
    for feature in table.schema.features:
        if feature.counts:
            notes.append(f"the column '{table.schema.header[feature.column]}' counts the records: leave it out by --drop "
                         f"{feature.column}, unless that tells something of them")
    return parts, Options(normalize=not flags.on("keep-values"), columns=columns)


def csv_parts(flags, names, notes, like):
    """(parts, options) of `from-csv`."""
    delimiter = delimiter_of(flags)
    return table_parts(flags, names, notes, like, lambda path: lambda: CsvReader(path, delimiter))
