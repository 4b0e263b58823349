"""Weights on the lattice of Q4_0 or Q8_0 as bf16 safetensors in, GGUF out: no code changes, also after training that moves nothing."""

import json
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, run  # noqa: E402

RANDOM = np.random.default_rng(5)
LAYERS = {"hidden": (96, 64), "out": (10, 96)}
GGUF_TYPES = {2: ("Q4_0", 18), 8: ("Q8_0", 34)}
STRINGS, ARRAYS = 8, 9


def bf16(values):
    """f32 numbers rounded to bfloat16, half to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def lattice(shape, codes):
    """Codes, and their weights by a bf16 step for each block of 32, rounded to bf16."""
    k = RANDOM.choice(codes, size=shape)
    k[:, ::32] = codes[np.abs(codes).argmax()]  # else a block of few codes may have multiples of them
    steps = bf16(RANDOM.uniform(0.002, 0.05, size=(shape[0], shape[1] // 32)))
    return k, steps, bf16(k * np.repeat(steps, 32, axis=1))


def save_bf16(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        raw = (np.ascontiguousarray(value, dtype=np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Gguf:
    """Blocks of a GGUF file as codes and steps."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        self.at = 0
        magic, version, tensors, keys = self.take("<4sIQQ")
        assert magic == b"GGUF" and version == 3
        for _ in range(keys):
            self.text()
            self.value(*self.take("<I"))
        self.places = {}
        for _ in range(tensors):
            name, (rank,) = self.text(), self.take("<I")
            shape = self.take(f"<{rank}Q")[::-1]
            self.places[name] = (shape, *self.take("<IQ"))
        self.at += -self.at % 32

    def take(self, form):
        out = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return out

    def text(self):
        (length,) = self.take("<Q")
        return self.take(f"<{length}s")[0].decode()

    def value(self, kind):
        if kind == STRINGS:
            return self.text()
        if kind != ARRAYS:
            return self.take("<" + self.SCALARS[kind])[0]
        inner, count = self.take("<IQ")
        return [self.value(inner) for _ in range(count)]

    def blocks(self, name):
        shape, kind, offset = self.places[name]
        label, size = GGUF_TYPES[kind]
        count = shape[0] * shape[1] // 32
        raw = np.frombuffer(self.bytes, np.uint8, count * size, self.at + offset).reshape(count, size)
        steps = raw[:, :2].copy().view("<f2").astype(np.float32)
        if label == "Q4_0":
            codes = np.concatenate([raw[:, 2:] & 15, raw[:, 2:] >> 4], axis=1).astype(np.int64) - 8
        else:
            codes = raw[:, 2:].copy().view(np.int8).astype(np.int64)
        return codes.reshape(shape), steps.reshape(shape[0], -1)


with open("net.json", "w", encoding="utf-8") as file:
    json.dump({"nodes": [{"name": "flat", "type": "flatten"}, {"name": "hidden", "type": "linear", "options": {"out_features": 96}},
                         {"name": "act", "type": "relu"}, {"name": "out", "type": "linear", "options": {"out_features": "classes"}}]}, file)

FOUR, EIGHT = np.arange(-8, 8), 2 ** np.arange(7)
for preset, codes in (("q4_0", FOUR), ("q4_0", FOUR[1:]), ("q4_0", np.arange(-5, 6)), ("q8_0", np.concatenate([-EIGHT, [0], EIGHT]))):
    wanted, tensors = {}, {}
    for name, shape in LAYERS.items():
        wanted[name] = lattice(shape, codes)
        tensors |= {f"{name}.weight": wanted[name][2], f"{name}.bias": np.zeros(shape[0])}
    save_bf16("model.safetensors", tensors)
    run("import", "model.safetensors", "--network", "net.json", "--input-shape", "1,8,8", "--classes", "10", "-o", "float.h5", "--force")
    run("calibrate", "float.h5", "--data", DIGITS, "--preset", preset, "-o", "calibrated.h5", "--force")
    run("qat", "float.h5", "--data", DIGITS, "--preset", preset, "--epochs", "1", "--lr", "1e-12", "-o", "trained.h5", "--force")
    for checkpoint in ("calibrated.h5", "trained.h5"):
        run("export", checkpoint, "--format", "gguf", "-o", "model.gguf", "--force")
        found = Gguf("model.gguf")
        for name, (k, steps, _) in wanted.items():
            own, d = found.blocks(f"{name}.weight")
            assert np.array_equal(own, k), (preset, checkpoint, name, int((own != k).sum()), "codes changed")
            error = np.abs(d / steps - 1).max()
            assert error < 2**-8, (preset, checkpoint, name, error)  # of a bf16 number

# Steps that float16 loses are named when the network is quantized and when the file is written.
tiny = {name: value * (1e-8 if name == "hidden.weight" else 1) for name, value in tensors.items()}
save_bf16("model.safetensors", tiny)
run("import", "model.safetensors", "--network", "net.json", "--input-shape", "1,8,8", "--classes", "10", "-o", "float.h5", "--force")
warned = run("calibrate", "float.h5", "--data", DIGITS, "--preset", "q4_0", "-o", "tiny.h5").stderr
assert "'hidden.weight_quantizer': 192 of 192 blocks" in warned, warned
warned = run("export", "tiny.h5", "--format", "gguf", "-o", "tiny.gguf").stderr
assert "'hidden': 192 of 192 blocks" in warned, warned
