"""Numbers and class labels of table fields, lines of text and arrays."""
import math
import re

import numpy as np

from .common import DataError, did_you_mean
from .writer import Labels

MOST_CLASSES = 1 << 24
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}(?=[ T]|$)")


def is_missing(text):
    """Returns whether a field has no value: it is empty, "?", or NA, N/A, NaN, null or none in any case."""
    return len(text) <= 4 and text.lower() in _MISSING


def field_number(text):
    """Returns the number of a text that is a finite number; 1 and 0 for true and false; None for other text."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text.lower())
    return value if math.isfinite(value) else None


def field_hint(text):
    """Returns the remedy for a field that looks like a number, a date or a percentage, else ""."""
    if "," in text and field_number(text.replace(",", ".")) is not None:
        return "a number with a decimal comma, which --decimal comma reads: "
    if _DATE.match(text):
        return "a date, which has to be converted to numbers, for example the day of the week: "
    if text.endswith("%") and field_number(text[:-1]) is not None:
        return "a percentage: write its number alone; "
    return ""


class LabelCollector:
    """Collects a text for each sample. `names` are the classes in their order; without names, the texts themselves."""

    def __init__(self, names=()):
        self.names = list(names)
        self.ids = {name: i for i, name in enumerate(self.names)}
        self.values = []

    def add(self, text, place):
        """Adds a label. Raises DataError for a text that is neither a name nor the number of a name. `place` names the sample."""
        found = self.ids.get(text)
        if found is None and not self.names:
            found = self.ids[text] = len(self.ids)
        if found is None:
            found = field_number(text)
            if found not in range(len(self.names)):
                raise DataError(f"{place} has the label '{text}'{did_you_mean(text, self.names)}")
        self.values.append(int(found))

    def take(self):
        """Returns the labels. Texts are sorted, numbers by value; the numbers 0 to K - 1 get no names."""
        values = np.array(self.values, np.int64)
        if self.names:
            return Labels("classes", values, self.names)

        def order(text):
            number = field_number(text)
            return (number is None, number or 0.0, text)
        texts = sorted(self.ids, key=order)
        position = np.empty(len(texts), np.int64)
        position[[self.ids[text] for text in texts]] = np.arange(len(texts))
        return Labels("classes", position[values], [] if texts == [str(i) for i in range(len(texts))] else texts)


def all_names(labels):
    """Returns the names of the classes, or "0", "1", .. for classes without names."""
    if labels.names or labels.task != "classes":
        return labels.names
    return [str(i) for i in range(int(labels.values.max()) + 1)]


def labels_from_array(array, task, samples, names):
    """Returns the labels of `samples` samples in an ArrayFile. Text becomes classes in the order of `names`, or sorted."""
    if task == "none":
        return Labels()
    if array.shape[0] != samples:
        raise DataError(f"{array.place} has {array.shape[0]} labels, and there are {samples} samples")
    values = array.read_all()

    def check(valid, problem):
        if not valid.all():
            at = np.unravel_index(int(np.argmin(valid.ravel())), values.shape)
            array.stream.fail(problem.format(f"{values[at]:g}", at[0]))
    if array.is_text:
        if task != "classes" or values.size != samples:
            array.stream.fail("is an array of text: only class names [N] can be text")
        collector = LabelCollector(names)
        for row, value in enumerate(values.ravel().tolist()):
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            collector.add(text, f"{array.place} row {row}")
        return collector.take()
    shape = list(values.shape)
    if task == "several":
        if len(shape) != 2:
            array.stream.fail(f"has the shape {shape}: several labels are [N, classes]")
        check((values == 0) | (values == 1), "has {} in row {}: several labels are 0 and 1")
        return Labels(task, values.astype(np.uint8), names)
    if task == "real":
        if len(shape) > 2:
            array.stream.fail(f"has the shape {shape}: real labels are [N] or [N, K]")
        check(np.isfinite(values), "has a NaN or infinity in row {1}")
        return Labels(task, values.astype(np.float32), names)
    if task == "classes" and (len(shape) > 2 or len(shape) == 2 and shape[1] != 1):
        array.stream.fail(f"has the shape {shape}: classes are [N]. For one-hot rows save y.argmax(1); for several labels of "
                          "a sample give --task several, for a class of each pixel --task dense")
    way = "; --task real keeps numbers" if values.dtype.kind == "f" else ""
    with np.errstate(invalid="ignore"):
        valid = (values == np.floor(values)) & (values >= 0) & (values < MOST_CLASSES)
    check(valid, "has the label {} in row {}: classes are whole numbers from 0 on" + way)
    values = values.astype(np.int64)
    return Labels(task, values.reshape(samples) if task == "classes" else values, names)
