"""The flags of each part: one table for the command line, the keyword arguments of Python and the help."""
import argparse
from dataclasses import dataclass

from .common import DataError, did_you_mean


@dataclass
class Flag:
    """A flag. `unit` names its value; a toggle has none. `allowed` are the names, or the least and the largest number."""

    name: str
    unit: str | None
    help: str
    default: str | None = None
    allowed: tuple | None = None

    def value(self, text):
        """Returns the value as text, int or float. Raises DataError for a value that is not allowed."""
        if self.allowed is None:
            return text
        if isinstance(self.allowed[0], str):
            if text not in self.allowed:
                raise DataError(f"--{self.name} is '{text}'{did_you_mean(text, self.allowed)}")
            return text
        low, high = self.allowed
        try:
            value = type(low)(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            kind = "whole number" if isinstance(low, int) else "number"
            raise DataError(f"--{self.name} is '{text}': use a {kind} from {low:g} to {high:g}")
        return value


class Part:
    """A part of the command. Its first flag may be given without the name."""

    def __init__(self, name, summary, usage, *groups):
        self.name, self.summary, self.usage, self.groups = name, summary, usage, groups
        self.flags = {flag.name: flag for _, flags in groups for flag in flags}
        self.argument = next(iter(self.flags))

    def parser(self):
        parser = argparse.ArgumentParser(
            f"fakequant dataset {self.name}", f"fakequant dataset {self.name} {self.usage}", self.summary, add_help=False,
            allow_abbrev=False, exit_on_error=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36, width=120))
        for title, flags in self.groups:
            group = parser.add_argument_group(title)
            for flag in flags:
                short = {"output": ["-o"], "help": ["-h"]}.get(flag.name, [])
                default = "" if flag.default is None else f" (={flag.default})"
                value = {"action": "append", "metavar": flag.unit + default} if flag.unit else {"action": "store_true"}
                group.add_argument(*short, f"--{flag.name}", dest=flag.name, help=flag.help, **value)
        return parser

    def parse(self, words):
        """Returns {name: [text, ..] or True} of command-line words."""
        at = words.index("--") if "--" in words else len(words)
        try:
            found, rest = self.parser().parse_known_args(words[:at])
        except argparse.ArgumentError as error:
            problem = "takes no value" if "explicit" in error.message else "needs a value"
            raise DataError(f"{error.argument_name.split('/')[-1]} {problem}: see fakequant dataset {self.name} --help") from None
        for word in rest:
            if word.startswith("-") and word != "-":
                name = word.split("=")[0]
                raise DataError(f"unknown flag {name}{did_you_mean(name, [f'--{known}' for known in self.flags])}")
        values = {name: value for name, value in vars(found).items() if value}
        rest += words[at + 1:]
        if len(rest) > 1 or rest and self.argument in values:
            raise DataError(f"too many arguments: see fakequant dataset {self.name} --help")
        return values | ({self.argument: rest} if rest else {})


class Flags:
    """The checked values of the flags of a part: flags["test-file"] is None without the flag and without a default."""

    def __init__(self, part, values):
        self.part, self.set = part, {}
        self.values = {name: flag.value(flag.default) for name, flag in part.flags.items() if flag.default is not None}
        for name, value in values.items():
            if name not in part.flags:
                raise DataError(f"unknown flag --{name}{did_you_mean(f'--{name}', [f'--{known}' for known in part.flags])}")
            if value is not True and len(value) > 1:
                raise DataError(f"--{name} is given more than once: use it once")
            if (value is True) == bool(part.flags[name].unit):
                raise DataError(f"--{name} {'needs a value' if value is True else 'takes no value'}")
            self.set[name] = True if value is True else part.flags[name].value(value[0])
        self.values |= self.set

    def __getitem__(self, name):
        return self.values.get(name)

    def given(self, name):
        return name in self.set

    def required(self, name):
        if not self[name]:
            raise DataError(f"--{name} is missing: see fakequant dataset {self.part.name} --help")
        return self[name]

    def files(self):
        """Returns {flag: path} of the files that are read."""
        return {name: self[name] for name, flag in self.part.flags.items()
                if flag.unit and flag.unit.startswith("FILE") and name not in ("output", "python") and self[name]}


