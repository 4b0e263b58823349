"""Reads the properties that --like takes from a data set: classes, shape, normalisation, columns."""
import json
from dataclasses import dataclass

import h5py
import numpy as np

from .common import DataError, file_kind, one_line_name


@dataclass
class Like:
    """A data set that new samples must resemble."""

    path: str
    shape: tuple
    dtype: object
    classes: list
    scale: float
    mean: object
    deviation: object
    columns: list


def split_names(text):
    """The names in a text: a JSON list, lines, or words between commas."""
    text = text.strip(" \t\r\n")
    if not text:
        return []
    if text[0] in "[{":
        try:
            names = json.loads(text)
        except ValueError:
            return []
        return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []
    return [name.strip(" \t\r\n") for name in text.split("\n" if "\n" in text else ",")]


def texts(h5_object, name):
    """The texts of an attribute; None where it has none."""
    if name not in h5_object.attrs:
        return None
    values = np.atleast_1d(h5_object.attrs[name]).ravel().tolist()
    if not all(isinstance(value, (bytes, str)) for value in values):
        return None
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]


def open_data_set(path):
    """Opens an HDF5 file for reading. Raises DataError for a file of another kind."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        kind = file_kind(path)
        raise DataError(f"{path} is not an HDF5 file{f' but {kind}' if kind else ''}: give a data set, as fakequant dataset "
                        "writes it") from None


def class_names(*h5_objects):
    """The names of the classes that the first object with an attribute `classes` has; none for a number."""
    for h5_object in h5_objects:
        if "classes" in h5_object.attrs:
            names = texts(h5_object, "classes") or []
            if len(names) == 1:
                names = [] if names[0].strip().isdigit() else split_names(names[0])
            return [one_line_name(name) for name in names]
    return []


def read_like(path):
    """The properties of the first group of a data set."""
    with open_data_set(path) as file:
        names = ["", "train", "val", "test", *file]
        group = next((name for name in names if f"{name}/x".lstrip("/") in file), None)
        if group is None:
            raise DataError(f"{path} has no group with an x: give a data set, as fakequant dataset writes it")
        x = file[f"{group}/x".lstrip("/")]

        def numbers(name):
            return np.atleast_1d(np.asarray(x.attrs[name], np.float64)).ravel() if name in x.attrs else None
        scale, columns = numbers("scale"), texts(file, "columns") or []
        return Like(path=path, shape=tuple(x.shape[1:]), dtype=x.dtype, classes=class_names(x.parent, file),
                    scale=float(scale[0]) if scale is not None else 0.0, mean=numbers("mean"), deviation=numbers("std"),
                    columns=split_names(columns[0]) if len(columns) == 1 else columns)
