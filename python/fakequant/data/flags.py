"""The flags of the parts of `fakequant dataset`: their help, and the parser of the command line."""
import math
import re
import textwrap
from dataclasses import dataclass

from .common import DataError, did_you_mean

_WIDTH = 110


@dataclass
class Flag:
    """A flag. `unit` names its value in the help; a toggle has none. An argument may be given without its name."""

    name: str
    unit: str | None
    help: str
    default: str | None = None
    short: str = ""
    argument: bool = False

    @property
    def heading(self):
        name = f"-{self.short} [ --{self.name} ]" if self.short else f"--{self.name}"
        return f"  {name}{f' {self.unit}' if self.unit else ''}{f' (={self.default})' if self.default is not None else ''}"


@dataclass
class Part:
    """A part of the command: its flags in groups, and the help."""

    name: str
    summary: str
    usage: str
    groups: list

    @property
    def flags(self):
        return [flag for _, flags in self.groups for flag in flags]

    def help(self):
        text = f"fakequant dataset {self.name} {self.usage}\n{self.summary}\n"
        for title, flags in self.groups:
            width = min(max(len(flag.heading) for flag in flags) + 1, _WIDTH // 2)
            text += f"\n{title}:\n"
            for flag in flags:
                lines = textwrap.wrap(flag.help, _WIDTH - width)
                text += f"{flag.heading:<{width}}" + ("\n" + " " * width if len(flag.heading) >= width else "")
                text += ("\n" + " " * width).join(lines) + "\n"
        return text


_TASK = Flag("task", "NAME", "kind of the labels: classes (numbers or text), real (numbers), none", "classes")
_MISSING = ("is an error, is left out (skip), or gets the column's mean (mean)", "error")
_KEEP = Flag("keep-values", None, "keep the numbers. By default the network sees (number - mean) / deviation, with the mean and deviation "
             "of the column over the training records")
_COLUMNS = [Flag("columns", "LIST", "the only columns to take (default: all but the label)"),
            Flag("drop", "LIST", "columns to leave out"),
            Flag("one-hot", "LIST", "columns of text: one number, 0 or 1, for each different text")]
_IMAGES = [
    Flag("size", "PIXELS", "size of every image: 32, or width and height, 64x48 (default: the size of --like, or of the images if all have one size)"),
    Flag("fit", "NAME", "images of another shape: crop (the middle), pad (black around) or stretch (both sides independently)",
         "crop"),
    Flag("resize", "PIXELS", "length of the shorter side before the crop to --size (default: the smallest that covers --size)"),
    Flag("channels", "NUMBER", "1: grey, 3: colour, auto: those of --like, or 1 if all images are grey", "auto")]
_STRICT = Flag("strict", None, "report an unreadable image, or a folder without images, as an error (default: leave it out)")


def _data_set(numbers):
    flags = [Flag("output", "FILE", "the data set to write (HDF5)", short="o"),
             Flag("test", "SHARE", "share of the samples for the group test, the same in every class", "0.2"),
             Flag("val", "SHARE", "share of the samples for the group val", "0"),
             Flag("seed", "NUMBER", "seed of the draw of the groups", "0"),
             Flag("classes", "LIST", "names of the classes in the order of their labels, with commas"),
             Flag("like", "FILE", "a data set whose classes, size, scale, mean, deviation, columns and words this one takes")]
    if numbers:
        flags += [Flag("scale", "NUMBER", "factor of stored values (default: images 1/255 for 8 bits, 1/65535 for 16 bits)"),
                  Flag("normalize", None, "the network sees (value - mean) / deviation, with the mean and deviation of the channel "
                       "over the training samples")]
    general = [Flag("help", None, "this text", short="h"), Flag("json", None, "print the report as one JSON object"),
               Flag("force", None, "replace an output that is not a data set")]
    python = Flag("python", "FILE", "a Python 3 with the packages of this part (default: FAKEQUANT_PYTHON, or python3)")
    return [("Data set", flags), ("Python", [python]), ("General", general)]


PARTS = {part.name: part for part in (
    Part("from-images", "Makes a data set of a folder of images. It has a folder for each class, or folders train, val and test with "
         "folders of classes.", "FOLDER -o FILE [flags]",
         [("Images", [Flag("folder", "FOLDER", "FOLDER/CLASS/..; images right in FOLDER have no labels", argument=True), *_IMAGES,
                      Flag("bits", "NUMBER", "bits of a sample: 8, or 16, stored as floats", "8"), _STRICT,
                      Flag("threads", "THREADS", "threads that decode images (default: OMP_NUM_THREADS, or every core)")]), *_data_set(True)]),
    Part("from-csv", "Makes a data set of a CSV table: a row of numbers and a label for each record.",
         "FILE --label COLUMN -o FILE [flags]",
         [("Table", [Flag("file", "FILE", "a CSV file in UTF-8, plain or gzip", argument=True),
                     Flag("label", "COLUMN", "column of labels: its name, or its position from 0"), _TASK,
                     Flag("test-file", "FILE", "a table with the same columns for the group test, instead of a share"), *_COLUMNS,
                     Flag("missing", "NAME", "a record without a value " + _MISSING[0], _MISSING[1]),
                     Flag("decimal", "NAME", "decimal mark of numbers: point or comma", "point"),
                     Flag("header", "NAME", "whether the first record is a header: yes, no, or auto (yes if it has no number)", "auto"),
                     Flag("delimiter", "MARK", "mark between fields: a character, tab, or auto (the most frequent of , ; | and tab in the "
                          "first line)", "auto"), _KEEP]), *_data_set(False)]),
    Part("from-parquet", "Makes a data set of a Parquet file: its columns of numbers and texts, or a column of images.",
         "FILE --label COLUMN -o FILE [flags]",
         [("Table", [Flag("file", "FILE", "a Parquet file", argument=True),
                     Flag("label", "COLUMN", "name of the column of labels"), _TASK,
                     Flag("test-file", "FILE", "a file with the same columns for the group test, instead of a share"), *_COLUMNS,
                     Flag("missing", "NAME", "a row without a value " + _MISSING[0], _MISSING[1]), _KEEP]),
          ("Images", [Flag("image", "COLUMN", "a column of images instead of a table: bytes, or {bytes, path}"), *_IMAGES, _STRICT]),
          *_data_set(False)]),
    Part("from-npy", "Makes a data set of NumPy arrays: samples [N, ..] and their labels.", "FILE [--labels FILE] -o FILE [flags]",
         [("Arrays", [Flag("file", "FILE", "samples: .npy, or .npz with x and y, or x_train, y_train, x_test and y_test",
                           argument=True),
                      Flag("labels", "FILE", "labels: .npy, numbers or text (default: y of a .npz, else none)"),
                      Flag("test-file", "FILE", "samples for the group test, instead of a share"),
                      Flag("test-labels", "FILE", "labels of the samples"),
                      Flag("x-key", "NAME,..", "array of samples in a .npz. Several, as ids,mask, form one row: for networks with several "
                           "inputs"),
                      Flag("y-key", "NAME", "array of labels in a .npz"),
                      Flag("layout", "NAME", "order of the axes: auto, nchw, nhwc, nhw (images with one channel), ncl (signals), flat, "
                           "or tokens", "auto"),
                      Flag("task", "NAME", "kind of the labels: classes, several (0 or 1 for each class), real (numbers), dense (a "
                           "class for each position), none", "classes")]), *_data_set(True)]),
    Part("from-idx", "Makes a data set of IDX files, the format of MNIST, plain or gzip.",
         "FILE|FOLDER [--labels FILE] -o FILE [flags]",
         [("Files", [Flag("file", "FILE|FOLDER", "images, or a folder with the four files of MNIST", argument=True),
                     Flag("labels", "FILE", "labels of the samples"), Flag("test-file", "FILE", "images for the group test, instead of a share"),
                     Flag("test-labels", "FILE", "labels of the samples")]), *_data_set(True)]),
    Part("from-text", "Makes a data set of texts: the first tokens of each text, padded with 0.", "FILE|FOLDER -o FILE [flags]",
         [("Texts", [Flag("file", "FILE|FOLDER", "a text on each line, plain or gzip; a CSV file with --text; or a folder with a folder of "
                          ".txt files for each class", argument=True),
                     Flag("labels", "FILE", "a label, number or text, on each line"),
                     Flag("text", "COLUMN", "column of texts in a CSV file"),
                     Flag("label", "COLUMN", "column of labels in a CSV file"),
                     Flag("delimiter", "MARK", "mark between fields of a CSV file: a character, tab or auto", "auto"),
                     Flag("test-file", "FILE", "texts for the group test, instead of a share"),
                     Flag("test-labels", "FILE", "labels of the samples"),
                     Flag("length", "TOKENS", "tokens of a sample. Longer texts are cut (default with --like: that of the data set)", "128"),
                     Flag("tokens", "NAME", "bytes (ids: byte + 1, 0 pads), words (0 pads, 1 is an unknown word), or characters with "
                          "--windows (default: bytes, or characters with --windows)"),
                     Flag("vocabulary", "WORDS", "number of words in the vocabulary: the most frequent of the training texts", "20000"),
                     Flag("tokenizer", "FILE", "a tokenizer.json of the package tokenizers")]),
          ("One text, for networks that predict the next token",
           [Flag("windows", "TOKENS", "tokens of a window. FILE is one text that is cut into windows. y is the next token of each "
                 "token. The last tenth, or --test of it, is the group test"),
            Flag("stride", "TOKENS", "distance between training windows (default: --windows)")]), *_data_set(False)]),
)}

_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Flags:
    """The values of the flags of a part."""

    def __init__(self, part, values):
        self.part, self.values = part, values
        self.defaults = {flag.name: flag.default for flag in part.flags}

    @classmethod
    def parse(cls, part, words):
        """Reads command-line words. Raises DataError for an unknown flag, and for a value too many or missing."""
        known = {f"--{flag.name}": flag for flag in part.flags} | {f"-{flag.short}": flag for flag in part.flags if flag.short}
        places = [flag for flag in part.flags if flag.argument]
        values, words, only_places = {}, list(words), False
        while words:
            word = words.pop(0)
            if word == "--" and not only_places:
                only_places = True
                continue
            if only_places or not word.startswith("-") or word == "-":
                if not places:
                    raise DataError(f"too many arguments: see fakequant dataset {part.name} --help")
                flag, value = places.pop(0), word
            else:
                name, equals, value = word.partition("=")
                if name not in known and len(word) > 2 and word[:2] in known and word[1] != "-":
                    name, equals, value = word[:2], "=", word[2:]
                if name not in known:
                    raise DataError(f"unknown flag {name}{did_you_mean(name, [n for n in known if n.startswith('--')])}")
                flag = known[name]
                if flag.unit is None and equals:
                    raise DataError(f"--{flag.name} takes no value: leave {word[len(name):]} out")
                if flag.unit is not None and not equals:
                    if not words or words[0].startswith("--") or words[0] in known:
                        raise DataError(f"--{flag.name} needs a value: see fakequant dataset {part.name} --help")
                    value = words.pop(0)
                places = [place for place in places if place is not flag]
            if flag.name in values and flag.unit is not None:
                raise DataError(f"--{flag.name} is given more than once: give it once")
            values[flag.name] = value if flag.unit is not None else True
        return cls(part, values)

    def knows(self, name):
        return name in self.defaults

    def given(self, name):
        return name in self.values

    def on(self, name):
        return bool(self.values.get(name))

    def text(self, name):
        """The value or the default; empty without both."""
        return str(self.values.get(name, self.defaults.get(name)) or "")

    def required(self, name):
        if not self.text(name):
            raise DataError(f"--{name} is missing: see fakequant dataset {self.part.name} --help")
        return self.text(name)

    def integer(self, name, low, high):
        text = self.text(name)
        if not re.fullmatch(r"-?[0-9]+", text) or not low <= int(text) <= high:
            raise DataError(f"--{name} is '{text}': give a whole number from {low} to {high}")
        return int(text)

    def number(self, name, low, high):
        text = self.text(name)
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not low <= value <= high:
            raise DataError(f"--{name} is '{text}': give a number from {low:g} to {high:g}")
        return value

    def choice(self, name, allowed):
        text = self.text(name)
        if text not in allowed:
            raise DataError(f"--{name} is '{text}'{did_you_mean(text, allowed)}")
        return text

    def files(self):
        """{flag: path} of the files that are read."""
        return {flag.name: self.text(flag.name) for flag in self.part.flags
                if flag.unit and flag.unit.startswith("FILE") and flag.name not in ("output", "python") and self.text(flag.name)}
