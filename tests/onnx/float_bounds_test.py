"""Networks of MobileNet's and U-Net's kind: where the engine computes floats between codes verify names them, judges by stated
bounds and suggests a remedy; with powers of two no code and no bit differs."""

import json

from lib import DIGITS, assert_identical, fails, result, verified


def conv(name, channels, kernel, inputs=None, **options):
    node = {"name": name, "type": "conv2d",
            "options": {"out_channels": channels, "kernel": kernel, "padding": kernel // 2, "bias": False, **options}}
    return [node | ({"inputs": [inputs]} if inputs else {}), {"name": f"{name}_bn", "type": "batch_norm"}]


def head():
    return [{"name": "pool", "type": "global_avg_pool"}, {"name": "flat", "type": "flatten"},
            {"name": "fc", "type": "linear", "options": {"out_features": "classes"}}]


def mobilenet(activation, gated):
    nodes = [*conv("stem", 16, 3), {"name": "stem_act", "type": activation}]
    nodes += [*conv("expand", 32, 1), {"name": "expand_act", "type": activation}]
    nodes += [*conv("depth", 32, 3, groups=32), {"name": "depth_act", "type": activation}]
    if gated:
        nodes += [{"name": "squeeze", "type": "global_avg_pool"}, *conv("down", 8, 1), {"name": "down_relu", "type": "relu"},
                  *conv("up", 32, 1), {"name": "gate", "type": "hard_sigmoid"},
                  {"name": "gated", "type": "multiply", "inputs": ["depth_act", "gate"]}]
    nodes += [*conv("project", 16, 1), {"name": "add", "type": "add", "inputs": ["project_bn", "stem_act"]}]
    return nodes + head()


def unet():
    up = {"name": "up", "type": "conv_transpose2d", "options": {"out_channels": 16, "kernel": 2, "stride": 2}}
    return [*conv("a", 16, 3), {"name": "a_relu", "type": "relu"}, *conv("b", 32, 3, stride=2), {"name": "b_relu", "type": "relu"}, up,
            {"name": "cat", "type": "concat", "inputs": ["up", "a_relu"]}, *conv("c", 16, 3), {"name": "c_relu", "type": "relu"}] + head()


def files(name, scale):
    checkpoint, file = f"{name}_{scale}.h5", f"{name}_{scale}.onnx"
    result("calibrate", f"{name}.h5", "--data", DIGITS, "--preset", "int8", "--scale", scale, "-o", checkpoint)
    result("export", checkpoint, "--format", "onnx", "-o", file)
    return checkpoint, file


NETWORKS = {"relu6": mobilenet("relu6", False), "swish": mobilenet("hard_swish", True), "unet": unet()}
for name, nodes in NETWORKS.items():
    with open(f"{name}.json", "w") as file:
        json.dump({"nodes": nodes}, file)
    result("train", "--model", f"{name}.json", "--data", DIGITS, "--epochs", "2", "--batch", "64", "--lr", "0.004", "--seed", "5",
           "-o", f"{name}.h5")
    found = verified(*files(name, "free"), "--random", "200")
    assert found["same"] and (found["code_tolerance"], found["tolerance"], found["flip_tolerance"]) == (1e-3, 0.02, 1e-3), found
    assert bool(found["reasons"]) == (found["first_difference"] is not None), found
    for group in found["begun"]:
        names = group["quantizers"]
        assert sum(names.values()) == group["codes_different"] <= sum(found["different"].get(name, 0) for name in names), found
        assert group["in_floats"] or name == "relu6" or not names, "differences must not start at integer sums, except clipped ones"
    assert sum(group["codes_different"] for group in found["begun"]) >= (found["codes_different"] > 0), found
    if found["first_difference"]:
        assert not any(way.startswith("accept it") for way in found["ways"]), found["ways"]
        assert any("--scale pow2" in way for way in found["ways"]), found["ways"]
    if name == "relu6" and found["reasons"]:
        assert "stem_act" in found["reasons"][0] and "one multiplication" in found["reasons"][0], found["reasons"]
    if name == "swish" and found["reasons"]:
        assert "HardSwish" in found["reasons"][0] and "float operators" in found["reasons"][0], found["reasons"]
    assert_identical(verified(*files(name, "pow2")))

# Given tolerances replace the defaults: every bit.
strict = verified("relu6_free.h5", "relu6_free.onnx", "--tolerance", "0", "--code-tolerance", "0", status=None)
assert strict["same"] == (strict["codes_different"] == strict["logit_bits_different"] == 0), strict
if not strict["same"]:
    assert any(way.startswith("accept it") for way in strict["ways"]), strict["ways"]
    fails(1, ["clip sums", "--scale pow2"], "verify", "relu6_free.onnx", "--checkpoint", "relu6_free.h5", "--data", DIGITS,
          "--tolerance", "0", "--code-tolerance", "0")
