"""A flag that says nothing without another is refused, and both are named; flags of other commands are known by name."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, run  # noqa: E402

run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "-o", "int8.h5")
DATA = ["--data", DIGITS]
TRAIN = ["train", "--model", "mlp", *DATA, "-o", "x.h5"]
CALIBRATE = ["calibrate", "float.h5", *DATA, "-o", "x.h5"]
QAT = ["qat", "int8.h5", *DATA, "-o", "x.h5"]
EXPORT = ["export", "int8.h5", "-o", "x"]
VERIFY = ["verify", "x.onnx", "--checkpoint", "int8.h5", *DATA]
PLAN = ["sensitivity", "int8.h5", *DATA]
IDLE = [
    (TRAIN, ["--set", "optimizer.momentum=0.5"], "--optimizer"), (TRAIN + ["--optimizer", "lion"], ["--set", "optimizer.momentum=0.5"], "--optimizer"),
    (TRAIN, ["--set", "optimizer.nesterov=true"], "--optimizer"), (TRAIN, ["--set", "rank_timeout=5"], "--micro-batch"),
    (TRAIN, ["--allow-changes"], "--resume"), (TRAIN, ["--map", "m.json"], "--init"), (TRAIN, ["--init-partial"], "--init"),
    (["train", "--checkpoint", "float.h5", *DATA, "-o", "x.h5"], ["--model-options", "{}"], "--model"),
    (TRAIN + ["--teacher", "float.h5", "--distill", "mse"], ["--set", "distillation.temperature=3"], "--distill"),
    (CALIBRATE, ["--percentile", "50"], "--method percentile"),
    (CALIBRATE + ["--method", "max"], ["--percentile", "99"], "--method percentile"),
    (["calibrate", "float.h5", "--merge", "a.h5", "-o", "x.h5"], ["--samples", "9"], "--data"),
    (["calibrate", "float.h5", "--merge", "a.h5", "-o", "x.h5"], ["--split", "test"], "--data"),
    (["calibrate", "float.h5", "--merge", "a.h5", "-o", "x.h5"], ["--skip", "9"], "--data"),
    (["calibrate", "float.h5", "--merge", "a.h5", "-o", "x.h5"], ["--errors"], "--data"),
    (QAT + ["--amax", "frozen"], ["--set", "amax_gradient=lsq"], "--amax learned"), (QAT, ["--set", "amax_momentum=0.5"], "--amax running"),
    (QAT + ["--amax", "learned"], ["--set", "freeze_amax_after=3"], "--amax running"),
    (QAT, ["--method", "max"], "already quantized"), (QAT, ["--samples", "9"], "already quantized"),
    (QAT, ["--target", "none"], "already quantized"), (QAT, ["--set", "keep_bn=true"], "already quantized"),
    (EXPORT, ["--opset", "17"], "--format onnx"), (EXPORT, ["--emulate"], "--format onnx"), (EXPORT, ["--target", "ort"], "--format onnx"),
    (EXPORT, ["--float-type", "f16"], "--format gguf"), (EXPORT, ["--trt-version", "8601"], "--format trt-cache"),
    (EXPORT, ["--calibrator", "minmax"], "--format trt-cache"), (EXPORT, ["--timeout", "3"], "--format executorch"),
    (EXPORT, ["--batch", "3"], "--data"), (VERIFY + ["--engine", "openvino"], ["--level", "all"], "--engine ort"),
    (VERIFY + ["--target", "tensorrt"], ["--tolerance", "1"], "--target ort"), (PLAN, ["--formats", "int8"], "--effective-bits"),
    (PLAN, ["--keep-bn"], "--effective-bits"), (["dataset", "show", DIGITS, "--html", "x.html"], ["--seed", "3"], "--augment"),
    (["import", "m.onnx", "-o", "x.h5"], ["--network-options", "{}"], "--network"), (["fold", "float.h5", "-o", "x.h5"], ["--batch", "3"],
                                                                                       "--data"),
]
for line, flags, other in IDLE:
    fails(2, [flags[0], other], *line, *flags)

# Together with the flags that they belong to, they are accepted.
for line, flags, other in [(TRAIN, ["--set", "optimizer.momentum=0.5"], ["--optimizer", "sgd,dampening=0.1"]),
                           (TRAIN, ["--set", "distillation.temperature=3"], ["--teacher", "int8.h5"]),
                           (QAT, ["--set", "amax_momentum=0.5"], ["--amax", "running"]),
                           (QAT, ["--set", "amax_gradient=clip"], ["--set", "learn_weight_ranges=true"])]:
    run(*line, *flags, *other, "--dry-run")
run(*CALIBRATE, "--percentile", "99", "--method", "percentile")
with open("config.json", "w") as file:
    file.write('{"preset": "int8", "rules": [{"pattern": "*input_quantizer", "calib_method": "percentile"}]}')
run(*CALIBRATE, "--percentile", "99", "--config", "config.json")

fails(2, ["--preset", "calibrate", "qat"], *TRAIN, "--preset", "int8")
fails(2, ["--strict", "dataset check"], *TRAIN, "--strict")
print("idle flags: ok")
