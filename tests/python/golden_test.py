"""Every answer of the golden files that reference functions have, through the package: the same bits as in C++."""
import collections
import os
import pathlib

import fakequant as fq
import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
FOLDER = pathlib.Path(os.environ.get("FAKEQUANT_GOLDEN_DIR") or pathlib.Path(__file__).parents[1] / "golden")
BYTES = {"bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2", "float8_e8m0fnu": "f8_e8m0"}
WIDTHS = {"u1": 1, "i2": 2, "u2": 2, "i4": 4, "u4": 4, "f4_e2m1": 4}
FILES = sorted(path.name for path in FOLDER.glob("*.h5"))


class Case:
    def __init__(self, group):
        self.attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in group.attrs.items()}
        self.inputs = {k: read(v) for k, v in group.get("in", {}).items()}
        self.outputs = {k: (v[()], text(v, "dtype"), text(v, "compare")) for k, v in group.get("out", {}).items()}

    def keywords(self, **names):
        """Attributes that are given, by the names of the package: kind of each after its name."""
        return {name: kind(self.attributes[key]) for name, (key, kind) in names.items() if key in self.attributes}

    def __getitem__(self, key):
        return self.attributes[key]

    def get(self, name):
        return self.inputs.get(name)


def text(dataset, name):
    value = dataset.attrs.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)


def read(dataset):
    values = dataset[()]
    kind = text(dataset, "dtype")
    values = np.asarray(values)
    return fq.Tensor.from_bytes(np.ascontiguousarray(values).reshape(-1), BYTES[kind], values.shape) if kind in BYTES else values


def named(value):
    return str(value).removeprefix("torch.")


def ints(value):
    return [int(v) for v in np.atleast_1d(value)]


def one(value):
    return int(np.atleast_1d(value)[0])


def real(value):
    return float(np.atleast_1d(value)[0])


def flag(value):
    return bool(np.atleast_1d(value)[0])


INTEGERS = dict(num_bits=("num_bits", one), unsigned=("unsigned", flag), narrow_range=("narrow_range", flag))
PASS = dict(pass_through_bwd=("pass_through_bwd", flag))
RANGE = dict(quant_min=("quant_min", one), quant_max=("quant_max", one))
DOMAIN = dict(zero_point_domain=("zero_point_domain", str))


def outs(*names):
    """Names of a function's results, in order; gradients only if the case has a grad_y."""
    return lambda result: dict(zip(names, result if isinstance(result, tuple) else (result,)))


def case_codes(c, name, dtype):
    """Inputs of codes, which files keep one a byte, packed as their type has them."""
    values = c.get(name)
    width = int("".join(d for d in dtype if d.isdigit()) or 8) if dtype.startswith(("int", "uint")) else 8
    if values is None or (width >= 8 and dtype != "float4_e2m1"):
        return values
    width = 4 if dtype == "float4_e2m1" else width
    flat = np.asarray(values).reshape(-1).astype(np.uint8) & ((1 << width) - 1)
    each = 8 // width
    flat = np.concatenate([flat, np.zeros(-len(flat) % each, np.uint8)]).reshape(-1, each)
    packed = sum((flat[:, i] << (i * width)).astype(np.uint8) for i in range(each)).astype(np.uint8)
    return fq.Tensor.from_bytes(packed, dtype, np.shape(values))


def graded(function, *inputs, extra=(), **names):
    def call(c):
        result = function(*[c.get(i) for i in ("x", *inputs)], grad_y=c.get("grad_y"), **c.keywords(**names))
        return outs("y", "grad_x", *extra)(result)
    return call


def qtensor(make, **names):
    def call(c):
        q = make(c.get("x"), **c.keywords(**names))
        return dict(codes=q.codes, scale=q.scale, scale2=q.scale2, scale_codes=q.scale_codes,
                    double_scale=q.double_scale, scale_zero=q.scale_zero, y=q.dequantize())
    return call


def axes_qtensor(make):
    def call(c):
        blocks = dict(zip(ints(c.attributes.get("block_axes", [])), ints(c.attributes.get("block_lengths", []))))
        q = make(c.get("x"), axis=ints(c.attributes.get("axis", [])), blocks=blocks)
        return dict(codes=q.codes, scale=q.scale, y=q.dequantize())
    return call


def tensor_quant(c):
    result = fq.pytorch_quantization.tensor_quant(c.get("x"), c.get("amax"), grad_y=c.get("grad_y"),
                                                  **c.keywords(**INTEGERS, output_dtype=("output_dtype", named)))
    return outs("codes", "scale", "grad_x")(result)


