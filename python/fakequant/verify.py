"""Compares exported files in ONNX Runtime with their models."""
import os

import numpy as np

from . import _fakequant
from .engines.onnx_session import TWO_BYTES, count_different, keeping_numbers, open_session, session_inputs
from .engines.processor import has_vnni


def _formats(network):
    """Returns (bits, whether each input sets the range, whether it quantizes a weight) of the enabled quantizers."""
    rows = [(row["descriptor"].dict(), row["weight"]) for row in network.quantizers() if row["enabled"]]
    return [(fields.get("num_bits", 8), fields.get("dynamic", False), weight) for fields, weight in rows]


def file_error(function, path, what):
    """Returns a FileError. `function` is the name for the message."""
    error = _fakequant.FileError(f"[{function}] {path} {what}")
    error.path, error.dataset = str(path), ""
    return error


def require_folder(function, path):
    """Returns the folder of a path. Raises FileError if it does not exist."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise file_error(function, path, f"cannot be written: there is no folder {folder}. Create it")
    return folder


def _settings(formats):
    """Returns the optimisation level and the session options of `fakequant verify`, which keep the numbers."""
    activations = [bits for bits, _, weight in formats if not weight]
    level, entries = keeping_numbers(any(not isinstance(bits, int) for bits, _, _ in formats), 4 in activations, not activations)
    return level, entries | (TWO_BYTES if has_vnni() is False else {})


class Session:
    """An ONNX Runtime session on the CPU, with the options that keep the numbers of `networks`."""

    def __init__(self, path, *networks):
        if not os.path.isfile(path):
            raise file_error("verify", path, "is not a file: write it with export")
        formats = [found for network in networks for found in _formats(network)]
        self.batch = 1 if any(dynamic and not weight for _, dynamic, weight in formats) else None  # each sample sets its range
        try:
            self._session = open_session(path, *_settings(formats))
        except ImportError:
            raise _fakequant.ArgumentError("[verify] this Python has no onnxruntime: pip install onnxruntime") from None
        except Exception as error:  # some of its classes derive from Exception only
            raise file_error("verify", path, f"cannot be loaded by ONNX Runtime: {' '.join(str(error).split())}") from error
        self._path = path

    @property
    def inputs(self):
        """The inputs of the file, with `name`, `type` and `shape`."""
        return self._session.get_inputs()

    @property
    def output_names(self):
        return [output.name for output in self._session.get_outputs()]

    def outputs(self, rows):
        """Returns the outputs for samples. A row of a model of several inputs has the elements of all inputs."""
        return self.run(session_inputs(self._session, rows), self.output_names[:1])[0]

    def run(self, inputs, names=None):
        """Returns the outputs `names`, or all, for {name of an input: array}."""
        try:
            return self._session.run(names, inputs)
        except Exception as error:
            raise file_error("verify", self._path, f"cannot run these samples: {' '.join(str(error).split())}") from error


def compare(network, path, batches):
    """Compares outputs. Returns {"outputs", "different", "flips", "max"}: the number of outputs, of outputs with other bits in the file, of
    samples with another largest output, and the largest difference. `batches(size)` yields arrays of at most `size` samples."""
    session, found = Session(path, network), {"outputs": 0, "different": 0, "flips": 0, "max": 0.0}
    for rows in batches(session.batch):
        rows = np.ascontiguousarray(rows, np.float32 if rows.dtype.kind == "f" else np.int64)
        own = network.predict(rows, batch_size=len(rows))
        theirs = session.outputs(rows)
        add_differences(found, own, theirs, path)
    return found


def add_differences(found, own, theirs, path):
    """Adds the differences of two arrays [N, ..] to the counts of `compare`. Raises FileError if their shapes differ."""
    if own.shape != theirs.shape:
        raise file_error("verify", path, f"has outputs {list(theirs.shape)}, and the model {list(own.shape)}: it is the file of another model, "
                         "or the number of outputs depends on values")
    different = own.view(np.int32) != theirs.view(np.int32) if own.dtype == theirs.dtype == np.float32 else own != theirs
    found["outputs"] += own.size
    found["different"] += int(different.sum())
    if own.size and own.dtype.kind == "f":
        found["flips"] += int((own.reshape(len(own), -1).argmax(1) != theirs.reshape(len(own), -1).argmax(1)).sum()) if own.ndim else 0
        found["max"] = max(found["max"], float(np.abs(own - theirs)[different].max(initial=0)))


def verify(self, path, data, samples=0, batch_size=256):
    """Compares the file of `export` in ONNX Runtime with this model. Returns {"outputs", "different", "flips", "max"}: the number of outputs,
    of outputs with other bits, of samples with another largest output, and the largest difference.

    `data` is a data set, (x, y) or x; `samples` limits it, 0 for all. Raises FileError for a file that does not fit, and ArgumentError without
    onnxruntime. `fakequant verify --checkpoint` runs other engines and compares codes between layers.
    """
    data = _fakequant.data_of(data)
    if samples:
        data = _fakequant.some_samples(data, samples)

    def batches(most):
        step = most or batch_size
        for begin in range(0, len(data), step):
            yield data.read(range(begin, min(begin + step, len(data))))[0]
    return compare(self, path, batches)


class PartCheck:
    """Compares the codes in some parts of a model with the codes that ONNX Runtime computes in the file of the part. Both get the inputs of
    the part in torch. In a `with` block each call of a part is compared. `folder` gets the files.

    `codes` is the number of codes of activations that the engine computes, `different` of them differ.
    """

    def __init__(self, parts, folder):
        self._parts, self._folder, self._files = [part for part in parts if part.states], folder, {}
        self.codes = self.different = 0

    def __enter__(self):
        self._hooks = [part.register_forward_hook(lambda part, inputs, y: self.compare(part, inputs)) for part in self._parts]
        return self

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()

    def compare(self, part, inputs):
        """Adds the codes of a call of a part."""
        arrays = [x.detach().cpu().numpy().astype(np.float32, copy=False) for x in part.file_inputs(inputs)]  # ids too
        key = part.number, *(x.shape[1:] for x in arrays)
        if key not in self._files:
            own, reads_rows = part.for_file([list(x.shape) for x in arrays])
            folder = os.path.join(self._folder, str(len(self._files)))
            os.mkdir(folder)
            self._files[key] = _PartFile(own, folder), reads_rows
        file, reads_rows = self._files[key]
        x = arrays[0] if len(arrays) == 1 else np.concatenate([x.reshape(len(x), -1) for x in arrays], 1)
        codes, different = file.compare(np.ascontiguousarray(x.reshape(-1, x.shape[-1]) if reads_rows else x))
        self.codes += codes
        self.different += different


class _PartFile:
    """The exported file of a part in ONNX Runtime."""

    def __init__(self, part, folder):
        self._part, self._folder, self._path = part, folder, os.path.join(folder, "part.onnx")
        self._engine = None
        part.share().export(self._path)

    def compare(self, x):
        """Returns (number of codes that the engine computes for some samples, how many of them differ)."""
        codes = _Codes(self._part.share(), x)
        if not codes.names:
            return 0, 0
        self._engine = self._engine or self._open(codes)
        found = [(own.size, count_different(own, theirs))
                 for _, _, own, theirs in self._engine.compared_codes(codes, None, self._engine.codes(x)[0])]
        return tuple(map(sum, zip(*found))) if found else (0, 0)

    def _open(self, codes):
        try:
            from .engines.onnx_engine import Engine
            from .engines.onnx_source import Source
        except ImportError as error:
            raise _fakequant.ArgumentError(f"[verify] this Python has no {error.name}: pip install onnx") from None
        return Engine(Source(self._path), self._path, codes, *_settings(_formats(self._part.network)), 0, self._folder)


class _Codes:
    """Codes of the activations of a batch, in the form that `engines` reads."""

    def __init__(self, network, x):
        self._codes, self._axes = network.activation_codes(x)
        self.names = list(self._codes)

    def codes(self, name, rows):
        return self._codes[name]

    def is_constant(self, name):
        return self._axes.get(name, 0) is None
