"""Makes data sets of images, arrays, tables and texts: the parts of `fakequant dataset`, as functions.

    from fakequant import data
    path, report = data.from_images("pictures", "pictures.h5", size=32, val=0.1)

Keyword arguments are the flags of the command, with `_` instead of `-`; a flag without a value is True, and a list replaces a text with
commas. Each function returns (output, report). The report is the dict that `fakequant dataset PART --json` prints: groups with their
numbers of samples, shape, dtype, classes, notes and more.

Functions raise `DataError` for bad arguments and files, `MissingPackage` if a package is not installed, and `SystemFailure` if the output
cannot be written. An error leaves the output unchanged. Required packages: numpy and h5py, Pillow for images, pyarrow for Parquet, and
tokenizers for tokenizer.json.
"""
from .common import DataError as DataError
from .common import MissingPackage as MissingPackage
from .common import SystemFailure as SystemFailure


def _convert(part, source, output, arguments):
    from .conversion import convert
    from .flags import PARTS
    values = {PARTS[part].argument: [str(source)], "output": [str(output)]}
    for name, value in arguments.items():
        if value is True:
            values[name.replace("_", "-")] = True
        elif value is not None and value is not False:
            text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            values[name.replace("_", "-")] = [text]
    try:
        return output, convert(part, values)[1]
    except (DataError, SystemFailure) as error:
        raise type(error)(f"[{part.replace('-', '_')}] {error}") from None


def from_images(folder, output, **flags):
    """Makes a data set of a folder of images: samples [C, H, W], u8 or (`bits=16`) f32, and the classes of their folders."""
    return _convert("from-images", folder, output, flags)


def from_npy(file, output, **flags):
    """Makes a data set of NumPy arrays [N, ..], .npy or .npz. Images and signals are stored with the channels first."""
    return _convert("from-npy", file, output, flags)


def from_idx(file, output, **flags):
    """Makes a data set of IDX files, the format of MNIST, plain or gzip. `file` may be the folder of MNIST."""
    return _convert("from-idx", file, output, flags)


def from_csv(file, output, **flags):
    """Makes a data set of a CSV file: samples f32 [columns], and the labels in the column `label`."""
    return _convert("from-csv", file, output, flags)


def from_parquet(file, output, **flags):
    """Makes a data set of a Parquet file: a table as in `from_csv`, or the images in the column `image`."""
    return _convert("from-parquet", file, output, flags)


def from_text(file, output, **flags):
    """Makes a data set of texts, token ids i32 [length]. `windows=length` cuts one text into windows, whose labels are the next tokens."""
    return _convert("from-text", file, output, flags)
