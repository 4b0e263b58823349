"""Whole numbers and 16-bit floats in an imported network: every conversion and every arithmetic operator, of values that are
computed and of constants, against NumPy. All numbers are exact."""

import itertools

import ml_dtypes
import numpy as np
import onnx
from lib import imported
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "u8": np.uint8, "i16": np.int16,
         "u16": np.uint16, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "i64")
NUMBERS = np.array([0, -0.0, 0.4, -0.6, 1, 2, 2.5, -2.7, 3, 5.999, 7, 11, -13, 100, 127, -128, 200.5, 255, 1000.25, -1001, 2049, 4097, 32767, -32768,
                    65504, 65535, 70000, -70001, 1e5, 2**20 + 1, 2**23 + 1], np.float32)
ROWS = 3
random = np.random.default_rng(1)


def make_numbers(name):
    """Numbers that a conversion to the type defines: those within its range."""
    dtype = TYPES[name]
    if name not in INTEGERS:
        return NUMBERS
    info = np.iinfo(dtype)
    kept = NUMBERS[(np.trunc(NUMBERS) >= info.min) & (np.trunc(NUMBERS) <= info.max)]
    return np.resize(kept, NUMBERS.shape)


def onnx_type(name):
    return helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[name]))


class Jobs:
    """Networks of f32 data, each with the answer that is right, or None if it must be rejected."""

    def __init__(self):
        self.jobs, self.wanted = [], []

    def add(self, name, nodes, inputs, constants, wanted):
        infos = [helper.make_tensor_value_info(key, TensorProto.FLOAT, ["N", *value.shape[1:]]) for key, value in inputs.items()]
        graph = helper.make_graph(nodes, name, infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                                  [numpy_helper.from_array(value, key) for key, value in constants.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), name + ".onnx")
        x = np.concatenate([value.reshape(ROWS, -1) for value in inputs.values()], 1)
        self.jobs.append((name + ".onnx", "y", x, name + ".y"))
        self.wanted.append(wanted)

    def computed_and_constant(self, name, nodes, values, wanted, rejected=False):
        """`nodes` give `r` of `values`, which are data in one network and constants in another one."""
        ends = [node("Cast", ["r"], ["z"], to=TensorProto.FLOAT)]
        self.add(name, [*nodes, *ends, node("Identity", ["z"], ["y"])], values, {}, None if rejected else wanted)
        same = {key: value[:1] for key, value in values.items()}
        wanted = np.clip(wanted, np.finfo(np.float32).min, np.finfo(np.float32).max)  # networks hold no infinite constants
        zero = [node("Sub", ["data", "data"], ["zero"]), node("Add", ["zero", "z"], ["y"])]
        self.add(name + "_constant", [*nodes, *ends, *zero], {"data": np.ones((ROWS, wanted.shape[1]), np.float32)}, same,
                 np.repeat(wanted[:1], ROWS, 0))

    def check(self):
        wrong = []
        for (name, _, _, path), wanted, result in zip(self.jobs, self.wanted, imported(self.jobs), strict=True):
            if wanted is None:
                if "rejected" not in result or "node '" not in result["rejected"]:
                    wrong.append((name, "is not rejected", result))
            elif "shape" not in result:
                wrong.append((name, result))
            elif not np.array_equal(np.fromfile(path, np.float32).reshape(result["shape"]), wanted):
                wrong.append((name, np.fromfile(path, np.float32)[:40], wanted.ravel()[:40]))
        assert not wrong, (len(wrong), wrong[:5])
        return len(self.jobs)


def conversions(jobs):
    for first, second in itertools.product(TYPES, TYPES):
        x = np.stack([np.roll(make_numbers(first), i) for i in range(ROWS)])
        with np.errstate(all="ignore"):
            middle = x.astype(TYPES[first])
            if second in INTEGERS and first not in (*INTEGERS, "bool"):  # a float beyond an integer type has no answer
                info, whole = np.iinfo(TYPES[second]), middle.astype(np.float64)
                x = np.where((whole > info.min - 1.0) & (whole < info.max + 1.0), x, np.float32(1))
                middle = x.astype(TYPES[first])
            wanted = middle.astype(TYPES[second]).astype(np.float32)
        nodes = [node("Cast", ["x"], ["a"], to=onnx_type(first)), node("Cast", ["a"], ["r"], to=onnx_type(second))]
        jobs.computed_and_constant(f"cast_{first}_{second}", nodes, {"x": x}, wanted)
        like = [node("Cast", ["x"], ["a"], to=onnx_type(first)), node("CastLike", ["a", "like"], ["b"]), node("Cast", ["b"], ["y"], to=TensorProto.FLOAT)]
        jobs.add(f"like_{first}_{second}", like, {"x": x}, {"like": np.zeros(1, TYPES[second])}, wanted)


