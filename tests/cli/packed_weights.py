"""Quantized safetensors: files with ModelOpt's or compressed-tensors' names are imported with their codes and scales
and exported unchanged. Tensors that no grid can represent are rejected with the reason."""

import json
import os
import shutil
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "cli", "lib"))
from command import DIGITS, fails, fresh, result, run  # noqa: E402

TYPES = {"F32": "<f4", "I8": "i1", "U8": "u1", "I32": "<i4", "I64": "<i8", "F8_E4M3": "u1", "F16": "<f2", "BF16": "<u2"}


def load(path):
    with open(path, "rb") as file:
        whole = file.read()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + length])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        out[name] = (entry["dtype"], np.frombuffer(whole[8 + length + begin:8 + length + end], TYPES[entry["dtype"]]).reshape(entry["shape"]))
    return out


def save(path, tensors):
    header, data = {}, b""
    for name, (dtype, value) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def same(a, b):
    first, second = load(a), load(b)
    assert set(first) == set(second), set(first) ^ set(second)
    for name, (dtype, value) in first.items():
        assert dtype == second[name][0] and np.array_equal(value, second[name][1], equal_nan=dtype == "F32"), name


with open("net.json", "w", encoding="utf-8") as file:
    json.dump({"nodes": [{"name": "flat", "type": "flatten"}, {"name": "first", "type": "linear", "options": {"out_features": 64}},
                         {"name": "act", "type": "relu"}, {"name": "second", "type": "linear", "options": {"out_features": "classes"}}]}, file)
run("train", "--data", DIGITS, "--model", "net.json", "--epochs", "2", "-o", "float.h5")
SHAPE = "1,8,8"
with open("groups.json", "w", encoding="utf-8") as file:
    json.dump({"rules": {"*weight_quantizer": {"num_bits": 4, "block_sizes": {"-1": 32}}, "*input_quantizer": {"enable": False}}}, file)
KINDS = {"int8": ["--preset", "int8", "--target", "tensorrt"], "int8_weight_only": ["--preset", "int8_weight_only"],
         "groups": ["--config", "groups.json"], "fp8": ["--preset", "fp8"],
         "fp8_per_channel_per_token": ["--preset", "fp8_per_channel_per_token"],
         "nvfp4": ["--preset", "nvfp4", "--edge-bits", "0"], "mxfp8": ["--preset", "mxfp8"]}
for kind, flags in KINDS.items():
    run("calibrate", "float.h5", "--data", DIGITS, *flags, "-o", f"{kind}.h5")
    for names in ("safetensors",) if kind in ("nvfp4", "mxfp8") else ("safetensors", "compressed-tensors"):
        folder = fresh(f"{kind}_{names}")
        again = fresh(f"{kind}_{names}_again")
        run("export", f"{kind}.h5", "--format", names, "-o", folder)
        run("import", f"{folder}/model.safetensors", "--network", "net.json", "--input-shape", SHAPE, "--classes", "10", "-o", "back.h5", "--force")
        run("export", "back.h5", "--format", names, "-o", again)
        same(f"{folder}/model.safetensors", f"{again}/model.safetensors")
        first, second = (result("evaluate", name, "--data", DIGITS) for name in (f"{kind}.h5", "back.h5"))
        assert first["loss"] == second["loss"], (kind, names, first, second)
run("qat", "back.h5", "--data", DIGITS, "--epochs", "1", "-o", "more.h5")

