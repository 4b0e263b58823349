"""Columns of a Parquet file as columns of a table: numbers, texts and categories as they are, lists of one length as a
column for each place."""
import json

import pyarrow
import pyarrow.types as types


class Refused(Exception):
    """What cannot be made a table of, in words."""


class Plain:
    """A column of numbers or texts."""

    def __init__(self, name):
        self.name = name

    def headings(self):
        return [self.name]

    def values(self, value, _row):
        return [value]


class Listed:
    """A column of lists of one length: a place is a column."""

    def __init__(self, name, length):
        self.name, self.length = name, length

    def headings(self):
        return [f"{self.name}[{i}]" for i in range(self.length)]

    def values(self, value, row):
        found = [] if value is None else flat(value)
        if value is None:
            return [None] * self.length
        if len(found) != self.length:
            raise Refused(f"column '{self.name}' has {len(found)} values in row {row}, and {self.length} in others: lists "
                          "must be of one length; leave it out by --drop")
        return found


def flat(value):
    return [one for part in value for one in flat(part)] if isinstance(value, list) else [value]


def is_list(kind):
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def leaf_of(kind):
    while is_list(kind):
        kind = kind.value_type
    return kind


def is_number(kind):
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)


def is_text(kind):
    if types.is_dictionary(kind):
        return is_text(kind.value_type) or is_number(kind.value_type)
    return types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind) or types.is_null(kind)


def first_length(file, name, rows):
    """The length of the first list that there is."""
    for batch in file.iter_batches(batch_size=rows, columns=[name]):
        for value in batch.column(0).to_pylist():
            if value is not None:
                return len(flat(value))
    return 0


def column_of(file, field, label, rows):
    if is_number(field.type) or is_text(field.type):
        return Plain(field.name)
    if is_list(field.type) and is_number(leaf_of(field.type)) and field.name != label:
        length = first_length(file, field.name, rows)
        if length == 0:
            raise Refused(f"column '{field.name}' has empty lists: leave it out by --drop")
        return Listed(field.name, length)
    image = types.is_binary(field.type) or types.is_large_binary(field.type) or (
        types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0)
    way = "if it is of images, give --image" if image else "leave it out by --drop, or choose others by --columns"
    raise Refused(f"column '{field.name}' is {field.type}, which is neither numbers nor text nor lists of numbers: {way}"
                  + (f" {field.name}" if image else ""))


def columns_of(file, names, label, rows):
    if not names:
        raise Refused("no column is left")
    return [column_of(file, file.schema_arrow.field(name), label, rows) for name in names]


def label_names(schema, label):
    """What classes are called, as Hugging Face's data sets say it; none where nobody says."""
    if not label or label not in schema.names or not pyarrow.types.is_integer(schema.field(label).type):
        return []
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []
