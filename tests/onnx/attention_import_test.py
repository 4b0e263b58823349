"""Attention of ONNX files becomes one layer, in the forms that PyTorch's exporters write, and gives what ONNX Runtime gives of
the file; with its quantizers it is on codes, bit for bit."""

import json

import h5py
import numpy as np
import onnx
import onnxruntime
from lib import result, run, session_options
from onnx import TensorProto, helper, numpy_helper

N, L, W, H = 2, 6, 16, 4
D = W // H
random = np.random.default_rng(0)
TRIANGLE = np.tril(np.ones((L, L), bool))


class Graph:
    """Nodes that follow each other; constants are initializers."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op, *inputs, **attributes):
        inputs = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def linear(self, x, features):
        return self.add("Add", self.add("MatMul", x, random.standard_normal((W, features)).astype("f") * 0.4),
                        random.standard_normal(features).astype("f"))

    def heads(self, x, heads=H):
        return self.add("Transpose", self.add("Reshape", x, np.array([0, L, heads, D])), perm=[0, 2, 1, 3])

    def rows(self, y):
        return self.add("Reshape", self.add("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, L, W]))

    def save(self, path, y, opset=20):
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", L, W]) for name in "xy"]
        graph = helper.make_graph(self.nodes, "attention", info[:1], info[1:], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def explicit(graph):
    """masked_fill of scores, keys turned from [N, L, H, D] at once."""
    q, v = (graph.heads(graph.linear("x", W)) for _ in range(2))
    k = graph.add("Reshape", graph.linear("x", W), np.array([0, L, H, D]))
    scores = graph.add("Div", graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 2, 3, 1])), np.float32(2))
    scores = graph.add("Where", ~TRIANGLE[None, None], np.float32(-np.inf), scores)
    return graph.rows(graph.add("MatMul", graph.add("Softmax", scores, axis=-1), v))


def function(graph, mask=None, scale=D**-0.25):
    """scaled_dot_product_attention: factors on queries and keys, keys turned as matrices, a mask that is added."""
    q, k, v = (graph.heads(graph.linear("x", W)) for _ in range(3))
    turned = graph.add("Transpose", graph.add("Reshape", k, np.array([-1, L, D])), perm=[0, 2, 1])
    turned = graph.add("Reshape", turned, np.array([-1, H, D, L]))
    scores = graph.add("MatMul", graph.add("Mul", q, np.float32(scale)), graph.add("Mul", turned, np.float32(scale)))
    if mask is not None:
        scores = graph.add("Add", scores, mask)
    p = graph.add("Softmax", scores, axis=-1)
    if mask is not None:
        p = graph.add("Where", graph.add("IsNaN", p), np.float32(0), p)
    return graph.rows(graph.add("MatMul", p, v))


def matrices(graph):
    """MultiheadAttention: heads beside samples."""
    q, k, v = (graph.add("Reshape", graph.heads(graph.linear("x", W)), np.array([-1, L, D])) for _ in range(3))
    scores = graph.add("MatMul", graph.add("Mul", q, np.float32(0.5)), graph.add("Transpose", k, perm=[0, 2, 1]))
    y = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), v)
    return graph.rows(graph.add("Reshape", y, np.array([-1, H, L, D])))


def operator(graph, heads=H, mask=None, **attributes):
    """Attention of version 23."""
    inputs = [graph.linear("x", W), graph.linear("x", heads * D), graph.linear("x", heads * D)]
    return graph.add("Attention", *inputs, *([] if mask is None else [mask]), q_num_heads=H, kv_num_heads=heads, **attributes)


CAUSAL = np.where(TRIANGLE, 0, -np.inf).astype("f")
SOME = random.random((L, L)) < 0.7
SOME[:, 0] = True
HIDDEN = np.where(SOME, 0, np.finfo("f").min).astype("f")
# Forms of attention, with the options of the layer.
FORMS = {
    "explicit": (explicit, {}, {"causal": True}),
    "function": (function, {}, {}),
    "causal": (function, {"mask": CAUSAL}, {"causal": True}),
    "masked": (function, {"mask": HIDDEN}, {}),
    "scaled": (function, {"scale": 0.6}, {"scale": 0.36}),
    "matrices": (matrices, {}, {}),
    "operator": (operator, {}, {}),
    "operator_causal": (operator, {"is_causal": 1, "scale": 0.3}, {"causal": True, "scale": 0.3}),
    "operator_grouped": (operator, {"heads": 2}, {}),
    "operator_masked": (operator, {"mask": SOME}, {}),
    "operator_added": (operator, {"mask": HIDDEN}, {}),
}

x = random.standard_normal((N, L, W)).astype("f")


def run_session(path):
    session = onnxruntime.InferenceSession(path, session_options(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]




for name, (form, options, wanted) in FORMS.items():
    graph = Graph()
    graph.save(f"{name}.onnx", form(graph, **options), 23 if "operator" in name else 20)
    report = result("import", f"{name}.onnx", "-o", f"{name}.h5")
    assert report["layers"].get("scaled_dot_product_attention") == 1, (name, report)
    assert "softmax" not in report["layers"] and "matmul" not in report["layers"], (name, report)
    with h5py.File(f"{name}.h5") as file:
        nodes = json.loads(bytes(file["attributes"][...]))["model"]["model"]["nodes"]
    node = next(n for n in nodes if n["type"] == "scaled_dot_product_attention")
    given = node.get("options", {})
    assert given.keys() == wanted.keys(), (name, node)
    assert all(abs(given[key] - value) < 1e-6 for key, value in wanted.items()), (name, node)
    run("export", f"{name}.h5", "--format", "onnx", "-o", f"{name}_ours.onnx")
    ours, theirs = run_session(f"{name}_ours.onnx"), run_session(f"{name}.onnx")
    off = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert off < 2e-6, (name, off)  # the layer multiplies by the factor once: 3e-7 was measured

# Parameters within the scores are trained and not merged.
graph = Graph()
graph.save("bias.onnx", function(graph, random.standard_normal((H, L, L)).astype("f")))
report = result("import", "bias.onnx", "-o", "bias.h5")
assert report["layers"]["softmax"] == 1 and "scaled_dot_product_attention" not in report["layers"], report

# On codes: each product is of integers, and the file has the same.
with h5py.File("data.h5", "w") as file:
    for split in ("train", "test"):
        file[f"{split}/x"] = random.standard_normal((32, L, W)).astype("f")
        file[f"{split}/y"] = random.standard_normal((32, L, W)).astype("f")
run("calibrate", "causal.h5", "--data", "data.h5", "--preset", "int8", "--attention", "int8", "-o", "codes.h5")
run("export", "codes.h5", "--format", "onnx", "-o", "codes.onnx")
report = result("verify", "codes.onnx", "--checkpoint", "codes.h5", "--data", "data.h5", "--code-tolerance", "1e-4")
assert report["codes"] > 0 and report["codes_different"] <= 1e-4 * report["codes"], report
with h5py.File("codes.h5") as file:
    names = list(file["quantizers"])
assert sum(n.endswith("_bmm_quantizer") or n.endswith("softmax_quantizer") for n in names) == 4, names

print("attention import: ok")
