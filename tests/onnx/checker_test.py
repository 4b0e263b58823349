"""The newest onnx package takes every exported file: full check, and shapes inferred strictly."""

import onnx
from lib import DIGITS, NETWORKS, result, trained

FORMATS = {"int8": [["ort"], ["tensorrt"], ["ort", "--opset", "21"]], "w4a8": [["ort"]], "w4a4": [["ort"]],
           "fp8": [["ort"], ["tensorrt"]], "int4_blockwise": [["ort"], ["tensorrt"]], "int8_weight_only": [["ort"]]}


def check(file, names):
    onnx.checker.check_model(file, full_check=True)
    model = onnx.load(file)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    written = {node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    assert names <= written, (file, names - written)
    assert all(node.name for node in model.graph.node), file
    assert [value.name for value in model.graph.input] == ["input"], file
    assert [value.name for value in model.graph.output] == ["output"], file


for network in NETWORKS:
    result("export", trained(network), "--format", "onnx", "-o", "float.onnx")
    check("float.onnx", set())
    for preset, forms in FORMATS.items():
        for target, *flags in forms:
            checkpoint, file = f"{network}_{preset}_{target}.h5", f"{network}_{preset}_{target}.onnx"
            result("calibrate", trained(network), "--data", DIGITS, "--preset", preset, "--target", target, "-o", checkpoint)
            result("export", checkpoint, "--format", "onnx", *flags, "-o", file)
            predicted = result("predict", checkpoint, "--data", DIGITS, "--codes", "-o", "predictions.h5")["datasets"]
            names = {name.removeprefix("codes/") for name in predicted if name.startswith("codes/")}
            assert names or preset in ["int4_blockwise", "int8_weight_only"], (preset, predicted)
            check(file, names)
