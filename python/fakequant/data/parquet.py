"""Data sets of Parquet files: columns of numbers and texts as a table, or a column of images."""
import json
import math
import tempfile

import numpy as np
import pyarrow
import pyarrow.parquet

from .common import DataError, did_you_mean, file_kind
from .labels import LabelCollector
from .splits import TEST, TRAIN
from .tables import table_parts
from .writer import Labels, Options, Part

_ROWS = 4096  # of a batch


class ParquetReader:
    """Yields (line, fields) of each row as texts, the header first, as of a CSV file."""

    delimiter = ","

    def __init__(self, path, label, columns, drop):
        self.path, self.label = path, label
        self.asked, self.dropped = ([name for name in text.split(",") if name] for text in (columns, drop))

    def fail(self, problem, line):
        raise DataError(f"{self.path}: line {line} {problem}")

    def __iter__(self):
        with open_parquet(self.path) as file:
            schema = file.schema_arrow
            check_columns(self.path, schema, [*self.asked, *self.dropped, *([self.label] if self.label else [])])
            names = [name for name in schema.names if name == self.label or
                     name not in self.dropped and (not self.asked or name in self.asked)]
            if not names:
                raise DataError(f"{self.path}: no column is left")
            columns = [Column(self.path, file, schema.field(name), name == self.label) for name in names]
            yield 1, [heading for column in columns for heading in column.headings]
            classes = label_names(schema, self.label)
            row = 0
            for values in batches(self.path, file, names):
                for i in range(len(values[names[0]])):
                    fields = []
                    for column in columns:
                        found = column.texts(values[column.name][i], row)
                        if classes and column.is_label:
                            found = [class_name(self.path, found[0], classes, row)]
                        fields += found
                    yield row + 2, fields
                    row += 1
            if row == 0:
                raise DataError(f"{self.path} has no rows")


class Column:
    """A column as texts. A list of length L becomes L columns."""

    def __init__(self, path, file, field, is_label):
        types = pyarrow.types
        self.path, self.name, self.is_label, self.length = path, field.name, is_label, None

        def is_list(kind):
            return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)

        def is_number(kind):
            return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)

        def is_text(kind):
            if types.is_dictionary(kind):
                return is_text(kind.value_type) or is_number(kind.value_type)
            return types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind) or types.is_null(kind)
        leaf = field.type
        while is_list(leaf):
            leaf = leaf.value_type
        if is_number(field.type) or is_text(field.type):
            self.headings = [field.name]
        elif is_list(field.type) and is_number(leaf) and not is_label:
            lists = (value for batch in batches(path, file, [field.name]) for value in batch[field.name])
            self.length = len(_flat(next((value for value in lists if value is not None), [])))
            if self.length == 0:
                raise DataError(f"{path}: column '{field.name}' has empty lists: leave it out by --drop")
            self.headings = [f"{field.name}[{i}]" for i in range(self.length)]
        else:
            image = types.is_binary(field.type) or types.is_large_binary(field.type) or (
                types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0)
            way = f"if it is of images, give --image {field.name}" if image else \
                "leave it out by --drop, or choose others by --columns"
            raise DataError(f"{path}: column '{field.name}' is {field.type}, which is neither numbers nor text nor lists of "
                            f"numbers: {way}")

    def texts(self, value, row):
        if self.length is None:
            return [_text(value)]
        if value is None:
            return [""] * self.length
        found = _flat(value)
        if len(found) != self.length:
            raise DataError(f"{self.path}: column '{self.name}' has {len(found)} values in row {row}, and {self.length} in others: "
                            "lists must be of one length; leave it out by --drop")
        return [_text(one) for one in found]


def _flat(value):
    return [one for part in value for one in _flat(part)] if isinstance(value, list) else [value]


def _text(value):
    if value is None or isinstance(value, float) and math.isnan(value):
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value).strip(" \t")


def open_parquet(path):
    """The file for reading. Raises DataError for a file of another kind."""
    try:
        with open(path, "rb"):
            pass
        kind = file_kind(path)
        if kind != "a Parquet file":
            raise DataError(f"{path} is {kind or 'something else'}, not a Parquet file")
        return pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _damaged(path, error):
    return DataError(f"{path} cannot be read: {' '.join(str(getattr(error, 'strerror', None) or error).split())}")