def choose(function):
    return lambda c: outs("scale", "zero_point")(function(
        c.get("x"), **c.keywords(mapping_type=("mapping_type", str), block_size=("block_size", ints),
                                 target_dtype=("target_dtype", str), **RANGE, eps=("eps", real),
                                 scale_dtype=("scale_dtype", named), zero_point_dtype=("zero_point_dtype", named),
                                 keepdim=("keepdim", flag))))


def quantize_affine(c):
    return {"codes": fq.torchao.quantize_affine(
        c.get("x"), ints(c["block_size"]), c.get("scale"), c.get("zero_point"),
        **c.keywords(output_dtype=("output_dtype", str), **RANGE, **DOMAIN))}


def dequantize_affine(c):
    return {"y": fq.torchao.dequantize_affine(
        c.get("codes"), ints(c["block_size"]), c.get("scale"), c.get("zero_point"),
        **c.keywords(input_dtype=("input_dtype", str), output_dtype=("output_dtype", named), **RANGE, **DOMAIN))}


def fake_affine(c):
    result = fq.torchao.fake_quantize_affine(
        c.get("x"), ints(c["block_size"]), c.get("scale"), c.get("zero_point"), grad_y=c.get("grad_y"),
        **c.keywords(quant_dtype=("quant_dtype", str), **RANGE, **DOMAIN))
    return outs("y", "grad_x", "grad_scale")(result)


def cachemask(c):
    return outs("y", "mask")(fq.torchao.fake_quantize_affine_cachemask(
        c.get("x"), ints(c["block_size"]), c.get("scale"), c.get("zero_point"),
        **c.keywords(quant_dtype=("quant_dtype", str), **RANGE, **DOMAIN)))


def floatx(c):
    bits = c.keywords(ebits=("ebits", one), mbits=("mbits", one))
    codes = fq.torchao.cast_floatx(c.get("x"), **bits)
    return {"codes": codes, "y": fq.torchao.decode_floatx(codes, **bits)}


def to_mx(c):
    shared = c.keywords(elem_dtype=("elem_dtype", str), block_size=("block_size", one))
    scale, codes = fq.torchao.to_mx(c.get("x"), **shared, **c.keywords(scaling_mode=("scaling_mode", str)))
    y = fq.torchao.to_dtype(scale, codes, **shared, **c.keywords(target_dtype=("target_dtype", named)))
    return {"scale": scale, "codes": codes, "y": y}


def learnable(per_channel):
    def call(c):
        axis = {"axis": one(c.attributes.get("axis", 0))} if per_channel else {}
        result = fq.torch_ref.fake_quantize_learnable(
            c.get("x"), c.get("scale"), c.get("zero_point"), grad_y=c.get("grad_y"), **axis,
            **c.keywords(**RANGE, grad_factor=("grad_factor", real)))
        return outs("y", "grad_x", "grad_scale", "grad_zero_point")(result)
    return call


def onnx_quantize(c):
    dtype = named(c.attributes.get("output_dtype", "uint8"))
    return {"codes": fq.onnx.quantize_linear(
        c.get("x"), c.get("scale"), case_codes(c, "zero_point", dtype), output_dtype=dtype,
        **c.keywords(axis=("axis", one), block_size=("block_size", one), saturate=("saturate", flag)))}


def onnx_dequantize(c):
    dtype = named(c.attributes.get("input_dtype", "uint8"))
    return {"y": fq.onnx.dequantize_linear(
        case_codes(c, "codes", dtype), c.get("scale"), case_codes(c, "zero_point", dtype),
        **c.keywords(axis=("axis", one), block_size=("block_size", one)))}


def tripy_dequantize(c):
    codes = case_codes(c, "codes", named(c.attributes.get("input_dtype", "int8")))
    return {"y": fq.tripy.dequantize(codes, c.get("scale"), **c.keywords(dtype=("dtype", named), dim=("dim", one)))}


def tensorrt_quantize(c):
    shared = dict(zero_point=c.get("zero_point"), **c.keywords(axis=("axis", one)))
    codes = fq.tensorrt.quantize(c.get("x"), c.get("scale"), **shared, **c.keywords(to_type=("to_type", named)))
    return {"codes": codes, "y": fq.tensorrt.dequantize(codes, c.get("scale"), **shared)}


