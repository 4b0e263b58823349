"""Networks of many equal linear layers, as fakequant trains and deploys them."""
import json
import os
import struct
import subprocess

import h5py
import numpy as np

WIDTH = 64  # of every layer: the digits are 64 pixels
SAMPLES = 360  # of the test group


class Depth:
    """A network of `depth` linear layers with ReLU between them, in its own folder. Weights are initialised by He et al.
    (arXiv:1502.01852), so that the size of values does not change with depth."""

    def __init__(self, command, folder, layers, data):
        self.command, self.folder, self.layers, self.data = command, folder, layers, data
        os.makedirs(folder, exist_ok=True)
        random = np.random.default_rng(layers)
        self.weights = {}
        nodes = [{"name": "flat", "type": "flatten"}]
        for i in range(layers):
            last = i == layers - 1
            rows = 10 if last else WIDTH
            self.weights[f"fc{i}.weight"] = (random.standard_normal((rows, WIDTH)) * np.sqrt(2 / WIDTH)).astype(np.float32)
            self.weights[f"fc{i}.bias"] = (random.standard_normal(rows) * 0.05).astype(np.float32)
            nodes.append({"name": f"fc{i}", "type": "linear", "options": {"out_features": "classes" if last else WIDTH}})
            if not last:
                nodes.append({"name": f"relu{i}", "type": "relu"})
        with open(self.path("model.json"), "w") as file:
            json.dump({"nodes": nodes}, file)
        self.save(self.path("weights.safetensors"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, path):
        header, at = {}, 0
        for name, values in self.weights.items():
            header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
            at += values.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for values in self.weights.values():
                file.write(values.tobytes())

    def run(self, *words):
        done = subprocess.run([self.command, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: {done.stderr or done.stdout}")

    def calibrated(self, name, **config):
        """A checkpoint, calibrated on the training group."""
        path, config_path = self.path(name + ".h5"), self.path(name + ".json")
        with open(config_path, "w") as file:
            json.dump(config, file)
        self.run("calibrate", "--model", self.path("model.json"), "--init", self.path("weights.safetensors"), "--data", self.data,
                 "--config", config_path, "--force", "-o", path)
        return path

    def exported(self, checkpoint, kind, suffix, *flags):
        path = checkpoint.removesuffix(".h5") + suffix
        self.run("export", checkpoint, "--format", kind, "--force", "-o", path, *flags)
        return path

    def forward(self, checkpoint):
        """Returns the outputs of the training forward pass for the test group."""
        path = self.path("predictions.h5")
        self.run("predict", checkpoint, "--data", self.data, "--force", "-o", path)
        with h5py.File(path) as file:
            return file["logits"][...]


def pixels(data):
    """The test group as the network sees it, [N, 1, 8, 8]."""
    with h5py.File(data) as file:
        x = file["test/x"]
        scale = np.float32(x.attrs.get("scale", 1))
        values = x[...].astype(np.float32) * scale
        return values if values.ndim == 4 else values.reshape(len(values), -1)


def drift(own, engine):
    """The mean of squared differences over the mean square of the engine's outputs."""
    engine = engine.astype(np.float64)
    return float(np.mean((own - engine) ** 2) / np.mean(engine ** 2))
