"""Compares an exported file in ONNX Runtime with its model."""
import os

import numpy as np

from . import _fakequant
from .engines.onnx_session import TWO_BYTES, keeping_numbers, open_session, session_inputs


def _formats(network):
    """Returns (bits, whether each input sets the range, whether it quantizes a weight) of the enabled quantizers."""
    rows = [(row["descriptor"].dict(), row["weight"]) for row in network.quantizers() if row["enabled"]]
    return [(fields.get("num_bits", 8), fields.get("dynamic", False), weight) for fields, weight in rows]


def _file_error(path, what):
    error = _fakequant.FileError(f"[verify] {path} {what}")
    error.path, error.dataset = str(path), ""
    return error


def _settings(formats):
    """Returns the optimisation level and the session options of `fakequant verify`, which keep the numbers."""
    activations = [bits for bits, _, weight in formats if not weight]
    level, entries = keeping_numbers(any(not isinstance(bits, int) for bits, _, _ in formats), 4 in activations, not activations)
    return level, entries | TWO_BYTES


class Session:
    """An ONNX Runtime session on the CPU, with the options that keep the numbers of `network`."""

    def __init__(self, path, network):
        if not os.path.isfile(path):
            raise _file_error(path, "is not a file: write it with export")
        formats = _formats(network)
        self.batch = 1 if any(dynamic and not weight for _, dynamic, weight in formats) else None  # each sample sets its range
        try:
            self._session = open_session(path, *_settings(formats))
        except ImportError:
            raise _fakequant.ArgumentError("[verify] this Python has no onnxruntime: pip install onnxruntime") from None
        except Exception as error:  # some of its classes derive from Exception only
            raise _file_error(path, f"cannot be loaded by ONNX Runtime: {' '.join(str(error).split())}") from error
        self._path = path

    def outputs(self, rows):
        """Returns the outputs for samples. A row of a model of several inputs has the elements of all inputs."""
        try:
            name = self._session.get_outputs()[0].name
            return self._session.run([name], session_inputs(self._session, rows))[0]
        except Exception as error:
            raise _file_error(self._path, f"cannot run these samples: {' '.join(str(error).split())}") from error


def compare(network, path, batches):
    """Compares outputs. Returns {"outputs", "different", "flips", "max"}: the number of outputs, of outputs with other bits in the file, of
    samples with another largest output, and the largest difference. `batches(size)` yields arrays of at most `size` samples."""
    session, found = Session(path, network), {"outputs": 0, "different": 0, "flips": 0, "max": 0.0}
    for rows in batches(session.batch):
        rows = np.ascontiguousarray(rows, np.float32 if rows.dtype.kind == "f" else np.int64)
        own = network.predict(rows, batch_size=len(rows))
        theirs = session.outputs(rows)
        if own.shape != theirs.shape:
            raise _file_error(path, f"has outputs {list(theirs.shape)}, and the model {list(own.shape)}: it is the file of another model")
        found["outputs"] += own.size
        found["different"] += int((own.view(np.int32) != theirs.view(np.int32)).sum())
        found["flips"] += int((own.reshape(len(own), -1).argmax(1) != theirs.reshape(len(own), -1).argmax(1)).sum())
        found["max"] = max(found["max"], float(np.abs(own - theirs).max(initial=0)))
    return found


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
