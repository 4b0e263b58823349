"""Volumes: convolutions, norms, pools and the padding of convolutions, from a model file to integers in ONNX Runtime."""

import json

import h5py
import numpy as np
from lib import result, run


def layer(kind, **options):
    return {"type": kind, **({"options": options} if options else {})}


def verified(name, shape, nodes, integers=True):
    random = np.random.default_rng(3)
    with h5py.File(f"{name}_data.h5", "w") as file:
        for split, count in (("train", 64), ("test", 96)):
            y = np.arange(count) % 3
            x = random.standard_normal((count, *shape)).astype(np.float32)
            file[f"{split}/x"], file[f"{split}/y"] = x + y.reshape(-1, *[1] * len(shape)).astype(np.float32), y
    with open(f"{name}.json", "w") as file:
        json.dump(nodes, file)
    data = ["--data", f"{name}_data.h5"]
    result("train", "--model", f"{name}.json", *data, "--epochs", 2, "--batch", 16, "--seed", 1, "-o", f"{name}_float.h5")
    result("calibrate", f"{name}_float.h5", *data, "--preset", "int8", "-o", f"{name}_ptq.h5")
    result("qat", f"{name}_ptq.h5", *data, "--epochs", 1, "--batch", 16, "-o", f"{name}.h5")
    report = result("export", f"{name}.h5", "--format", "onnx", "-o", f"{name}.onnx")
    assert not integers or report["float_operators"] == [], report["float_operators"]
    loose = [] if integers else ["--code-tolerance", 1, "--tolerance", 1]
    lines = run("verify", f"{name}.onnx", "--checkpoint", f"{name}.h5", *data, "--json", *loose).stdout
    found = json.loads(lines.splitlines()[-1])
    assert found["codes"] > 0 and found["not_in_file"] == [], found
    if integers:
        assert found["codes_different"] == found["logit_bits_different"] == found["flips"] == 0, found
    again = result("import", f"{name}_again.onnx", "-o", f"{name}_again.h5") if result(
        "export", f"{name}_float.h5", "--format", "onnx", "-o", f"{name}_again.onnx") else None
    assert again["classes"] == 3, again


HEAD = [layer("flatten"), layer("linear", out_features="classes")]
verified("volumes", (2, 6, 8, 7), [
    layer("conv3d", out_channels=8, kernel=3, padding=1, bias=False), layer("batch_norm"), layer("relu"),
    layer("max_pool", kernel=2, padding=[0, 0, 1]),
    layer("conv3d", out_channels=12, kernel=[1, 3, 3], padding=[0, 1, 1], groups=2, stride=[1, 2, 1]), layer("relu"),
    layer("avg_pool", kernel=[1, 2, 2]),
    layer("conv3d", out_channels=8, kernel=[3, 1, 1], padding=[1, 0, 0]), layer("relu"), layer("global_avg_pool"), *HEAD])
verified("upsampled", (2, 4, 4, 4), [
    layer("conv_transpose3d", out_channels=6, kernel=2, stride=2, output_padding=0), layer("relu"),
    layer("conv3d", out_channels=4, kernel=3), layer("relu"), *HEAD], integers=False)
verified("signals", (4, 12), [
    layer("conv1d", out_channels=8, kernel=3, padding=2, padding_mode="circular"), layer("relu"),
    layer("conv1d", out_channels=8, kernel=4, padding="same"), layer("relu"), *HEAD])
verified("images", (3, 8, 8), [
    layer("conv2d", out_channels=8, kernel=3, padding=1, padding_mode="reflect"), layer("relu"),
    layer("conv2d", out_channels=8, kernel=2, padding=[0, 1], padding_end=[1, 0]), layer("relu"),
    layer("conv2d", out_channels=8, kernel=3, padding=2, padding_mode="replicate", stride=2), layer("relu"), *HEAD])
