"""Networks of several inputs that differ from sample to sample: rows of all of them, there and back."""

import json

import h5py
import numpy as np
import onnx
import onnxruntime
from lib import fails, result, run, session_options
from onnx import TensorProto, helper, numpy_helper

SAMPLES, LENGTH, WIDTH = 96, 6, 8
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
random = np.random.default_rng(5)
node, info = helper.make_node, helper.make_tensor_value_info


def weight(name, *shape):
    return numpy_helper.from_array((random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32), name)


def constant(name, value, dtype):
    return numpy_helper.from_array(np.array(value, dtype), name)


def save(path, nodes, inputs, constants):
    graph = helper.make_graph(nodes, "several", inputs, [info("y", FLOAT, ["batch", 3])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def bert():
    """Self-attention of token ids and types where a mask of int64 says."""
    nodes = [
        node("Gather", ["words", "input_ids"], ["w"]), node("Gather", ["types", "token_type_ids"], ["t"]), node("Add", ["w", "t"], ["x"]),
        *(node("MatMul", ["x", name], [name[0]]) for name in ("query", "key", "value")),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["scores"]),
        node("Unsqueeze", ["attention_mask", "axes"], ["mask3"]), node("Cast", ["mask3"], ["m"], to=FLOAT), node("Sub", ["one", "m"], ["hidden"]),
        node("Mul", ["hidden", "least"], ["bias"]), node("Add", ["scores", "bias"], ["masked"]), node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["seen"]), node("ReduceMean", ["seen", "axes"], ["mean"], keepdims=0), node("MatMul", ["mean", "head"], ["y"])]
    names = ("input_ids", "attention_mask", "token_type_ids")
    fixed = [weight("words", 20, WIDTH), weight("types", 2, WIDTH), weight("query", WIDTH, WIDTH), weight("key", WIDTH, WIDTH),
             weight("value", WIDTH, WIDTH), weight("head", WIDTH, 3), constant("one", 1, np.float32), constant("least", -10000, np.float32),
             constant("axes", [1], np.int64)]
    save("bert.onnx", nodes, [info(name, INT64, ["batch", "length"]) for name in names], fixed)
    mask = np.arange(LENGTH) < random.integers(1, LENGTH + 1, (SAMPLES, 1))
    return {"input_ids": random.integers(0, 20, (SAMPLES, LENGTH)), "attention_mask": mask.astype(np.int64),
            "token_type_ids": random.integers(0, 2, (SAMPLES, LENGTH))}