# The layout that compressed-tensors documents.
packed = load("groups_compressed-tensors/model.safetensors")
scale, words, size = (packed[f"second.{name}"][1] for name in ("weight_scale", "weight_packed", "weight_shape"))
codes = (words.view(np.uint32)[:, :, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).astype(np.int32).reshape(len(words), -1) - 8
assert size.tolist() == [10, 64] == list(codes.shape) and scale.shape == (10, 2), (size, scale.shape)
assert np.abs(codes).max() == 7, codes
with open("groups_compressed-tensors/config.json", encoding="utf-8") as file:
    config = json.load(file)["quantization_config"]
assert config["quant_method"] == "compressed-tensors" and config["format"] == "pack-quantized", config
[group] = config["config_groups"].values()
assert group["targets"] == ["first", "second"] and group["input_activations"] is None, group
assert group["weights"] == {"num_bits": 4, "type": "int", "symmetric": True, "dynamic": False, "strategy": "group", "group_size": 32}, group
tensors = load("int8_compressed-tensors/model.safetensors")
assert tensors["first.weight"][0] == "I8" and tensors["first.weight_scale"][1].shape == (64, 1), tensors["first.weight_scale"]
assert tensors["first.input_scale"][1].shape == (1,)
fails(2, ["'first' is NVFP4", "--format safetensors"], "export", "nvfp4.h5", "--format", "compressed-tensors", "-o", fresh("none"))
with open("sum.json", "w", encoding="utf-8") as file:
    json.dump({"nodes": [{"name": "flat", "type": "flatten"}, {"name": "first", "type": "linear", "options": {"out_features": 64}},
                         {"name": "sum", "type": "add", "inputs": ["first", "flat"]},
                         {"name": "last", "type": "linear", "options": {"out_features": "classes"}}]}, file)
run("train", "--data", DIGITS, "--model", "sum.json", "--epochs", "1", "-o", "sum.h5")
run("calibrate", "sum.h5", "--data", DIGITS, "--preset", "int8", "--target", "tensorrt", "-o", "sum_tensorrt.h5")
fails(2, ["'sum' has quantizers and no weight", "--target none"], "export", "sum_tensorrt.h5", "--format", "compressed-tensors", "-o", fresh("none"))
run("calibrate", "sum.h5", "--data", DIGITS, "--preset", "int8", "--target", "none", "-o", "sum_none.h5")
run("export", "sum_none.h5", "--format", "compressed-tensors", "-o", fresh("sum"))

# Files that say other things.
given = load("groups_compressed-tensors/model.safetensors")
eight = load("int8_safetensors/model.safetensors")


def expect_error(expected, tensors):
    save("changed.safetensors", tensors)
    fails(2, ["changed.safetensors", *expected], "import", "changed.safetensors", "--network", "net.json", "--input-shape", SHAPE, "--classes", "10",
          "-o", "none.h5")


expect_error(["first.weight_zero_point", "symmetric"], {**given, "first.weight_zero_point": ("I32", np.zeros((8, 2), "<i4"))})
expect_error(["first.weight_g_idx", "activation ordering"], {**given, "first.weight_g_idx": ("I32", np.zeros(64, "<i4"))})
expect_error(["first.weight_packed", "weight_shape is missing"], {name: value for name, value in given.items() if name != "first.weight_shape"})
expect_error(["codes of 4 and 8 bits"], {**given, "first.weight_shape": ("I64", np.array([64, 600], "<i8"))})
expect_error(["first.weight_scale", "must be positive"], {**eight, "first.weight_scale": ("F32", np.full(64, -1, "<f4"))})
expect_error(["first.weight_scale", "one per row"], {**eight, "first.weight_scale": ("F32", np.ones(63, "<f4"))})
expect_error(["first.weight", "I8 or F8_E4M3"], {**eight, "first.weight": ("I32", np.zeros((64, 64), "<i4"))})
expect_error(["other.input_scale", "not quantized"], {**eight, "other.input_scale": ("F32", np.ones((), "<f4"))})
nvfp4 = load("nvfp4_safetensors/model.safetensors")
assert nvfp4["first.weight_scale"][0] == "F8_E4M3" and nvfp4["first.weight"][1].shape == (64, 32), nvfp4["first.weight"]
expect_error(["input_global_scale", "NVFP4 weights only"], {**nvfp4, "first.input_global_scale": ("F32", np.ones((), "<f4"))})
expect_error(["first.weight_scale", "a scale is 0"], {**nvfp4, "first.weight_scale": ("F8_E4M3", np.zeros((64, 4), "u1"))})
expect_error(["first.weight_scale", "it is F8_E4M3"], {name: value for name, value in nvfp4.items() if name != "first.weight_scale_2"})
expect_error(["first.weight_scale", "one per group"], {**nvfp4, "first.weight_scale": ("F8_E4M3", np.full((64, 3), 64, "u1"))})
other = nvfp4["first.weight"][1].copy()
other[5, 8:16] = 0x11  # codes of 1/2 alone: a scale that is made of them is another one
expect_error(["tensor 'first.weight'", "scales of this file are not supported"], {**nvfp4, "first.weight": ("U8", other)})

# NVFP4 of compressed-tensors 0.20.0 (tests/data/quantized/generate.py): its codes and scales, which are quotients by weight_global_scale
# there and products by 1 / weight_global_scale here.
LEVELS = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
given = os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "data", "quantized", "compressed_nvfp4.safetensors")
run("import", given, "--network", "net.json", "--input-shape", SHAPE, "--classes", "10", "-o", "compressed_nvfp4.h5")
tensors = load(given)
with h5py.File("compressed_nvfp4.h5") as file:
    for name in ("first", "second"):
        packed, scale, whole = (tensors[f"{name}.weight_{kind}"][1] for kind in ("packed", "scale", "global_scale"))
        codes = LEVELS[np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1, 16)]
        exponent, mantissa = scale >> 3, scale & 7
        e4m3 = np.where(exponent > 0, 2.0 ** (exponent - 7.0) * (1 + mantissa / 8), mantissa * 2.0 ** -9).astype(np.float32)
        values = codes * (e4m3 * (np.float32(1) / whole))[..., None]
        assert np.array_equal(file["parameters"][f"{name}.weight"][...].ravel(), values.ravel()), name
