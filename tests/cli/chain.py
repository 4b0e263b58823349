"""Every command once, from images to scales."""

import json
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, SOURCE, events, result, run  # noqa: E402

COMMANDS = ["train", "import", "fold", "calibrate", "qat", "evaluate", "predict", "generate", "compress", "export", "inspect", "run"]

for command in COMMANDS:
    text = run(command, "--help").stdout
    assert text.startswith("fakequant " + command) and "--json" in text, text
    assert run("help", command).stdout == text
assert run("help", "dataset", "from-npy").stdout == run("dataset", "from-npy", "--help").stdout
assert run("--version").stdout.startswith("fakequant 0."), run("--version").stdout
assert all(command in run("--help").stdout for command in COMMANDS)

train = ["train", "--model", "cnn", "--model-options", '{"widths": [12, 16, 16], "features": 32}', "--data", DIGITS, "--epochs", "6", "--batch", "32",
         "--lr", "0.01", "--label-smoothing", "0.05", "--augment", "shift=0.6,rotate=7.5,scale=0.1,shear=0.1",
         "--val-fraction", "0.2", "--seed", "3", "-o", "float.h5"]
FEW = 15  # points of accuracy: wrong scales cost 80, the rounding of a processor one or two
log = events(*train)
epochs = [event for event in log if event["event"] == "epoch"]
assert len(epochs) == 6 and epochs[-1]["loss"] < epochs[0]["loss"], epochs
assert {"epoch", "epochs", "loss", "accuracy", "val_accuracy", "lr", "images_per_second", "seconds"} <= set(epochs[0])
assert log[-1]["event"] == "result" and log[-1]["command"] == "train" and os.path.exists(log[-1]["output"])

plain = run("evaluate", "float.h5", "--data", DIGITS).stdout
assert "accuracy" in plain and "360 images" in plain and "\r" not in plain, plain
floating = result("evaluate", "float.h5", "--data", DIGITS)
assert floating["count"] == 360 and floating["accuracy"] > 85, floating

folded = result("fold", "float.h5", "-o", "folded.h5")
assert folded["folded"] >= 1
again = result("evaluate", "folded.h5", "--data", DIGITS)
assert abs(again["accuracy"] - floating["accuracy"]) < 0.6 and abs(again["loss"] - floating["loss"]) < 1e-3

