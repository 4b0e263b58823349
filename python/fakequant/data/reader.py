"""Reads existing data sets: the properties that --like takes, and whether an output may be replaced."""
import json
import os
from dataclasses import dataclass

import h5py
import numpy as np

from .common import DataError, file_kind

WRITER = "fakequant dataset"


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
    """Returns the names in a text, which is a JSON list, lines, or words separated by commas."""
    text = (text or "").strip()
    if text.startswith("["):
        try:
            return [str(name) for name in json.loads(text)]
        except ValueError:
            pass
    return [name.strip() for name in text.split("\n" if "\n" in text else ",")] if text else []


def texts(h5_object, name):
    """Returns the texts of an attribute, an empty list without the attribute and for numbers."""
    values = np.atleast_1d(h5_object.attrs.get(name, [])).ravel().tolist()
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values
            if isinstance(value, (bytes, str))]


def open_data_set(path):
    """Opens an HDF5 file for reading. Raises DataError for a file of another kind."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        raise DataError(f"{path} is {file_kind(path)}, not an HDF5 file: use a data set of fakequant dataset") from None


def _names(*h5_objects, attribute):
    """Returns the names in the attribute of the first object that has it, an empty list for a number."""
    for h5_object in h5_objects:
        if attribute in h5_object.attrs:
            names = texts(h5_object, attribute)
            if len(names) == 1:
                return [] if attribute == "classes" and names[0].strip().isdigit() else split_names(names[0])
            return names
    return []


def read_properties(path):
    """Reads the properties of the first group of a data set."""
    with open_data_set(path) as file:
        group = next((file[name] for name in ("/", "train", "val", "test", *file) if name in file and "x" in file[name]), None)
        if group is None:
            raise DataError(f"{path} has no group with an x: use a data set of fakequant dataset")
        x = group["x"]

        def numbers(name):
            return np.asarray(x.attrs[name], np.float64).reshape(-1) if name in x.attrs else None
        scale = numbers("scale")
        return Like(path, tuple(x.shape[1:]), x.dtype, _names(group, file, attribute="classes"),
                    0.0 if scale is None else float(scale[0]), numbers("mean"), numbers("std"), _names(file, attribute="columns"))


def check_output(path, read, force):
    """Raises DataError for an output that is one of the input files `read` ({flag: path}), or a file of another kind."""
    for flag, source in read.items():
        if os.path.isfile(path) and os.path.exists(source) and os.path.samefile(path, source):
            raise DataError(f"--output would write over {source}, which --{flag} reads: name another file")
    if force or not os.path.isfile(path) or os.path.getsize(path) == 0:
        return
    kind = file_kind(path)
    try:
        with h5py.File(path, "r") as file:
            if texts(file, "writer") == [WRITER]:
                return
    except OSError:
        kind = f"a damaged file, {kind}" if "HDF5" in kind else kind
    raise DataError(f"--output would replace {path}, which is {kind}, with a data set: name another file, or give --force")
