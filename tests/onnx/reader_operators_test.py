"""Options of operators that ONNX Runtime does not run: against ONNX's reference or NumPy."""

import itertools
import os
import subprocess

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

random = np.random.default_rng(0)


def floats(*shape):
    return random.standard_normal(shape).astype("f")


def difference(node, x, constants, opset, wanted=None):
    """The largest one of the first output that is named; the message of a rejected file."""
    output = next(name for name in node.output if name)
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *x.shape[1:]]),
            helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "one", info[:1], info[1:], [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=14)
    onnx.save(model, "case.onnx")
    x.tofile("x")
    done = subprocess.run([os.environ["ONNX_IMPORTED"], "case.onnx", "x", "y", *map(str, x.shape)], capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    if wanted is None:
        wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    return float(np.abs(np.fromfile("y", "f").reshape(wanted.shape) - wanted).max())


def mean_of_windows(x, kernel, stride, dilation, pads, ceil, with_pads):
    """AveragePool of [N, C, H, W]; pads are [before, after] of both axes."""
    sizes, places = x.shape[2:], []
    for i in range(2):
        room = sizes[i] + sum(pads[i]) - (dilation[i] * (kernel[i] - 1) + 1)
        count = (-(-room // stride[i]) if ceil else room // stride[i]) + 1
        if ceil and (count - 1) * stride[i] >= sizes[i] + pads[i][0]:
            count -= 1
        places.append([[w * stride[i] + t * dilation[i] - pads[i][0] for t in range(kernel[i])] for w in range(count)])
    y = np.zeros((*x.shape[:2], len(places[0]), len(places[1])))
    for (a, rows), (b, columns) in itertools.product(enumerate(places[0]), enumerate(places[1])):
        inside = [(r, c) for r in rows for c in columns if 0 <= r < sizes[0] and 0 <= c < sizes[1]]
        count = sum(r < sizes[0] + pads[0][1] and c < sizes[1] + pads[1][1] for r in rows for c in columns) if with_pads else len(inside)
        y[:, :, a, b] = sum(x[:, :, r, c].astype(np.float64) for r, c in inside) / count
    return y


wrong = {}


def check(name, off, most=1e-6):
    if isinstance(off, str) or not off <= most:
        wrong[name] = off


x = floats(2, 8, 4, 6)
for mode in (None, "DCR", "CRD"):
    given = {} if mode is None else {"mode": mode}
    for op in ("SpaceToDepth", "DepthToSpace"):
        node = helper.make_node(op, ["x"], ["y"], blocksize=2, **given)
        check(f"{op} {mode}", difference(node, x, {}, 28), 0)

images = floats(2, 3, 9, 11)
for kernel, stride, dilation, pads, ceil, with_pads in itertools.product(
        ((3, 2), (2, 2)), ((1, 1), (2, 3)), ((2, 2), (1, 3)), (((0, 0), (0, 0)), ((1, 0), (1, 1))), (0, 1), (0, 1)):
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=kernel, strides=stride, dilations=dilation, ceil_mode=ceil,
                            count_include_pad=with_pads, pads=[pads[0][0], pads[1][0], pads[0][1], pads[1][1]])
    check(f"AveragePool {kernel} {stride} {dilation} {pads} {ceil} {with_pads}",
          difference(node, images, {}, 22, mean_of_windows(images, kernel, stride, dilation, pads, ceil, with_pads)))

steps, features, size = 5, 3, 4
for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    for ways, output in itertools.product((1, 2), (0, 1)):
        constants = {"w": floats(ways, gates * size, features), "r": floats(ways, gates * size, size), "b": floats(ways, 2 * gates * size)}
        more = {"linear_before_reset": 1} if op == "GRU" else {}
        node = helper.make_node(op, ["x", "w", "r", "b"], ["", "y"] if output else ["y"], hidden_size=size, layout=1,
                                direction="bidirectional" if ways == 2 else "forward", **more)
        first = helper.make_node(op, ["t", "w", "r", "b"], ["", "z"] if output else ["z"], hidden_size=size,
                                 direction="bidirectional" if ways == 2 else "forward", **more)
        x = floats(2, steps, features)
        turn = helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2])
        back = helper.make_node("Transpose", ["z"], ["y"], perm=[1, 0, 2] if output else [2, 0, 1, 3])
        info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["N", steps, features]), ("y", None))]
        graph = helper.make_graph([turn, first, back], "one", info[:1], info[1:], [numpy_helper.from_array(value, name) for name, value in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        check(f"{op} {ways} {output}", difference(node, x, constants, 20, wanted), 2e-6)

assert not wrong, "\n".join(f"{name}: {off}" for name, off in wrong.items())
print("reader operators: ok")