def batches(path, file, names):
    """Lists of values by column."""
    try:
        for batch in file.iter_batches(batch_size=_ROWS, columns=names):
            yield {name: batch.column(name).to_pylist() for name in names}
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None


def check_columns(path, schema, names):
    for name in names:
        if name not in schema.names:
            raise DataError(f"{path}: there is no column '{name}': it has {', '.join(schema.names)}")


def label_names(schema, label):
    """The names of the classes that the metadata of a Hugging Face data set has; else none."""
    types = pyarrow.types
    if not label or label not in schema.names or not types.is_integer(schema.field(label).type):
        return []
    try:
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def class_name(path, text, classes, row):
    if text and (not text.isdigit() or int(text) >= len(classes)):
        raise DataError(f"{path}: row {row} has the label {text}, and the file names {len(classes)} classes")
    return classes[int(text)] if text else text


def _spool(path, flags, spool, label):
    """Copies the images of a column to the file `spool`. Returns their ImageFiles, labels, and names of classes."""
    from .images import ImageFile  # needs Pillow
    column = flags.text("image")
    files, texts, row = [], [], 0
    with open_parquet(path) as file:
        schema = file.schema_arrow
        names = [column] + ([label] if label else [])
        check_columns(path, schema, names)
        classes = label_names(schema, label)
        for values in batches(path, file, names):
            for i, value in enumerate(values[column]):
                data = value.get("bytes") if isinstance(value, dict) else value
                if not isinstance(data, bytes) or not data:
                    raise DataError(f"{path}: column '{column}' has no bytes of an image in row {row}: images that lie elsewhere are "
                                    "not read")
                if label:
                    text = _text(values[label][i])
                    text = class_name(path, text, classes, row) if classes else text
                    if not text:
                        raise DataError(f"{path}: row {row} has no label: leave the row out, or give --task none")
                    texts.append(text)
                files.append(ImageFile(f"{path}: row {row}", spool.name, spool.tell(), len(data)))
                spool.write(data)
                row += 1
    if not files:
        raise DataError(f"{path} has no rows")
    spool.flush()
    return files, texts, classes


def parquet_parts(flags, names, notes, like, progress):
    """(parts, options) of `from-parquet`."""
    for name in ("columns", "drop", "one-hot", "keep-values"):
        if flags.given("image") and flags.given(name):
            raise DataError(f"--{name} is of a table: leave it or --image out")
    for name in ("size", "resize", "strict"):
        if flags.given(name) and not flags.given("image"):
            raise DataError(f"--{name} is of images: give --image COLUMN too")
    flags.required("output")
    path = flags.required("file")
    label = flags.text("label") if flags.choice("task", ("classes", "real", "none")) != "none" else ""
    if not flags.given("image"):
        if not names and label:
            with open_parquet(path) as file:
                names = label_names(file.schema_arrow, label)
        return table_parts(flags, names, notes, like, lambda path: lambda: ParquetReader(
            path, label, flags.text("columns"), flags.text("drop")), choose=False)
    from .images import ImageSamples  # needs Pillow
    spool = tempfile.NamedTemporaryFile(prefix="fakequant-")  # noqa: SIM115: lives as long as the samples
    files, texts, groups = [], [], []
    for group, source in ((TRAIN, path), (TEST, flags.text("test-file"))):
        if source:
            found = _spool(source, flags, spool, label)
            names = names or found[2]
            files += found[0]
            texts += found[1]
            groups += [group] * len(found[0])
    labels = Labels()
    if label:
        order = sorted(range(len(files)), key=lambda i: (groups[i], texts[i]))  # class by class, as images of folders
        files, texts, groups = ([values[i] for i in order] for values in (files, texts, groups))
        collector = LabelCollector(names or sorted(set(texts)))
        for image, text in zip(files, texts):
            if not collector.add(text):
                raise DataError(f"{image.place} has the label '{text}', which is none of the classes given"
                                f"{did_you_mean(text, collector.names)}")
        labels = collector.take()
    part = Part(ImageSamples(files, flags, like, progress), labels)
    part.samples.spool = spool
    if flags.given("test-file"):
        part.groups = np.array(groups, "u1")
    return [part], Options()
