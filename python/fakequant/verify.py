"""Compares exported files in ONNX Runtime with their models."""
import os

import numpy as np

from . import _fakequant
from .engines.onnx_session import TWO_BYTES, converted, keeping_numbers, open_session, session_inputs


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
    return level, entries | TWO_BYTES


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
    """Compares each call of some parts in a `with` block with the file of the part. `folder` gets the files.

    `outputs` is the number of outputs of parts. `different` of them differ by more than 1e-6 of the largest output, which rounding of the
    engine's floats after the codes does not explain.
    """

    def __init__(self, parts, folder):
        self._parts, self._folder, self._sessions = [part for part in parts if part.states], folder, {}
        self.outputs = self.different = 0

    def __enter__(self):
        self._hooks = [part.register_forward_hook(self._compare) for part in self._parts]
        return self

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()

    def _compare(self, part, inputs, y):
        inputs = part.file_inputs(inputs)
        session, reads_rows = self._session(part, [list(x.shape) for x in inputs])
        arrays = [(x.reshape(-1, x.shape[-1]) if reads_rows else x).detach().cpu().numpy() for x in inputs]
        is_joined = len(session.inputs) > len(arrays)  # rows of a model of several inputs
        theirs = session.outputs(arrays[0]) if is_joined else session.run(
            {own.name: converted(own, x) for own, x in zip(session.inputs, arrays)})[0]
        difference = (y.detach() - y.new_tensor(theirs).reshape(y.shape)).abs()  # in the type of torch, which may have 16 bits
        self.outputs += y.numel()
        self.different += int((~(difference <= 1e-6 * np.abs(theirs).max(initial=0))).sum())

    def _session(self, part, shapes):
        """Returns (Session of the file of a part for inputs of these shapes, whether it reads rows)."""
        key = part.number, *(tuple(shape[1:]) for shape in shapes)
        if key not in self._sessions:
            own, reads_rows = part.for_file(shapes)
            draft = os.path.join(self._folder, f"{len(self._sessions)}.onnx")
            own.share().export(draft)
            self._sessions[key] = Session(draft, own.network), reads_rows
        return self._sessions[key]
