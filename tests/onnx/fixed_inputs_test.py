"""Networks with several inputs; all but one have the same value for every sample."""

import numpy as np
import onnx
import onnxruntime
from lib import fails, result
from onnx import TensorProto, helper, numpy_helper

WIDTH, LENGTH = 8, 5


def transformer():
    """Self-attention of token ids with an attention mask and token types, as BERT has it, and a scale without a batch."""
    random = np.random.default_rng(1)
    tables = {"words": (20, WIDTH), "types": (2, WIDTH), "query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH), "value": (WIDTH, WIDTH)}
    fixed = [numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) / 2, name) for name, shape in tables.items()]
    fixed += [numpy_helper.from_array(np.array(value, dtype), name) for name, value, dtype in (
        ("one", 1, np.float32), ("least", -10000, np.float32), ("axes", [1], np.int64), ("row", [0], np.int64))]
    node = helper.make_node
    nodes = [
        node("Gather", ["words", "ids"], ["w"]), node("Gather", ["types", "token_types"], ["t"]), node("Add", ["w", "t"], ["x"]),
        *(node("MatMul", ["x", name], [name[0]]) for name in ("query", "key", "value")),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["scores"]),
        node("Shape", ["mask"], ["sizes"]), node("Gather", ["sizes", "row"], ["batch"]),
        node("Cast", ["mask"], ["m"], to=1), node("Sub", ["one", "m"], ["hidden"]), node("Mul", ["hidden", "least"], ["bias"]),
        node("Unsqueeze", ["bias", "axes"], ["bias3"]), node("Add", ["scores", "bias3"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["seen"]), node("Mul", ["seen", "scale"], ["scaled"]),
        node("ReduceMean", ["scaled", "axes"], ["y"], keepdims=0)]
    info = helper.make_tensor_value_info
    inputs = [info(name, TensorProto.INT64, ["batch", LENGTH]) for name in ("ids", "mask", "token_types")]
    graph = helper.make_graph(nodes, "bert", [*inputs, info("scale", TensorProto.FLOAT, [WIDTH])], [info("y", TensorProto.FLOAT, ["batch", WIDTH])], fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def run(path, **inputs):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)[0]


onnx.save(transformer(), "bert.onnx")
ids = np.random.default_rng(2).integers(0, 20, (3, LENGTH))
scale = np.linspace(0.5, 2, WIDTH).astype(np.float32)
np.save("scale.npy", scale)
np.save("mask.npy", np.array([[1, 1, 1, 1, 0]]))
for number, (mask, words) in enumerate(((np.ones(LENGTH), "mask=1"), (np.array([1, 1, 1, 1, 0]), "mask=mask.npy"))):
    result("import", "bert.onnx", "--fix-input", words, "token_types=0", "scale=scale.npy", "-o", f"bert{number}.h5")
    result("export", f"bert{number}.h5", "--format", "onnx", "-o", f"again{number}.onnx")
    wanted = run("bert.onnx", ids=ids, mask=np.tile(mask.astype(np.int64), (3, 1)), token_types=np.zeros_like(ids), scale=scale)
    found = run(f"again{number}.onnx", input=ids)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max(), np.abs(found - wanted).max()
fails(2, ["4 inputs", "'mask' i64 ['batch', 5]", "--fix-input mask=1 token_types=1 scale=1"], "import", "bert.onnx", "-o", "no.h5")
fails(2, "no input 'masks'", "import", "bert.onnx", "--fix-input", "masks=1", "mask=1", "token_types=0", "scale=1", "-o", "no.h5")
fails(2, "whole numbers are needed", "import", "bert.onnx", "--fix-input", "mask=0.5", "token_types=0", "scale=1", "-o", "no.h5")
fails(2, "does not fit one sample", "import", "bert.onnx", "--fix-input", "mask=scale.npy", "token_types=0", "scale=1", "-o", "no.h5")
fails(2, "--fix-input is 'mask'", "import", "bert.onnx", "--fix-input", "mask", "-o", "no.h5")
fails(2, "--fix-input gives 'mask' twice", "import", "bert.onnx", "--fix-input", "mask=1", "mask=0", "-o", "no.h5")
fails(2, "nothing.npy", "import", "bert.onnx", "--fix-input", "mask=nothing.npy", "-o", "no.h5")
