"""Values that are moved between a layer and its reader: both round the sums of the layer once, before they are moved."""

import json

from lib import DIGITS, assert_identical, result, verified

RANDOM = 10000
MOVES = {"QuantizeLinear", "Clip", "Transpose", "Flatten", "Reshape", "QGemm", "QLinearConv", "QLinearConcat", "NhwcMaxPool",
         "QLinearGlobalAveragePool"}


def layer(kind, **options):
    inputs = {"inputs": options.pop("inputs")} if "inputs" in options else {}
    name = {"name": options.pop("name")} if "name" in options else {}
    return {"type": kind, **name, **inputs, **({"options": options} if options else {})}


def conv(**options):
    return layer("conv2d", **{"out_channels": 16, "kernel": 3, "padding": 1, **options})


SHUFFLE = [layer("reshape", shape=[4, 4, 8, 8]), layer("transpose", axes=[0, 2, 1, 3, 4]), layer("reshape", shape=[16, 8, 8])]
HEAD = [layer("flatten"), layer("linear", out_features="classes")]
NETWORKS = {
    "turned": [conv(), layer("transpose", axes=[0, 1, 3, 2]), conv(), layer("relu"), layer("transpose", axes=[0, 2, 3, 1]),
               conv(), layer("transpose", axes=[0, 3, 1, 2]), *HEAD],
    "shuffled": [conv(), layer("relu"), *SHUFFLE, conv(groups=4), *SHUFFLE, conv(groups=4), layer("global_avg_pool"), *HEAD],
    "relu_behind": [conv(), *SHUFFLE, layer("relu"), conv(kernel=1, padding=0), layer("transpose", axes=[0, 3, 2, 1]),
                    layer("relu"), *HEAD],
    "rows": [layer("reshape", shape=[8, 8]), layer("linear", out_features=32), layer("transpose", axes=[0, 2, 1]),
             layer("linear", out_features=16), layer("relu"), layer("transpose", axes=[0, 2, 1]),
             layer("linear", out_features=24), *HEAD],
    "joined": [conv(name="a"), layer("relu", name="b"), conv(name="c", inputs=["input"]),
               layer("concat", name="d", inputs=["b", "c"]), layer("transpose", axes=[0, 1, 3, 2]), conv(), *HEAD],
}
# If the engine merges a transposition with another one, no tensor has these codes: their reader is compared.
UNSEEN = {"turned": ["conv2d_2.input_quantizer", "conv2d_5.input_quantizer"]}

for name, nodes in NETWORKS.items():
    with open(f"{name}.json", "w") as file:
        json.dump(nodes, file)
    result("train", "--model", f"{name}.json", "--data", DIGITS, "--epochs", 1, "--batch", 64, "--lr", "0.004", "--seed", 5,
           "-o", f"{name}_float.h5")
    result("calibrate", f"{name}_float.h5", "--data", DIGITS, "--preset", "int8", "-o", f"{name}.h5")
    result("export", f"{name}.h5", "--format", "onnx", "-o", f"{name}.onnx")
    unseen = UNSEEN.get(name, [])
    found = verified(f"{name}.h5", f"{name}.onnx", "--random", RANDOM, "--seed", 1)
    assert_identical(found, 360 + RANDOM)
    assert list(found["not_compared"]) == unseen, found["not_compared"]
    assert found["level"] == "all" and set(found["kernels"]) <= MOVES, found["kernels"]