M, P, T, A = fq.modelopt, fq.pytorch_quantization, fq.torch_ref, fq.torchao
FUNCTIONS = {
    "fake_tensor_quant": graded(M.fake_tensor_quant, "amax", "bias", **INTEGERS, **PASS),
    "int_cast_ste": graded(M.int_cast_ste, **INTEGERS),
    "scaled_e4m3": graded(M.scaled_e4m3, "amax", "bias", E=("E", one), M=("M", one), **PASS),
    "int8_qtensor": axes_qtensor(M.int8_qtensor),
    "fp8_qtensor": axes_qtensor(M.fp8_qtensor),
    "int4_qtensor": qtensor(M.int4_qtensor, block_size=("block_size", one)),
    "mxfp4_qtensor": qtensor(M.mxfp4_qtensor, block_size=("block_size", one)),
    "mxfp8_qtensor": qtensor(M.mxfp8_qtensor),
    "nf4_qtensor": qtensor(M.nf4_qtensor, block_size=("block_size", one), scale_block_size=("scale_block_size", one)),
    "tensor_quant": tensor_quant,
    "legacy_fake_tensor_quant": graded(P.legacy_fake_tensor_quant, "amax", **INTEGERS),
    "fake_affine_tensor_quant": graded(P.fake_affine_tensor_quant, "min_range", "max_range", num_bits=("num_bits", one)),
    "clip": graded(P.clip, "clip_value_min", "clip_value_max", extra=("grad_min", "grad_max")),
    "fake_quantize_per_tensor_affine": lambda c: outs("y", "grad_x")(T.fake_quantize_per_tensor_affine(
        c.get("x"), grad_y=c.get("grad_y"), **c.keywords(scale=("scale", real), zero_point=("zero_point", one), **RANGE))),
    "fake_quantize_per_channel_affine": graded(T.fake_quantize_per_channel_affine, "scale", "zero_point",
                                               axis=("axis", one), **RANGE),
    "fake_quantize_learnable_per_tensor_affine": learnable(False),
    "fake_quantize_learnable_per_channel_affine": learnable(True),
    "cast_float8": lambda c: {"codes": T.cast_float8(c.get("x"), **c.keywords(dtype=("float8_dtype", named),
                                                                              saturate=("saturate", flag)))},
    "decode_float8": lambda c: {"y": T.decode_float8(c.get("codes"), **c.keywords(dtype=("output_dtype", named)))},
    "cast_float": lambda c: {"y": T.cast_float(c.get("x"), **c.keywords(dtype=("output_dtype", named)))},
    "quantize_affine": quantize_affine,
    "dequantize_affine": dequantize_affine,
    "fake_quantize_affine": fake_affine,
    "fake_quantize_affine_cachemask": cachemask,
    "choose_qparams_affine": choose(A.choose_qparams_affine),
    "choose_qparams_affine_tinygemm": choose(A.choose_qparams_affine_tinygemm),
    "choose_qparams_affine_dont_preserve_zero": choose(A.choose_qparams_affine_dont_preserve_zero),
    "choose_scale_float8": lambda c: {"scale": A.choose_scale_float8(c.get("x"), **c.keywords(
        block_size=("block_size", ints), float8_dtype=("float8_dtype", named), scale_dtype=("scale_dtype", named),
        hp_value_lb=("hp_value_lb", real), hp_value_ub=("hp_value_ub", real)))},
    "quantize_affine_float8": lambda c: {"codes": A.quantize_affine_float8(
        c.get("x"), c.get("scale"), **c.keywords(float8_dtype=("float8_dtype", named)))},
    "dequantize_affine_float8": lambda c: {"y": A.dequantize_affine_float8(
        c.get("codes"), c.get("scale"), **c.keywords(output_dtype=("output_dtype", named)))},
    "cast_floatx": floatx,
    "to_mx": to_mx,
    "nvfp4_quantize": lambda c: outs("scale", "codes")(A.nvfp4_quantize(c.get("x"), c.get("per_tensor_scale"))),
    "nvfp4_qtensor": lambda c: (lambda q: dict(codes=q.codes, scale=q.scale, scale2=q.scale2, y=q.dequantize()))(
        M.nvfp4_qtensor(c.get("x"), c.get("scale2"), **c.keywords(block_size=("block_size", one)))),
    "onnx_quantize_linear": onnx_quantize,
    "onnx_dequantize_linear": onnx_dequantize,
    "tripy_quantize": lambda c: {"codes": fq.tripy.quantize(c.get("x"), c.get("scale"), **c.keywords(
        dtype=("dtype", named), dim=("dim", one)))},
    "tripy_dequantize": tripy_dequantize,
    "tensorrt_quantize": tensorrt_quantize,
}


