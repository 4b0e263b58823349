"""Data sets of Parquet files: columns of numbers and texts as a table, or a column of images."""
import contextlib
import json
import math
import os
import tempfile

import numpy as np
import pyarrow
import pyarrow.parquet
from pyarrow import types

from .common import DataError, file_kind
from .labels import LabelCollector
from .reader import split_names
from .splits import TEST, TRAIN
from .tables import add_tables
from .writer import Labels, Part

_ROWS = 4096  # rows of a batch


class Table:
    """A Parquet file. Errors name the file."""

    def __init__(self, path, label=None):
        self.path = path
        with self.errors():
            kind = file_kind(path)
            if kind != "a Parquet file":
                self.fail(f" is {kind}, not a Parquet file")
            self.file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        self.schema = self.file.schema_arrow
        self.label = label
        self.classes = self._class_names()

    def fail(self, problem):
        raise DataError(self.path + problem)

    @contextlib.contextmanager
    def errors(self):
        try:
            yield
        except DataError:
            raise
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            self.fail(f" cannot be read: {' '.join(str(getattr(error, 'strerror', None) or error).split())}")

    def _class_names(self):
        """Returns the names of the classes in the metadata of a Hugging Face data set; else none."""
        if self.label not in self.schema.names or not types.is_integer(self.schema.field(self.label).type):
            return []
        try:
            return [str(name) for name in json.loads(self.schema.metadata[b"huggingface"])["info"]["features"][self.label]["names"]]
        except (KeyError, TypeError, ValueError):
            return []

    def check_columns(self, names):
        for name in names:
            if name not in self.schema.names:
                self.fail(f": there is no column '{name}': it has {', '.join(self.schema.names)}")

    def batches(self, names):
        """Yields lists of values by column."""
        with self.errors():
            for batch in self.file.iter_batches(batch_size=_ROWS, columns=names):
                yield [batch.column(name).to_pylist() for name in names]

    def label_text(self, value, row):
        text = as_text(value)
        if self.classes and text:
            if not text.isdigit() or int(text) >= len(self.classes):
                self.fail(f": row {row} has the label {text}, and the file names {len(self.classes)} classes")
            return self.classes[int(text)]
        return text

    def records(self, chosen, dropped):
        """Yields (line, fields) of each row as texts, like records of a CSV file, the header first. A list of length L becomes L fields."""
        self.check_columns([*chosen, *dropped, *([self.label] if self.label else [])])
        names = [name for name in self.schema.names
                 if name == self.label or name not in dropped and (not chosen or name in chosen)]
        if not names:
            self.fail(": no column is left")
        lengths = [self._length(self.schema.field(name)) for name in names]
        yield 1, [heading for name, length in zip(names, lengths)
                  for heading in ([name] if length is None else [f"{name}[{i}]" for i in range(length)])]
        row = 0
        for columns in self.batches(names):
            for values in zip(*columns):
                fields = []
                for name, length, value in zip(names, lengths, values):
                    found = [value] if length is None else [None] * length if value is None else _flat(value)
                    if length is not None and len(found) != length:
                        self.fail(f": column '{name}' has {len(found)} values in row {row}, and {length} in others: lists must have one "
                                  "length, or leave the column out with --drop")
                    fields += [self.label_text(value, row)] if name == self.label else map(as_text, found)
                yield row + 2, fields
                row += 1
        if row == 0:
            self.fail(" has no rows")

    def _length(self, field):
        """Returns the number of fields of a list, None for a number or text. Raises DataError for another type."""
        leaf = field.type
        while types.is_list(leaf) or types.is_large_list(leaf) or types.is_fixed_size_list(leaf):
            leaf = leaf.value_type
        is_list = leaf != field.type
        kind = leaf.value_type if types.is_dictionary(leaf) and not is_list else leaf
        is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
        is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind) or types.is_null(kind)
        if not is_list and (is_number or is_text):
            return None
        if is_list and is_number and field.name != self.label:
            lists = (value for columns in self.batches([field.name]) for value in columns[0])
            length = len(_flat(next((value for value in lists if value is not None), [])))
            if length == 0:
                self.fail(f": column '{field.name}' has empty lists: leave it out with --drop")
            return length
        is_image = types.is_binary(kind) or types.is_large_binary(kind) or types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        way = f"use --image {field.name} if it has images" if is_image else "leave it out with --drop, or choose columns with --columns"
        self.fail(f": column '{field.name}' is {field.type}, which is neither numbers nor text nor lists of numbers: {way}")

    def images(self, column):
        """Yields (bytes, text of the label) of each row."""
        self.check_columns([column] + [self.label] * bool(self.label))
        row = 0
        for columns in self.batches([column] + [self.label] * bool(self.label)):
            for image, *label in zip(*columns):
                data = image.get("bytes") if isinstance(image, dict) else image
                if not isinstance(data, bytes) or not data:
                    self.fail(f": column '{column}' has no image bytes in row {row}: images in separate files are not supported")
                text = self.label_text(label[0], row) if label else ""
                if label and not text:
                    self.fail(f": row {row} has no label: leave the row out, or give --task none")
                yield data, text
                row += 1
        if row == 0:
            self.fail(" has no rows")


def _flat(value):
    return [one for part in value for one in _flat(part)] if isinstance(value, list) else [value]


def as_text(value):
    if value is None or isinstance(value, float) and math.isnan(value):
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value).strip(" \t")


def _add_images(flags, names, data, label):
    """Adds a part of images, copied to a temporary file. Samples are sorted by class, like images of folders."""
    from .images import ImageSamples  # needs Pillow
    spool = tempfile.TemporaryFile()  # noqa: SIM115: lives as long as the samples
    images = []  # (group, label, place, (offset, size))
    for group, path in ((TRAIN, flags["file"]), (TEST, flags["test-file"])):
        if path:
            table = Table(path, label)
            names = names or table.classes
            for row, (image, text) in enumerate(table.images(flags["image"])):
                images.append((group, text, f"{path}: row {row}", (spool.tell(), len(image))))
                spool.write(image)
    spool.flush()
    images.sort(key=lambda image: image[:2])
    groups, texts, places, files = zip(*images)
    labels = Labels()
    if label:
        collector = LabelCollector(names or sorted(set(texts)))
        for place, text in zip(places, texts):
            collector.add(text, place)
        labels = collector.take()

    def read(file, most):
        return os.pread(spool.fileno(), min(most, file[1]), file[0])
    part = Part(ImageSamples(files, places, flags, data.like, read), labels)
    if flags["test-file"]:
        part.groups = np.array(groups, np.uint8)
    data.parts.append(part)


def read_parquet(flags, names, data):
    """Adds the parts of `from-parquet`."""
    for name in ("columns", "drop", "one-hot", "keep-values"):
        if flags.given("image") and flags.given(name):
            raise DataError(f"--{name} is for tables, and --image for images: use one of them")
    for name in ("size", "resize", "strict"):
        if flags.given(name) and not flags.given("image"):
            raise DataError(f"--{name} requires --image COLUMN")
    path = flags.required("file")
    label = flags["label"] if flags["task"] != "none" else None
    if flags.given("image"):
        _add_images(flags, names, data, label)
        return
    if not names and label:
        names = Table(path, label).classes
    chosen, dropped = split_names(flags["columns"]), split_names(flags["drop"])
    add_tables(flags, names, data, lambda path: Table(path, label).records(chosen, dropped))