result("calibrate", "folded.h5", "--data", DIGITS, "--preset", "int8", "-o", "ptq.h5")
result("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "-o", "ptq_from_float.h5")
ptq = result("evaluate", "ptq.h5", "--data", DIGITS)
assert ptq["accuracy"] > floating["accuracy"] - FEW and ptq["weight_bytes"] < floating["weight_bytes"] / 2, ptq
assert ptq["loss"] == result("evaluate", "ptq_from_float.h5", "--data", DIGITS)["loss"]
for method in ["moving_average", "percentile", "entropy", "mse", "octav", "lsq", "mse_search"]:
    result("calibrate", "folded.h5", "--data", DIGITS, "--method", method, "-o", f"{method}.h5", "--samples", "128")
    share = result("evaluate", f"{method}.h5", "--data", DIGITS)["accuracy"]
    # Entropy may cut the 17 gray levels of the images themselves: their histogram has 17 bins that are not empty.
    assert share > floating["accuracy"] - FEW or method == "entropy", (method, share)

qat = ["--data", DIGITS, "--epochs", "2", "--lr", "0.001", "--seed", "3"]
result("qat", "ptq.h5", *qat, "-o", "int8.h5")
assert result("evaluate", "int8.h5", "--data", DIGITS)["accuracy"] > floating["accuracy"] - FEW
result("qat", "folded.h5", "--preset", "w4a4", "--amax", "running", "--set", "freeze_amax_after=30", *qat, "-o", "w4a4.h5")
assert result("evaluate", "w4a4.h5", "--data", DIGITS)["accuracy"] > floating["accuracy"] - FEW
result("qat", "float.h5", "--preset", "fp8", "--set", "keep_bn=true", "--set", "quant_start=20", "--set", "freeze_bn_after=40", *qat, "-o",
       "e4m3.h5")
assert result("evaluate", "e4m3.h5", "--data", DIGITS)["accuracy"] > floating["accuracy"] - FEW

result("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "--keep-bn", "-o", "live.h5")
result("qat", "live.h5", *qat, "-o", "live_int8.h5")
live = result("fold", "live_int8.h5", "-o", "live_folded.h5", "--data", DIGITS)
assert live["folded"] == 4 and live["codes"] > 360 * 12 * 64 and live["different_codes"] == 0, live
assert live["accuracy_before"] == result("evaluate", "live_int8.h5", "--data", DIGITS)["accuracy"], live
assert live["accuracy_after"] == result("evaluate", "live_folded.h5", "--data", DIGITS)["accuracy"], live
assert "codes changed" in run("fold", "live_int8.h5", "-o", "live_folded.h5", "--data", DIGITS).stdout
assert "batch norms folded first" in run("export", "live_int8.h5", "-o", "live_").stdout

for preset in ["nvfp4", "mxfp4", "int4_blockwise", "fp8_per_channel_per_token"]:
    result("qat", "float.h5", "--preset", preset, *qat, "-o", f"{preset}.h5")
    assert result("evaluate", f"{preset}.h5", "--data", DIGITS)["accuracy"] > floating["accuracy"] - FEW, preset
    result("predict", f"{preset}.h5", "--data", DIGITS, "-o", f"{preset}_predictions.h5", "--codes", "--batch", "7")
    result("export", f"{preset}.h5", "-o", preset + "_")
frozen = {}
for ranges in [["frozen"], ["learned"], ["learned", "--set", "amax_gradient=lsq"]]:
    result("qat", "folded.h5", "--preset", "w4a4", "--amax", *ranges, *qat, "-o", "ranges.h5")
    frozen[ranges[-1]] = result("evaluate", "ranges.h5", "--data", DIGITS)["accuracy"]
assert min(frozen["learned"], frozen["amax_gradient=lsq"]) > frozen["frozen"] - FEW, frozen
result("export", "ranges.h5", "-o", "ranges_")

named = result("predict", "int8.h5", "--data", DIGITS, "-o", "predictions.h5", "--codes")
with h5py.File("predictions.h5") as file, h5py.File(DIGITS) as data:
    logits = file["logits"][()]
    assert logits.shape == (360, 10) and logits.dtype == np.float32
    share = 100 * np.mean(np.argmax(logits, 1) == data["test/y"][()])
    assert abs(share - result("evaluate", "int8.h5", "--data", DIGITS)["accuracy"]) < 1e-9
    assert len(file["codes"]) >= 2
    for name, codes in file["codes"].items():
        assert codes.shape[0] == 360 and codes.dtype.kind in "iu", (name, codes)
result("predict", "int8.h5", "--data", DIGITS, "-o", "predictions_7.h5", "--codes", "--batch", "7")
with h5py.File("predictions.h5") as a, h5py.File("predictions_7.h5") as b:
    assert np.array_equal(a["logits"][()], b["logits"][()])
    assert all(np.array_equal(a["codes"][name][()], b["codes"][name][()]) for name in a["codes"])

os.mkdir("scales")
result("export", "int8.h5", "-o", "scales")
result("export", "int8.h5", "-o", "named")
with open("scales/scales.json") as text, h5py.File("scales/scales.h5") as scales:
    listed = json.load(text)["quantizers"]
    assert any(q["name"].endswith("weight_quantizer") for q in listed), listed
    assert all(np.all(scales[q["name"]]["scale"][()] > 0) for q in listed if q["enabled"])
assert os.path.exists("named_scales.json") and os.path.exists("named_scales.h5")

for path, text in [("int8.h5", "quantizers"), ("float.h5", "parameters"), (DIGITS, "1437"), ("predictions.h5", "logits")]:
    assert text in run("inspect", path).stdout, (path, run("inspect", path).stdout)
assert result("inspect", "int8.h5")["parameters"] > 0
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8_weight_only", "-o", "weights8.h5")
for source, form, path in [("int8.h5", "onnx", "shown.onnx"), ("float.h5", "gguf", "shown.gguf"), ("weights8.h5", "safetensors",
                                                                                                "shown.safetensors")]:
    run("export", source, "--format", form, "-o", path)
    shown = result("inspect", path)
    assert shown["kind"] == form and shown["tensors"] and all(len(t["shape"]) <= 4 and t["type"] for t in shown["tensors"]), shown
    assert form == "safetensors" or shown["producer"] == "fakequant", shown
assert result("inspect", "shown.onnx")["quantizers"] > 0 and result("inspect", "shown.safetensors")["quantized_tensors"] > 0

recipe = {"model": "cnn", "model-options": {"widths": [8, 8, 8], "features": 16}, "data": DIGITS, "output": "recipe", "phases": [
    {"phase": "train in float", "command": "train", "epochs": 1, "output": "float.h5"},
    {"command": "fold", "checkpoint": "float.h5", "output": "folded.h5"},
    {"command": "calibrate", "checkpoint": "folded.h5", "preset": "int8", "output": "ptq.h5"},
    {"command": "evaluate", "checkpoint": "ptq.h5"},
    {"command": "export", "checkpoint": "ptq.h5", "output": "."},
    {"command": "export", "checkpoint": "folded.h5", "format": "onnx", "output": "again.onnx"},
    {"command": "import", "model": "again.onnx", "output": "again.h5"}]}
with open("recipe.json", "w") as file:
    json.dump(recipe, file, indent=1)
plain = run("run", "recipe.json", "--report", "report.json").stdout
assert "[1/7] train in float" in plain and "done in" in plain, plain
with open("report.json") as file:
    phases = json.load(file)["phases"]
assert [phase["command"] for phase in phases] == ["train", "fold", "calibrate", "evaluate", "export", "export", "import"]
assert phases[1]["result"]["codes"] == 0 and "accuracy" in phases[3]["result"] and os.path.exists("recipe/scales.json")
events("run", "recipe.json", "-o", "elsewhere")
assert os.path.exists("elsewhere/ptq.h5") and os.path.exists("elsewhere/again.h5")
print("chain: ok", COMMAND, SOURCE)