def unpacked(got, expected, kind):
    """The result as the file stores it: numpy of equal element width, codes one a byte where the file has them so."""
    if not isinstance(got, fq.Tensor):
        return np.asarray(got)
    if got.dtype != "bf16" and not got.dtype.startswith("f8") and got.dtype not in WIDTHS:
        return got.numpy()
    raw = got.bytes()
    width = WIDTHS.get(got.dtype)
    if width is None or kind == "e2m1x2_low_first":
        return raw.view(np.uint16).reshape(got.shape) if got.dtype == "bf16" else raw.reshape(expected.shape)
    codes = np.stack([(raw >> s) & ((1 << width) - 1) for s in range(0, 8, width)], -1).reshape(-1)
    codes = codes[:int(np.prod(got.shape))].reshape(got.shape)
    if got.dtype in ("i2", "i4"):
        codes = ((codes.astype(np.int16) ^ (1 << (width - 1))) - (1 << (width - 1))).astype(np.int8)
    return codes


def values(array, kind):
    if kind == "bfloat16":
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def is_nan(array, kind):
    if kind in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
        bits = array.view(np.uint8)
        return {"float8_e4m3fn": (bits & 0x7f) == 0x7f, "float8_e5m2": (bits & 0x7f) > 0x7c,
                "float8_e8m0fnu": bits == 0xff}[kind]
    if kind == "bfloat16" or array.dtype.kind == "f":
        return np.isnan(values(array, kind))
    return np.zeros(array.shape, bool)


def agrees(expected, got, kind, rule, widest):
    got = unpacked(got, expected, kind)
    if got.shape != expected.shape or (rule == "bits" and got.dtype.itemsize != expected.dtype.itemsize):
        return False
    if rule != "bits" and not rule.startswith("ulp"):
        a, b = values(expected, kind), values(got, kind if got.dtype == np.uint16 else "")
        tolerance = float(rule.split(":")[1]) * (np.abs(a) if rule.startswith("rel") else 1)
        largest = np.max(np.abs(a[np.isfinite(a)]), initial=0)
        near = np.abs(a - b) <= np.minimum(tolerance, widest * largest)
        return bool(np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))
    if expected.dtype == bool:
        expected = expected.astype(np.uint8)
    bits = f"u{expected.dtype.itemsize}"
    a, b = np.atleast_1d(expected).view(bits).astype(np.int64), np.atleast_1d(got).view(bits).astype(np.int64)
    limit = int(rule.split(":")[1]) if rule.startswith("ulp") else 0
    nan = np.atleast_1d(is_nan(expected, kind)) & np.atleast_1d(is_nan(got, kind))
    return bool(np.all((np.abs(a - b) <= limit) | nan))


@pytest.mark.skipif(not FILES, reason=f"there are no golden files in {FOLDER}")
@pytest.mark.parametrize("file", FILES)
def test_matches_torch(file):
    wrong, counts = [], collections.Counter()
    with h5py.File(FOLDER / file) as h5:
        for name, group in h5.items():
            c = Case(group)
            function = FUNCTIONS.get(c["function"])
            if function is None:
                continue
            counts[c["function"]] += 1
            try:
                got = function(c)
            except fq.ArgumentError as error:
                if "error" not in c.attributes:
                    wrong.append(f"{name} {c['function']}: throws {error}")
                continue
            except TypeError as error:
                wrong.append(f"{name} {c['function']}: {error}")
                continue
            if "error" in c.attributes:
                wrong.append(f"{name} {c['function']}: must be refused")
                continue
            widest = 1.0 if str(c.attributes.get("source", "")).startswith("printed") else 1e-4
            for out, (expected, kind, compare) in c.outputs.items():
                if c.attributes.get("edge") == "degenerate":
                    continue  # accidents of the reference's CPU, which the C++ runner knows one by one
                rule = compare or str(c.attributes.get("compare", "bits"))
                if got.get(out) is None or not agrees(np.asarray(expected), got[out], kind, rule, widest):
                    wrong.append(f"{name} {c['function']}: {out}")
    print(f"{file}: {sum(counts.values())} cases of {len(counts)} functions")
    assert not wrong, f"{len(wrong)} of {sum(counts.values())}:\n" + "\n".join(wrong[:20])