_SHARE, _LENGTH = (0.0, 1.0), (1, 1 << 20)
_TASK = Flag("task", "NAME", "kind of the labels: classes (numbers or text), real (numbers), none", "classes", ("classes", "real", "none"))
_COLUMNS = [
    Flag("columns", "LIST", "the only columns to read (default: all but the label)"), Flag("drop", "LIST", "columns to leave out"),
    Flag("one-hot", "LIST", "columns of text: one number, 0 or 1, for each different text"),
    Flag("missing", "NAME", "a record without a value is an error, is left out (skip), or gets the column's mean (mean)", "error",
         ("error", "skip", "mean")),
    Flag("keep-values", None, "keep the numbers. By default the network sees (number - mean) / deviation, with the mean and deviation "
         "of the column over the training records")]
_IMAGES = [
    Flag("size", "PIXELS", "size of every image: 32, or width and height, 64x48 (default: the size of --like, or of the images if all have one size)"),
    Flag("fit", "NAME", "images of another shape: crop (the middle), pad (black around) or stretch (both sides independently)", "crop",
         ("crop", "pad", "stretch")),
    Flag("resize", "PIXELS", "length of the shorter side before the crop to --size (default: the smallest that covers --size)",
         allowed=(1, 1 << 15)),
    Flag("channels", "NUMBER", "1: grey, 3: colour, auto: as --like, or 1 if all images are grey", "auto", ("auto", "1", "3")),
    Flag("strict", None, "report an unreadable image, or a folder without images, as an error (default: leave it out)")]
_LABELS = [Flag("labels", "FILE", "labels of the samples"),
           Flag("test-file", "FILE", "samples for the group test, instead of a share"),
           Flag("test-labels", "FILE", "labels of the samples of --test-file")]


def _data_set(has_scale):
    flags = [Flag("output", "FILE", "the data set to write (HDF5)"),
             Flag("test", "SHARE", "share of the samples for the group test, the same in every class", "0.2", _SHARE),
             Flag("val", "SHARE", "share of the samples for the group val", "0", _SHARE),
             Flag("seed", "NUMBER", "seed of the draw of the groups", "0", (0, 1 << 53)),
             Flag("classes", "LIST", "names of the classes in the order of their labels, with commas"),
             Flag("like", "FILE", "a data set whose classes, size, scale, mean, deviation, columns and words this one takes")]
    if has_scale:
        flags += [Flag("scale", "NUMBER", "factor of stored values (default: images 1/255 for 8 bits, 1/65535 for 16 bits)",
                       allowed=(1e-30, 1e30)),
                  Flag("normalize", None, "the network sees (value - mean) / deviation, with the mean and deviation of the channel "
                       "over the training samples")]
    general = [Flag("python", "FILE", "a Python 3 with the packages of this part (default: FAKEQUANT_PYTHON, or python3)"),
               Flag("help", None, "this text"), Flag("json", None, "print the report as one JSON object"),
               Flag("force", None, "replace an output that is not a data set")]
    return ("Data set", flags), ("General", general)


