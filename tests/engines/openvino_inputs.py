"""openvino_inputs.py without_ties DATA OUT: the data set in another scale, so that no pixel lies between two codes.
openvino_inputs.py inputs FILE QUANTIZER DATA: codes of the network's input in OpenVINO, and by the formula of docs/deploy.md."""

import os
import sys
import types

import h5py
import numpy as np

SOURCE = os.environ["FAKEQUANT_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "python"))


def remove_ties(data, out):
    with h5py.File(data) as source, h5py.File(out, "w") as made:
        for part in source:
            source.copy(part, made)
            made[part]["x"].attrs["scale"] = np.float32(0.98 / 16)
        for name, value in source.attrs.items():
            made.attrs[name] = value


def inputs(file, quantizer, data):
    from fakequant.engines.onnx_source import Source
    from fakequant.engines.openvino import OpenVino
    from onnx import numpy_helper

    source = Source(file)
    predictions = types.SimpleNamespace(names=[quantizer], is_constant=lambda name: False)
    engine = OpenVino(file, source, predictions, 0)
    scale = numpy_helper.to_array(source.constants[source.quantizer(quantizer).input[1]])
    times = np.float32(255) / (np.float32(255) * scale)

    def different(x):
        codes = engine.codes(x)[0][quantizer].reshape(x.shape)
        return int((codes != np.clip(np.rint(x * times), 0, 255)).sum())

    with h5py.File(data) as digits:
        pixels = digits["test/x"][:].astype("f4") * digits["test/x"].attrs["scale"]
    ties = ((np.arange(256) + 0.5).astype("f4") * scale).view("i4")
    near = (ties[None, :] + np.arange(-128, 128, dtype="i4")[:, None]).view("f4").reshape(-1, 1, 8, 8)
    print(f"{different(pixels)} of {pixels.size:,} codes, {different(near)} of {near.size:,} near ties differ from the formula")


if __name__ == "__main__":
    {"without_ties": remove_ties, "inputs": inputs}[sys.argv[1]](*sys.argv[2:])
