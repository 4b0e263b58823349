"""ONNX's linear quantization in ONNX Runtime; Tripy's and TensorRT's, which are the same arithmetic."""

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper

from .family import SHAPES, Value

SOURCE = "onnxruntime 1.31.1 CPU, graph optimizations disabled"
FORMULA = "formula emulation: fp32 quotient of the exact values, half to even"
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535), "int4": (-8, 7),
          "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
TYPES = {**{name: getattr(TensorProto, name.upper()) for name in RANGES}, "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
         "float8_e5m2": TensorProto.FLOAT8E5M2}
FLOATS = {torch.float32: TensorProto.FLOAT, torch.float16: TensorProto.FLOAT16}
KEPT = {"uint16": np.uint16, "int16": np.int16}
FP8 = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
SAME = {"source": "same arithmetic in onnxruntime 1.31.1 CPU, graph optimizations disabled"}


def graph(name, x, scale, zero, codes, attributes, dequantize):
    """One node between a float input and a float output: codes pass through a cast where they are not whole bytes."""
    kind = TYPES[codes]
    zeros = [] if zero is None else [helper.make_tensor("zero", kind, list(zero.shape), zero.flatten().tolist())]
    inputs = ["x", "scale"] + (["zero"] if zeros else [])
    initial = [helper.make_tensor("scale", FLOATS[scale.dtype], list(scale.shape), scale.float().flatten().tolist()), *zeros]
    integer = codes not in FP8
    if dequantize:
        source = TensorProto.INT32 if integer else TensorProto.FLOAT
        nodes = [helper.make_node("Cast", ["x"], ["q"], to=kind), helper.make_node(name, ["q", *inputs[1:]], ["y"], **attributes)]
        given, result = helper.make_tensor_value_info("x", source, list(x.shape)), FLOATS[scale.dtype]
    else:
        nodes = [helper.make_node(name, inputs, ["q"], output_dtype=kind, **attributes),
                 helper.make_node("Cast", ["q"], ["y"], to=TensorProto.INT32 if integer else TensorProto.FLOAT)]
        given, result = helper.make_tensor_value_info("x", FLOATS[x.dtype], list(x.shape)), TensorProto.INT32 if integer else TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info("y", result, list(x.shape))]
    model = helper.make_model(helper.make_graph(nodes, "g", [given], outputs, initial), ir_version=13,
                              opset_imports=[helper.make_opsetid("", 25)])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return torch.from_numpy(np.ascontiguousarray(session.run(None, {"x": x.numpy()})[0]))


def store_codes(codes, name):
    """Codes as files keep them: one a byte below 8 bits."""
    if name in FP8:
        return codes.float().to(FP8[name])
    if name in KEPT:
        return torch.from_numpy(codes.numpy().astype(KEPT[name]))
    return codes.to(torch.uint8 if name.startswith("u") else torch.int8)


def quantized(x, scale, zero, name, attributes=None):
    return store_codes(graph("QuantizeLinear", x, scale, zero, name, attributes or {}, dequantize=False), name)


def dequantized(codes, scale, zero, name, attributes=None):
    plain = codes.float() if name in FP8 else torch.from_numpy(codes.numpy().astype(np.int32))
    return graph("DequantizeLinear", plain, scale, zero, name, attributes or {}, dequantize=True)


def granularity(family, shape):
    way = family.pick(["tensor", "axis", "axis", "block", "block"])
    axis = family.whole(0, len(shape) - 1)
    if way == "tensor":
        return {}, ()
    if way == "axis" or len(shape) < 2:
        return {"axis": axis - len(shape) if family.flag() else axis}, (shape[axis],)
    size = family.whole(1, shape[axis])
    return {"axis": axis, "block_size": size}, (*shape[:axis], -(-shape[axis] // size), *shape[axis + 1:])


def linear(family):
    for name in [*TYPES, *TYPES, *TYPES]:
        shape, dtype = family.pick(SHAPES), family.pick([torch.float32, torch.float32, torch.float16])
        attributes, scales = granularity(family, shape)
        x, scale = family.values(shape, dtype, scale=family.pick([1.0, 5.0])), family.scales(scales, dtype)
        zero = family.integers(scales, *RANGES[name]) if name in RANGES and family.flag() else None
        stored = None if zero is None else store_codes(zero, name)
        codes = quantized(x, scale, zero, name, attributes)
        family.case("onnx_quantize_linear", {"x": x, "scale": scale, "zero_point": stored}, lambda: {"codes": codes},
                    {**attributes, "output_dtype": name, "saturate": 1})
        family.case("onnx_dequantize_linear", {"codes": codes, "scale": scale, "zero_point": stored},
                    lambda: {"y": dequantized(codes, scale, zero, name, attributes)}, {**attributes, "input_dtype": name})


def front_doors(family):
    names = {"int8": "int8", "int4": "int4", "float8": "float8_e4m3fn"}
    for name in [*names] * 4:
        x = family.values(family.pick(SHAPES), scale=3.0)
        dim = family.whole(0, x.dim() - 1) if family.flag() else None
        scale = family.scales(() if dim is None else (x.shape[dim],), around=0.2)
        where = {} if dim is None else {"axis": dim}
        codes = quantized(x, scale, None, names[name], where)
        y = dequantized(codes, scale, None, names[name], where)
        family.case("tripy_quantize", {"x": x, "scale": scale}, lambda: {"codes": codes}, {"dtype": name, "dim": dim}, **SAME)
        family.case("tripy_dequantize", {"codes": codes, "scale": scale}, lambda: {"y": y},
                    {"dtype": "float32", "input_dtype": name, "dim": dim}, **SAME)
        family.case("tensorrt_quantize", {"x": x, "scale": scale}, lambda: {"codes": codes, "y": y},
                    {"to_type": name, **where}, **SAME)
    for dtype in [torch.float16, torch.bfloat16]:
        x, scale = family.values((3, 17), dtype, scale=3.0), family.scales((), dtype, around=0.2)
        family.case("tripy_quantize", {"x": x, "scale": scale},
                    lambda: {"codes": torch.clamp(torch.round(x.float() / scale.float()), -128, 127).to(torch.int8)},
                    {"dtype": "int8"}, source=FORMULA)
    for blocks in [2, 4]:
        x, scale = family.values((8, 6), scale=2.0), family.scales((blocks, 6), around=0.5)
        rows = scale.repeat_interleave(8 // blocks, 0)
        codes = torch.clamp(torch.round(x / rows), -8, 7)
        results = {"codes": codes.to(torch.int8), "y": Value(codes * rows, "abs:0", "a code 0 has no sign")}
        family.case("tripy_quantize", {"x": x, "scale": scale}, lambda: {"codes": results["codes"]}, {"dtype": "int4"}, source=FORMULA)
        family.case("tensorrt_quantize", {"x": x, "scale": scale}, lambda: results, {"to_type": "int4"}, source=FORMULA)


def make(family):
    linear(family)
    front_doors(family)