run("evaluate", "compressed_nvfp4.h5", "--data", DIGITS)

# MXFP4 of ModelOpt (tests/data/quantized/generate.py). A block whose largest number was rounded down to 3 has its scale from the number
# that it was: these become a little larger, which makes the scale again and the same codes.
given = os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "data", "quantized", "modelopt_mxfp4")
run("import", given, "--input-shape", "16", "-o", "mxfp4.h5")
tensors, raised = load(os.path.join(given, "model.safetensors")), 0
with h5py.File("mxfp4.h5") as file:
    parameters = {name: value[...] for name, value in file["parameters"].items()}
for name, (dtype, packed) in tensors.items():
    if dtype == "U8" and name.endswith(".weight"):
        codes = LEVELS[np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1, 32)]
        low = (np.abs(codes).max(-1, keepdims=True) == 3) & (np.abs(codes) == 3)
        codes = codes * np.where(low, np.float32(1 + 2 ** -7), np.float32(1)) * np.exp2(tensors[name + "_scale"][1][..., None] - np.float32(127))
        match = [value for value in parameters.values() if value.size == codes.size and np.array_equal(value.ravel(), codes.ravel())]
        assert len(match) == 1, name
        raised += low.sum()
assert raised > 0
weight = tensors["model.layers.0.mlp.up_proj.weight"][1].copy()
weight[5, :16] = 0x22  # codes of 1 alone
other = dict(tensors, **{"model.layers.0.mlp.up_proj.weight": ("U8", weight)})
os.mkdir("other")
for name in ("config.json", "hf_quant_config.json"):
    shutil.copy(os.path.join(given, name), "other")
save("other/model.safetensors", other)
fails(2, ["up_proj.weight", "scales of this file are not supported"], "import", "other", "--input-shape", "16", "-o", "none.h5")

with open("net.pte", "wb") as file:
    file.write(b"\x3c\0\0\0ET12eh00\x20\0\0\0")
fails(2, ["net.pte", "an ExecuTorch program", "import the checkpoint"], "import", "net.pte", "-o", "none.h5")
