"""Resize of random scales and sizes, of old and new versions, against ONNX Runtime: nearest to the bit."""

import numpy as np
import onnx
import onnxruntime
from lib import imported
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(3)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SCALES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.9, 1.0, 1.2, 1.3, 1.5, 1.7, 2.0, 2.3, 3.0)


def network(name, opset, operator, x, scales, sizes=None, **attributes):
    inputs = {10: ["x", "scales"], 9: ["x", "scales"]}.get(opset, ["x", "", "" if sizes else "scales", *(["sizes"] if sizes else [])])
    constants = [numpy_helper.from_array(np.array(sizes, np.int64), "sizes") if sizes else numpy_helper.from_array(np.array(scales, np.float32), "scales")]
    graph = helper.make_graph([helper.make_node(operator, inputs, ["y"], **attributes)], name,
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *x.shape[1:]])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), name + ".onnx")


def cases():
    for i in range(120):
        x = random.standard_normal((2, 3, *random.integers(2, 40, 2))).astype(np.float32)
        scales = [1.0, 1.0, *random.choice(SCALES, 2)]
        mode = ("nearest", "linear", "cubic")[i % 3 if i % 4 else 0]
        if i % 4 == 0:
            yield 10, "Resize", x, {"scales": scales, "mode": "nearest"}
        elif i % 4 == 1:
            up = [max(1.0, scale) for scale in scales]
            yield 9, "Upsample", x, {"scales": up, "mode": ("nearest", "linear")[i % 2]}
        elif i % 4 == 2:
            rounding = {"nearest_mode": str(random.choice(ROUNDINGS))} if mode == "nearest" else {}
            yield 13, "Resize", x, {"scales": scales, "mode": mode, "coordinate_transformation_mode": str(random.choice(COORDINATES)), **rounding}
        else:
            sizes = [2, 3, *map(int, random.integers(1, 40, 2))]
            policy = {"keep_aspect_ratio_policy": ("not_larger", "not_smaller")[i // 4 % 2], "axes": [2, 3]}
            yield 18, "Resize", x, {"scales": None, "sizes": sizes[2:], "mode": "nearest", "nearest_mode": "floor",
                                    "coordinate_transformation_mode": "asymmetric", **policy}


jobs, wanted = [], []
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
for i, (opset, operator, x, attributes) in enumerate(cases()):
    network(f"n{i}", opset, operator, x, **attributes)
    session = onnxruntime.InferenceSession(f"n{i}.onnx", options, providers=["CPUExecutionProvider"])
    jobs.append((f"n{i}.onnx", "y", x, f"n{i}.y"))
    wanted.append((session.run(None, {"x": x})[0], opset, attributes))
wrong, rejected = [], 0
for (_, _, x, path), (y, opset, attributes), result in zip(jobs, wanted, imported(jobs), strict=True):
    if "shape" not in result:
        assert "rounds" in result["rejected"] or "elements of" in result["rejected"], (result, attributes, x.shape)
        rejected += 1
        continue
    found = np.fromfile(path, np.float32)
    limit = 0 if attributes["mode"] == "nearest" else 1e-4
    if result["shape"] != list(y.shape) or np.abs(found.reshape(y.shape) - y).max() > limit:
        wrong.append((opset, attributes, x.shape, result["shape"], y.shape))
assert not wrong, (len(wrong), wrong[:8])
assert rejected < 20, rejected
print(f"{len(jobs)} of Resize and Upsample, {rejected} rejected: ok")
