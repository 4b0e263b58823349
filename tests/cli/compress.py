"""Weights as packed codes: the same bits from a smaller checkpoint, which everything that reads one takes."""

import json
import os
import shutil
import sys

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, result, run, same_bytes  # noqa: E402

run("train", *SHORT, "-o", "float.h5")
run("fold", "float.h5", "-o", "folded.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "--keep-bn", "-o", "live.h5")


def bytes_of_parameters(path):
    with h5py.File(path) as file:
        return sum(data.nbytes for data in file["parameters"].values())


SHARE = {"int8": 1 / 4, "w4a8": 1 / 8, "w2a2": 1 / 16, "int4_blockwise": 1 / 8, "fp8": 1 / 4, "nvfp4": 1 / 8, "mxfp4": 1 / 8,
         "mxfp8": 1 / 4}
for preset, share in SHARE.items():
    whole, small = f"{preset}.h5", f"{preset}_small.h5"
    edges = ["--edge-bits", "0"] if preset.startswith("w") or preset in ("nvfp4", "mxfp4") else []
    run("calibrate", "folded.h5", "--data", DIGITS, "--preset", preset, *edges, "-o", whole)
    sizes = result("compress", whole, "-o", small)
    assert sizes["file_bytes_before"] == os.path.getsize(whole) and sizes["file_bytes_after"] == os.path.getsize(small)
    assert sizes["total"]["bytes_before"] == bytes_of_parameters(whole), sizes
    weights = sum(part["elements"] for part in sizes["formats"].values())
    floats = sizes["floats"]["bytes_after"]
    assert floats + 4 * weights * share <= bytes_of_parameters(small) < floats + 4 * weights * share + 8, (preset, sizes)
    for name, path in [("a.h5", whole), ("b.h5", small)]:
        run("predict", path, "--data", DIGITS, "--codes", "-o", name)
    assert same_bytes("a.h5", "b.h5"), preset
    before, after = (result("evaluate", path, "--data", DIGITS) for path in (whole, small))
    assert (before["loss"], before["weight_bytes"]) == (after["loss"], after["weight_bytes"]), preset
    for prefix, path in [("a", whole), ("b", small)]:
        run("export", path, "-o", prefix)
    assert same_bytes("a_scales.json", "b_scales.json") and same_bytes("a_scales.h5", "b_scales.h5"), preset
    if preset == "fp8":
        for name, path in [("a.safetensors", whole), ("b.safetensors", small)]:
            run("export", path, "--format", "safetensors", "-o", name)
        assert same_bytes("a.safetensors", "b.safetensors")
    shown = result("inspect", small)
    assert shown["compressed"] and shown["parameters"] == result("inspect", whole)["parameters"], shown

text = run("compress", "int8.h5", "-o", "int8_small.h5").stdout
assert "int8 narrow" in text and "total" in text and "bytes" in text, text
assert "not folded" in run("compress", "live.h5", "-o", "live_small.h5").stdout

run("compress", "int8_small.h5", "--undo", "-o", "int8_again.h5")
run("predict", "int8.h5", "--data", DIGITS, "--codes", "-o", "a.h5")
run("predict", "int8_again.h5", "--data", DIGITS, "--codes", "-o", "b.h5")
assert same_bytes("a.h5", "b.h5")
run("qat", "int8_again.h5", "--data", DIGITS, "--epochs", "1", "-o", "tuned.h5")

UNDO = "int8_small.h5 is compressed. Use the checkpoint before compression, or restore float weights by"
fails(2, UNDO, "qat", "int8_small.h5", "--data", DIGITS, "-o", "out.h5")
fails(2, UNDO, "calibrate", "int8_small.h5", "--data", DIGITS, "--preset", "int8", "-o", "out.h5")
fails(2, UNDO, "train", "--checkpoint", "int8_small.h5", "--data", DIGITS, "-o", "out.h5")
fails(2, UNDO, "fold", "int8_small.h5", "-o", "out.h5")
fails(2, "live_small.h5 is compressed", "export", "live_small.h5", "-o", "out")
fails(2, "compressed already", "compress", "int8_small.h5", "-o", "out.h5")
fails(2, "not compressed: leave out --undo", "compress", "int8.h5", "--undo", "-o", "out.h5")
fails(2, "no quantizers: run fakequant calibrate first", "compress", "float.h5", "-o", "out.h5")
fails(2, "cannot", "compress", "int8.h5", "-o", "nowhere/out.h5")
shutil.copy("int8_small.h5", "cut.h5")
os.truncate("cut.h5", os.path.getsize("cut.h5") // 2)
fails(2, "cut.h5", "compress", "cut.h5", "--undo", "-o", "out.h5")

recipe = {"data": DIGITS, "output": ".", "phases": [
    {"command": "compress", "checkpoint": "int8.h5", "output": "phase.h5"},
    {"command": "evaluate", "checkpoint": "phase.h5"}]}
with open("recipe.json", "w") as file:
    json.dump(recipe, file)
run("run", "recipe.json")
assert same_bytes("phase.h5", "int8_small.h5")
print("compress: ok")
