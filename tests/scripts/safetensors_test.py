"""Reads our safetensors files with the reference package: values are equal bit for bit, and the package writes equal bytes.

TEST_EXPORT is the program whose test writes a checkpoint of each format.
"""

import json
import os
import struct
import subprocess
import sys

try:
    import h5py
    import ml_dtypes
    import numpy as np
    import safetensors
    from safetensors.numpy import save
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TYPES = {"F32": np.float32, "I8": np.int8, "U8": np.uint8, "I32": np.int32, "F8_E4M3": ml_dtypes.float8_e4m3fn}
FORMATS = ("W8A8_SQ_PER_CHANNEL", "W8A16", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "W4A16_AWQ", "MXFP8")
SHAPES = {"fc1": (32, 128), "fc2": (6, 32)}


def read(path):
    """Tensors by name; the package checks the header, numpy alone has no FP8."""
    with open(path, "rb") as file:
        tensors = dict(safetensors.deserialize(file.read()))
    return {name: np.frombuffer(t["data"], TYPES[t["dtype"]]).reshape(t["shape"]) for name, t in tensors.items()}


def nibbles(packed, axis):
    """Along that axis, the low one first."""
    pair = np.stack([packed & 15, packed >> 4], axis + 1)
    shape = list(packed.shape)
    shape[axis] *= 2
    return pair.reshape(shape)


def weight(name, layer, tensors):
    codes, scale = tensors[layer + ".weight"], tensors[layer + ".weight_scale"]
    if name == "NVFP4":
        codes = nibbles(codes, 1).view(ml_dtypes.float4_e2m1fn)
        scale = scale.astype(np.float32) * tensors[layer + ".weight_scale_2"]
    if name == "W4A16_AWQ":
        codes = (nibbles(codes, 0) ^ 8).astype(np.int8) - 8
    if name == "MXFP8":
        scale = np.exp2(scale.astype(np.float64) - 127).astype(np.float32)
    assert codes.shape == SHAPES[layer], (name, codes.shape)
    if scale.ndim == 2:
        scale = np.repeat(scale, codes.shape[1] // scale.shape[1], 1)
    if scale.ndim == 1:
        scale = scale[:, None]
    return codes.astype(np.float32) * scale


def written_again(path):
    """The bytes of the file, and the bytes that the package writes for the same tensors."""
    with open(path, "rb") as file:
        contents = file.read()
    length = struct.unpack("<Q", contents[:8])[0]
    tensors = read(path)
    shuffled = {name: tensors[name] for name in reversed(sorted(tensors))}
    return contents, save(shuffled, json.loads(contents[8 : 8 + length])["__metadata__"])


folder = os.getcwd()
subprocess.run([os.environ["TEST_EXPORT"], "--gtest_filter=Modelopt.WritesACheckpointAndItsConfig"], check=True,
               stdout=subprocess.DEVNULL, env=dict(os.environ, FAKEQUANT_SAFETENSORS_FOLDER=folder))
for name in FORMATS:
    path = os.path.join(folder, name, "model.safetensors")
    tensors = read(path)
    with h5py.File(os.path.join(folder, name, "values.h5")) as values:
        for layer in SHAPES:
            ours, theirs = values[layer][()], weight(name, layer, tensors)
            assert (ours.view(np.int32) == theirs.view(np.int32)).all(), (name, layer)
    ours, theirs = written_again(path)
    assert ours == theirs, f"{name}: the package writes other bytes"
    with open(os.path.join(folder, name, "hf_quant_config.json")) as file:
        assert json.load(file)["quantization"]["quant_algo"] == name
print(f"safetensors: {len(FORMATS)} formats read to the bit by safetensors {safetensors.__version__}")