def siamese():
    """Two images of very different ranges, each through a convolution of its own, then both through one."""
    nodes = [node("Conv", ["left", "a"], ["l"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Conv", ["right", "b"], ["r"], pads=[1, 1, 1, 1], strides=[2, 2]),
             node("Relu", ["l"], ["lr"]), node("Relu", ["r"], ["rr"]), node("Concat", ["lr", "rr"], ["both"], axis=1),
             node("Conv", ["both", "c"], ["d"]), node("Relu", ["d"], ["dr"]), node("Flatten", ["dr"], ["flat"]), node("Gemm", ["flat", "head"], ["y"])]
    fixed = [weight("a", 4, 2, 3, 3), weight("b", 4, 2, 3, 3), weight("c", 6, 8, 3, 3), weight("head", 6 * 2 * 2, 3)]
    save("siamese.onnx", nodes, [info(name, FLOAT, ["batch", 2, 8, 8]) for name in ("left", "right")], fixed)
    images = random.standard_normal((2, SAMPLES, 2, 8, 8)).astype(np.float32)
    return {"left": images[0], "right": 20 * images[1]}


def table():
    """An image and a table, whose features are joined."""
    nodes = [node("Conv", ["image", "a"], ["i"], strides=[2, 2]), node("Relu", ["i"], ["ir"]), node("Flatten", ["ir"], ["flat"]),
             node("Gemm", ["table", "b"], ["t"]), node("Relu", ["t"], ["tr"]), node("Concat", ["flat", "tr"], ["all"], axis=1),
             node("Gemm", ["all", "head"], ["y"])]
    save("table.onnx", nodes, [info("image", FLOAT, ["batch", 1, 8, 8]), info("table", FLOAT, ["batch", 5])],
         [weight("a", 4, 1, 3, 3), weight("b", 5, 6), weight("head", 36 + 6, 3)])
    return {"image": random.random((SAMPLES, 1, 8, 8)).astype(np.float32), "table": random.standard_normal((SAMPLES, 5)).astype(np.float32)}


def typed():
    """A file with numbers, a mask for them, and an integer per sample. Of the last input only the batch size is used."""
    nodes = [node("Where", ["known", "table", "zero"], ["k"]), node("Gemm", ["k", "b"], ["t"]), node("Relu", ["t"], ["tr"]),
             node("Cast", ["weight"], ["w"], to=FLOAT), node("Unsqueeze", ["w", "axes"], ["w2"]), node("Mul", ["tr", "w2"], ["scaled"]),
             node("Gemm", ["scaled", "head"], ["z"]), node("Shape", ["unread"], ["sizes"]), node("Gather", ["sizes", "first"], ["n"]),
             node("Concat", ["n", "three"], ["shape"], axis=0), node("Reshape", ["z", "shape"], ["y"])]
    fixed = [weight("b", 5, 6), weight("head", 6, 3), constant("zero", 0, np.float32), constant("axes", [1], np.int64),
             constant("first", [0], np.int64), constant("three", [3], np.int64)]
    kinds = {"table": TensorProto.DOUBLE, "known": TensorProto.BOOL, "weight": TensorProto.INT32, "unread": FLOAT}
    nodes.insert(0, node("Cast", ["table"], ["numbers"], to=FLOAT))
    nodes[1].input[1] = "numbers"
    values = {"table": random.standard_normal((SAMPLES, 5)).astype(np.float32).astype(np.float64), "known": random.random((SAMPLES, 5)) < 0.7,
              "weight": random.integers(0, 4, SAMPLES).astype(np.int32), "unread": np.ones((SAMPLES, 2), np.float32)}
    save("typed.onnx", nodes, [info(name, kinds[name], ["batch", *value.shape[1:]]) for name, value in values.items()], fixed)
    return values


def signature(path):
    return [(value.name, value.type.tensor_type.elem_type, [dim.dim_value for dim in value.type.tensor_type.shape.dim])
            for value in onnx.load(path).graph.input]


def run_session(path, inputs):
    session = onnxruntime.InferenceSession(path, session_options(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def check(name, inputs, *flags, float_kernels):
    wanted = run_session(f"{name}.onnx", inputs)
    np.savez(f"{name}.npz", y=wanted.argmax(1), **inputs)
    result("dataset", "from-npy", f"{name}.npz", "--x-key", ",".join(inputs), "-o", f"{name}_data.h5", "--test", "0.25", "--seed", "1")
    with h5py.File(f"{name}_data.h5") as file:
        integers = all(array.dtype == np.int64 for array in inputs.values())
        assert file["train/x"].dtype == (np.int64 if integers else np.float32)
        assert file["train/x"].shape == (SAMPLES * 3 // 4, sum(array[0].size for array in inputs.values()))
    found = result("import", f"{name}.onnx", *flags, "-o", f"{name}.h5")
    assert [(part["name"], part["shape"]) for part in found["inputs"]] == [(key, list(array.shape[1:])) for key, array in inputs.items()], found
    np.savez(f"{name}_all.npz", x=np.concatenate([array.reshape(SAMPLES, -1) for array in inputs.values()], 1, dtype=np.float64).astype(
        np.int64 if integers else np.float32))
    result("dataset", "from-npy", f"{name}_all.npz", "--task", "none", "-o", f"{name}_all.h5", "--test", "0")
    result("predict", f"{name}.h5", "--data", f"{name}_all.h5", "--split", "train", "-o", f"{name}_predicted.h5")
    with h5py.File(f"{name}_predicted.h5") as file:
        assert np.abs(file["logits"][()] - wanted).max() <= 1e-5 * np.abs(wanted).max()
    result("export", f"{name}.h5", "--format", "onnx", "-o", f"{name}_again.onnx")
    again = run_session(f"{name}_again.onnx", inputs)
    assert np.abs(again - wanted).max() <= 1e-5 * np.abs(wanted).max()
    given = [(key, kind, [0, *inputs[key].shape[1:]]) for key, kind, _ in signature(f"{name}.onnx")]
    assert signature(f"{name}_again.onnx") == given, signature(f"{name}_again.onnx")

    data = ("--data", f"{name}_data.h5")
    result("calibrate", f"{name}.h5", *data, "--preset", "int8", "-o", f"{name}_int8.h5")
    result("qat", f"{name}_int8.h5", *data, "--epochs", "2", "--lr", "0.01", "-o", f"{name}_qat.h5")
    result("evaluate", f"{name}_qat.h5", *data)
    result("export", f"{name}_qat.h5", "--format", "onnx", "-o", f"{name}_qat.onnx")
    assert signature(f"{name}_qat.onnx") == given
    counts = result("verify", f"{name}_qat.onnx", "--checkpoint", f"{name}_qat.h5", *data,
                    *(("--tolerance", "1e-3", "--code-tolerance", "0.01") if float_kernels else ()))
    assert counts["codes"] > 0 and (float_kernels or counts["codes_different"] == counts["logit_bits_different"] == 0), counts
    return f"{name}_qat.h5"


check("bert", bert(), "--input-shape", str(LENGTH), float_kernels=True)
checkpoint = check("siamese", siamese(), float_kernels=False)
result("export", checkpoint, "--format", "scales", "-o", "siamese")
with open("siamese_scales.json") as file:
    ranges = {quantizer["name"]: quantizer.get("amax") for quantizer in json.load(file)["quantizers"]}
assert ranges["conv2d_1.input_quantizer"] > 10 * ranges["conv2d.input_quantizer"], ranges
check("table", table(), float_kernels=False)
check("typed", typed(), float_kernels=True)

text = run("import", "siamese.onnx", "-o", "again.h5").stdout
assert "2 inputs are parts of x of the data set: left f32 [2, 8, 8] 0..127, right f32 [2, 8, 8] 128..255" in text, text

# Inputs of different open shapes: y = x W + (pixels as rows) V.
open_nodes = [node("MatMul", ["x", "w"], ["a"]), node("Flatten", ["pixels"], ["rows"], axis=1), node("MatMul", ["rows", "v"], ["b"]),
              node("Add", ["a", "b"], ["y"])]
save("open.onnx", open_nodes, [info("x", FLOAT, ["batch", "width"]), info("pixels", FLOAT, ["batch", 1, "rows", "columns"])],
     [weight("w", 5, 3), weight("v", 6, 3)])
found = result("import", "open.onnx", "--input-shape", "x=5", "--input-shape", "pixels=1,2,3", "-o", "open.h5")
assert [(part["name"], part["shape"]) for part in found["inputs"]] == [("x", [5]), ("pixels", [1, 2, 3])], found
assert result("import", "open.onnx", "--input-shape", "5", "pixels=1,2,3", "-o", "mixed.h5")["inputs"] == found["inputs"]
fails(2, "--input-shape gives 'x' twice", "import", "open.onnx", "--input-shape", "x=5", "x=6", "-o", "no.h5")
fails(2, "no input 'z' is read from the data, 'x', 'pixels' are", "import", "open.onnx", "--input-shape", "z=5", "-o", "no.h5")
fails(2, "the input 'pixels' is ['batch', 1, 'rows', 'columns']", "import", "open.onnx", "--input-shape", "x=5", "-o", "no.h5")
# Rows of another length, ids that are no whole numbers, of no table, and masks that are no numbers of the file's type.
fails(2, "has samples of [18], the network takes [256]", "evaluate", "siamese.h5", "--data", "bert_data.h5")
for name, value, report in (("half", 0.5, "0.5"), ("far", 20, "20")):
    rows = np.zeros((8, 3 * LENGTH), np.float32)
    rows[:, 1] = value
    np.savez(f"{name}.npz", x=rows)
    result("dataset", "from-npy", f"{name}.npz", "--layout", "flat", "--task", "none", "-o", f"{name}.h5", "--test", "0.5")
    fails(2, ["embedding", report], "predict", "bert.h5", "--data", f"{name}.h5", "-o", "no.h5")
fails(2, "samples of the input 'known' are whole numbers", "verify", "typed_qat.onnx", "--checkpoint", "typed_qat.h5", "--data", "typed_data.h5",
      "--random", "8")
fails(2, "--layout is for one array", "dataset", "from-npy", "bert.npz", "--x-key", "input_ids,attention_mask", "--layout", "tokens", "-o", "no.h5")
fails(2, "no array 'mask'", "dataset", "from-npy", "bert.npz", "--x-key", "input_ids,mask", "-o", "no.h5")
np.savez("uneven.npz", a=np.zeros((4, 2)), b=np.zeros((5, 2)))
fails(2, "has 5 samples", "dataset", "from-npy", "uneven.npz", "--x-key", "a,b", "-o", "no.h5")
