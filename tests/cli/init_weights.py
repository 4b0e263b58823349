"""Weights of PyTorch as safetensors: into a checkpoint, a training, a calibration; renamed, in part, and refused."""

import json
import os
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import SOURCE, fails, result, run, same_bytes  # noqa: E402

DATA = os.path.join(SOURCE, "tests", "data")
WEIGHTS, MODEL = os.path.join(DATA, "torch_network.safetensors"), os.path.join(DATA, "torch_network.json")


def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], {"F32": "f4", "I64": "i8"}[entry["dtype"]])
            .reshape(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def write(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": {"f4": "F32", "i8": "I64"}[tensor.dtype.str[1:]], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return path


predictions = read(os.path.join(DATA, "torch_network_answers.safetensors"))
weights = read(WEIGHTS)
with h5py.File("d.h5", "w") as file:
    for group in ("train", "test"):
        file[group + "/x"] = predictions["x"]
        file[group + "/y"] = np.zeros((3, 36, 7), "f4")
TASK = ["--data", "d.h5", "--loss", "mse"]

# A checkpoint of it says what PyTorch says.
run("import", WEIGHTS, "--network", MODEL, "--input-shape", "1,6,6", "-o", "float.h5")
run("predict", "float.h5", "--data", "d.h5", "-o", "said.h5")
with h5py.File("said.h5") as file:
    assert np.abs(file["logits"][:] - predictions["y"]).max() < 2e-6

# The weights are also loaded by --init: calibrated, fine-tuned and trained, also under other names.
renamed = write("renamed.safetensors", {"model." + name.replace("fc.", "head."): value for name, value in weights.items()})
with open("names.json", "w") as file:
    json.dump({"*.head.*": "*.fc.*"}, file)
run("calibrate", "float.h5", "--data", "d.h5", "--preset", "int8", "-o", "by_hand.h5")
printed = run("calibrate", "--model", MODEL, "--init", renamed, "--map", "names.json", *TASK, "--preset", "int8", "-o", "q.h5")
assert f"{len(weights) - 2} tensors of renamed.safetensors" in printed.stdout, printed.stdout
for name in ("by_hand", "q"):
    run("predict", name + ".h5", "--data", "d.h5", "-o", name + ".said.h5")
assert same_bytes("by_hand.said.h5", "q.said.h5")
run("qat", "--model", MODEL, "--init", WEIGHTS, *TASK, "--preset", "int8", "--epochs", "1", "--batch", "2", "-o", "qat.h5")
run("qat", "--model", MODEL, "--init", WEIGHTS, *TASK, "--preset", "int8", "--epochs", "2", "--batch", "2", "-o", "qat.h5", "--resume")
TRAIN = ["train", "--model", MODEL, *TASK, "--epochs", "1", "--batch", "2", "-o"]
loss = result(*TRAIN, "t.h5", "--init", WEIGHTS, "--lr", "0")["loss"]
assert loss != result(*TRAIN, "random.h5", "--lr", "0")["loss"]

# In a recipe, where all phases are checked before the first one runs.
with open("recipe.json", "w") as file:
    json.dump({"model": MODEL, "data": "d.h5", "output": "out", "phases": [
        {"command": "train", "init": "renamed.safetensors", "map": "names.json", "loss": "mse", "epochs": 1, "batch": 2,
         "output": "a.h5"},
        {"command": "calibrate", "checkpoint": "a.h5", "output": "b.h5"},
        {"command": "calibrate", "init": WEIGHTS, "loss": "mse", "output": "c.h5"}]}, file)
run("run", "recipe.json")

# In part: a head of other sizes begins at random.
part = write("part.safetensors", {name: value for name, value in weights.items() if not name.startswith("fc.")})
expected = run(*TRAIN, "part.h5", "--init", part, "--init-partial").stdout
assert "at random: fc.weight, fc.bias" in expected, expected

# Files that do not fit are rejected before anything is written.
odd = dict(weights)
odd["fc.wieght"] = odd.pop("fc.weight")
odd["conv1.bias"] = np.zeros(3, "f4")
fails(2, ["missing in it: fc.weight (nearest: fc.wieght", "fc.wieght (nearest: fc.weight", "conv1.bias is [3], the model's is [4]"],
      *TRAIN, "no.h5", "--init", write("odd.safetensors", odd))
bad = dict(weights)
bad["fc.bias"] = np.full(7, np.nan, "f4")
fails(2, "fc.bias is nan at element 0", *TRAIN, "no.h5", "--init", write("nan.safetensors", bad))
for name, content in (("w.pt", b"PK\3\4"), ("w.bin", b"\x80\2}q")):
    with open(name, "wb") as file:
        file.write(content)
    fails(2, ["torch.load", "save_file"], *TRAIN, "no.h5", "--init", name)
fails(2, "not_there", *TRAIN, "no.h5", "--init", "not_there.safetensors")
fails(2, ["--map", "--init"], *TRAIN, "no.h5", "--map", "names.json")
fails(2, "renames fit no tensor", *TRAIN, "no.h5", "--init", WEIGHTS, "--map", "names.json")
with open("wrong.json", "w") as file:
    file.write('{\n  "a": 3\n}')
fails(2, "wrong.json:2", *TRAIN, "no.h5", "--init", WEIGHTS, "--map", "wrong.json")
fails(2, "leave out --model and --init", "calibrate", "float.h5", "--model", MODEL, "--init", WEIGHTS, *TASK, "-o", "no.h5")
fails(2, "use --init FILE too", "calibrate", "--model", MODEL, *TASK, "-o", "no.h5")
fails(2, "use --model", "qat", "--init", WEIGHTS, *TASK, "--preset", "int8", "-o", "no.h5")
fails(2, "--init with --model", "train", "--checkpoint", "float.h5", "--init", WEIGHTS, *TASK, "-o", "no.h5")
fails(2, "use --network", "import", WEIGHTS, "-o", "no.h5")
print("init_weights: ok")