def truncated(a, b):
    quotient = np.abs(a.astype(np.int64)) // np.abs(b.astype(np.int64))
    return quotient * np.sign(a.astype(np.int64)) * np.sign(b.astype(np.int64))


def remainder(a, b):
    return a.astype(np.int64) - b.astype(np.int64) * truncated(a, b)


PAIRS = {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Div": truncated, "Mod": lambda a, b: a - b * (a // b),
         "Mod.fmod": remainder, "Min": np.minimum, "Max": np.maximum}
ONES = {"Neg": lambda a: -a, "Abs": np.abs, "Sign": np.sign}
REDUCTIONS = {"ReduceSum": lambda a: a.sum(1, keepdims=True), "ReduceMax": lambda a: a.max(1, keepdims=True),
              "ReduceMean": lambda a: truncated(a.sum(1, keepdims=True), np.full((len(a), 1), a.shape[1])),
              "ReduceL1": lambda a: np.abs(a).sum(1, keepdims=True), "ReduceL2": lambda a: np.floor(np.sqrt((a * a).sum(1, keepdims=True))),
              "ReduceSumSquare": lambda a: (a * a).sum(1, keepdims=True)}


def integers(name, most, shape=(ROWS, 12)):
    info = np.iinfo(TYPES[name])
    return random.integers(max(info.min, -most), min(info.max, most) + 1, shape)


def arithmetic(jobs):
    for name in INTEGERS:
        dtype, to = TYPES[name], onnx_type(name)
        casts = [node("Cast", ["a"], ["p"], to=to), node("Cast", ["b"], ["q"], to=to)]
        for operator, compute in PAIRS.items():
            kind, _, flag = operator.partition(".")
            a, b = integers(name, 4000), integers(name, 4000)
            b = np.where(b == 0, 1, b)
            if kind == "Div":
                b = np.where((a == np.iinfo(dtype).min) & (b == -1), 1, b)
            wanted = compute(a, b).astype(dtype).astype(np.float32)
            last = node(kind, ["p", "q"], ["r"], **({"fmod": 1} if flag else {}))
            jobs.computed_and_constant(f"{operator}_{name}", [*casts, last], {"a": a.astype(np.float32), "b": b.astype(np.float32)}, wanted,
                                       rejected=kind == "Mul" and name in ("i16", "u16"))
            number = np.array(b[0, 0], dtype)
            if kind != "Mul" or name not in ("i16", "u16"):
                nodes = [casts[0], node(kind, ["p", "c"], ["r"], **({"fmod": 1} if flag else {})), node("Cast", ["r"], ["y"], to=TensorProto.FLOAT)]
                jobs.add(f"{operator}_{name}_number", nodes, {"a": a.astype(np.float32)}, {"c": number},
                         compute(a, np.full(a.shape, b[0, 0])).astype(dtype).astype(np.float32))
        for operator, compute in ONES.items():
            if operator == "Neg" and name.startswith("u"):
                continue
            a = integers(name, 4000)
            jobs.computed_and_constant(f"{operator}_{name}", [casts[0], node(operator, ["p"], ["r"])], {"a": a.astype(np.float32)},
                                       compute(a).astype(dtype).astype(np.float32))
    for name in ("i32", "i64"):
        cast = node("Cast", ["a"], ["p"], to=onnx_type(name))
        for operator, compute in REDUCTIONS.items():
            a = integers(name, 400)
            nodes = [node("Constant", [], ["axes"], value_ints=[1]), cast, node(operator, ["p", "axes"], ["r"])]
            jobs.computed_and_constant(f"{operator}_{name}", nodes, {"a": a.astype(np.float32)}, compute(a).astype(np.float32))
        for exponent in (0, 1, 2, 3, 5):
            a = integers(name, 20)
            nodes = [cast, node("Constant", [], ["e"], value=numpy_helper.from_array(np.array(exponent, TYPES[name]))), node("Pow", ["p", "e"], ["r"])]
            jobs.computed_and_constant(f"Pow{exponent}_{name}", nodes, {"a": a.astype(np.float32)}, (a ** exponent).astype(np.float32))


jobs = Jobs()
conversions(jobs)
arithmetic(jobs)
count = jobs.check()
assert count > 500, count
print(f"{count} networks of whole numbers and 16-bit floats: ok")