PARTS = {part.name: part for part in (
    Part("from-images", "Makes a data set of a folder of images. It has a folder for each class, or folders train, val and test with "
         "folders of classes.", "FOLDER -o FILE [flags]",
         ("Images", [Flag("folder", "FOLDER", "FOLDER/CLASS/..; images right in FOLDER have no labels"), *_IMAGES,
                     Flag("bits", "NUMBER", "bits of a sample: 8, or 16, stored as floats", "8", ("8", "16")),
                     Flag("threads", "THREADS", "threads that decode images (default: OMP_NUM_THREADS, or every core)",
                          allowed=(1, 1024))]), *_data_set(True)),
    Part("from-csv", "Makes a data set of a CSV table: a row of numbers and a label for each record.",
         "FILE --label COLUMN -o FILE [flags]",
         ("Table", [Flag("file", "FILE", "a CSV file in UTF-8, plain or gzip"),
                    Flag("label", "COLUMN", "column of labels: its name, or its position from 0"), _TASK,
                    Flag("test-file", "FILE", "a table with the same columns for the group test, instead of a share"), *_COLUMNS,
                    Flag("decimal", "NAME", "decimal mark of numbers: point or comma", "point", ("point", "comma")),
                    Flag("header", "NAME", "whether the first record is a header: yes, no, or auto (yes if it has no number)", "auto",
                         ("auto", "yes", "no")),
                    Flag("delimiter", "MARK", "mark between fields: a character, tab, or auto (the most frequent of , ; | and tab in "
                         "the first line)", "auto")]), *_data_set(False)),
    Part("from-parquet", "Makes a data set of a Parquet file: its columns of numbers and texts, or a column of images.",
         "FILE --label COLUMN -o FILE [flags]",
         ("Table", [Flag("file", "FILE", "a Parquet file"), Flag("label", "COLUMN", "name of the column of labels"), _TASK,
                    Flag("test-file", "FILE", "a file with the same columns for the group test, instead of a share"), *_COLUMNS]),
         ("Images", [Flag("image", "COLUMN", "a column of images instead of a table: bytes, or {bytes, path}"), *_IMAGES]),
         *_data_set(False)),
    Part("from-npy", "Makes a data set of NumPy arrays: samples [N, ..] and their labels.", "FILE [--labels FILE] -o FILE [flags]",
         ("Arrays", [Flag("file", "FILE", "samples: .npy, or .npz with x and y, or x_train, y_train, x_test and y_test"),
                     Flag("labels", "FILE", "labels: .npy, numbers or text (default: y of a .npz, else none)"), *_LABELS[1:],
                     Flag("x-key", "NAME,..", "array of samples in a .npz. Several, as ids,mask, form one row: for networks with several "
                          "inputs"),
                     Flag("y-key", "NAME", "array of labels in a .npz"),
                     Flag("layout", "NAME", "order of the axes: auto, nchw, nhwc, nhw (images with one channel), ncl (signals), flat, "
                          "or tokens", "auto", ("auto", "nchw", "nhwc", "nhw", "ncl", "flat", "tokens")),
                     Flag("task", "NAME", "kind of the labels: classes, several (0 or 1 for each class), real (numbers), dense (a "
                          "class for each position), none", "classes", ("classes", "several", "real", "dense", "none"))]), *_data_set(True)),
    Part("from-idx", "Makes a data set of IDX files, the format of MNIST, plain or gzip.",
         "FILE|FOLDER [--labels FILE] -o FILE [flags]",
         ("Files", [Flag("file", "FILE|FOLDER", "images, or a folder with the four files of MNIST"), *_LABELS]), *_data_set(True)),
    Part("from-text", "Makes a data set of texts: the first tokens of each text, padded with 0.", "FILE|FOLDER -o FILE [flags]",
         ("Texts", [Flag("file", "FILE|FOLDER", "a text on each line, plain or gzip; a CSV file with --text; or a folder with a folder of "
                         ".txt files for each class"),
                    Flag("labels", "FILE", "a label, number or text, on each line"), *_LABELS[1:],
                    Flag("text", "COLUMN", "column of texts in a CSV file"), Flag("label", "COLUMN", "column of labels in a CSV file"),
                    Flag("delimiter", "MARK", "mark between fields of a CSV file: a character, tab or auto", "auto"),
                    Flag("length", "TOKENS", "tokens of a sample. Longer texts are cut (default with --like: as the data set)", "128",
                         _LENGTH),
                    Flag("tokens", "NAME", "bytes (ids: byte + 1, 0 pads), words (0 pads, 1 is an unknown word), or characters with "
                         "--windows (default: bytes, or characters with --windows)", allowed=("bytes", "words", "characters")),
                    Flag("vocabulary", "WORDS", "number of words in the vocabulary: the most frequent of the training texts", "20000",
                         (3, 1 << 24)),
                    Flag("tokenizer", "FILE", "a tokenizer.json of the package tokenizers")]),
         ("One text, for networks that predict the next token",
          [Flag("windows", "TOKENS", "tokens of a window. FILE is one text that is cut into windows. y is the next token of each "
                "token. The last tenth, or --test of it, is the group test", allowed=_LENGTH),
           Flag("stride", "TOKENS", "distance between training windows (default: --windows)", allowed=_LENGTH)]), *_data_set(False)),
)}
