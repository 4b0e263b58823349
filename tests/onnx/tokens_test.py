"""A network of tokens: integers from the data set to the file."""

import json

import h5py
import numpy as np
import onnx
import onnxruntime
from lib import fails, result, run, session_options

TOKENS, WORDS, CLASSES, COUNT = 12, 50, 4, 400
MODEL = [{"name": "words", "type": "embedding", "options": {"vocabulary": WORDS, "width": 16}},
         {"name": "mix", "type": "linear", "options": {"out_features": 24}}, {"type": "relu"}, {"type": "flatten"},
         {"name": "head", "type": "linear", "options": {"out_features": "classes"}}]

random = np.random.default_rng(3)
ids = random.integers(0, WORDS, (COUNT, TOKENS))
labels = (ids % CLASSES).sum(1) % CLASSES


def make_data(dtype):
    name = f"{np.dtype(dtype).name}.h5"
    with h5py.File(name, "w") as file:
        for split, rows in [("train", slice(None, 300)), ("test", slice(300, None))]:
            file.create_group(split)
            file[split]["x"], file[split]["y"] = ids[rows].astype(dtype), labels[rows].astype(np.int64)
    return name


def compared(checkpoint, model, data, *flags):
    lines = run("verify", model, "--checkpoint", checkpoint, "--data", data, "--json", *flags).stdout
    return json.loads(lines.splitlines()[-1])


with open("tokens.json", "w") as file:
    json.dump(MODEL, file)
data = make_data(np.int64)
result("train", "--model", "tokens.json", "--data", data, "--epochs", 2, "--seed", 5, "-o", "float.h5")
result("calibrate", "float.h5", "--data", data, "--preset", "int8", "-o", "int8.h5")
result("qat", "int8.h5", "--data", data, "--epochs", 1, "-o", "qat.h5")
result("evaluate", "qat.h5", "--data", data)
result("export", "qat.h5", "--format", "onnx", "-o", "int8.onnx")

model = onnx.load("int8.onnx")
given = model.graph.input[0].type.tensor_type
assert given.elem_type == onnx.TensorProto.INT64 and given.shape.dim[1].dim_value == TOKENS, given
first = model.graph.node[0]
assert first.op_type == "Gather" and first.input[1] == "input", first
assert "Cast" not in {node.op_type for node in model.graph.node}

# Ids of every type are the same ids.
predictions = []
for dtype in [np.int64, np.int32, np.uint32, np.int16, np.uint16, np.uint8, np.int8]:
    data = make_data(dtype)
    found = compared("qat.h5", "int8.onnx", data)
    assert found["codes"] > 0 and found["level"] == "all" and found["samples"] == 100, found
    for key in ["codes_different", "logit_bits_different", "alone_logit_bits_different", "flips", "not_in_file"]:
        assert not found[key], (dtype, key, found)
    result("predict", "qat.h5", "--data", data, "-o", "answers.h5", "--codes")
    with h5py.File("answers.h5") as file:
        predictions.append(file["logits"][()])
        assert any(name.endswith("input_quantizer") for name in file["codes"]), list(file["codes"])
assert all(np.array_equal(predictions[0], other) for other in predictions)
session = onnxruntime.InferenceSession("int8.onnx", session_options(), providers=["CPUExecutionProvider"])
assert np.array_equal(session.run(None, {"input": ids[300:]})[0], predictions[0])

# The float network too, out and in again.
result("export", "float.h5", "--format", "onnx", "-o", "float.onnx")
assert compared("float.h5", "float.onnx", "int64.h5")["flips"] == 0
result("import", "float.onnx", "-o", "again.h5")
first, again = (result("evaluate", name, "--data", "int64.h5")["loss"] for name in ["float.h5", "again.h5"])
assert first == again, (first, again)
result("export", "again.h5", "--format", "onnx", "-o", "again.onnx")
assert onnx.load("again.onnx").graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64

# Invalid token ids are rejected with their position.
with h5py.File("beyond.h5", "w") as file:
    for split in ["train", "test"]:
        wrong = ids[:20].copy()
        wrong[3, 5] = WORDS
        file.create_group(split)
        file[split]["x"], file[split]["y"] = wrong, labels[:20]
fails(2, str(WORDS), "predict", "qat.h5", "--data", "beyond.h5", "-o", "none.h5")

# Random samples are ids of the data's range.
few = result("verify", "int8.onnx", "--checkpoint", "qat.h5", "--data", "int64.h5")
more = result("verify", "int8.onnx", "--checkpoint", "qat.h5", "--data", "int64.h5", "--random", 5)
assert more["samples"] == few["samples"] + 5 and more["same"] == few["same"] and more["answers"] == few["answers"] + 5, more
