"""Makes data sets of images, arrays, tables and texts: the parts of `fakequant dataset`, as functions.

    from fakequant import data
    path, report = data.from_images("pictures", "pictures.h5", size=32, val=0.1)

Keyword arguments are the flags of the command, with `_` for `-`; a toggle is True. Functions return (output, report) and raise
`DataError` for bad arguments and files. Required packages: numpy and h5py, Pillow for images, pyarrow for Parquet, tokenizers
for tokenizer.json.
"""
from .common import DataError as DataError, MissingPackage as MissingPackage, SystemFailure as SystemFailure


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
    """Makes a data set of a folder of images."""
    return _convert("from-images", folder, output, flags)


def from_npy(file, output, **flags):
    """Makes a data set of NumPy arrays, .npy or .npz."""
    return _convert("from-npy", file, output, flags)


def from_idx(file, output, **flags):
    """Makes a data set of IDX files, the format of MNIST."""
    return _convert("from-idx", file, output, flags)


def from_csv(file, output, **flags):
    """Makes a data set of a CSV file."""
    return _convert("from-csv", file, output, flags)


def from_parquet(file, output, **flags):
    """Makes a data set of a Parquet file."""
    return _convert("from-parquet", file, output, flags)


def from_text(file, output, **flags):
    """Makes a data set of texts, or of windows of one text."""
    return _convert("from-text", file, output, flags)
