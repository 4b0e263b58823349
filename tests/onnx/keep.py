"""keep.py FAKEQUANT: trains and calibrates the networks of kept/ again, in the current folder. Run by hand if other networks are
wanted: the bounds of the tests that read them were measured on these, trained on Debian 12 (oneDNN 2.6, AVX-512 with VNNI).

Float sums depend on libraries and processors: networks trained elsewhere have other bits, and another number of codes near
ties, where floats of an engine may round to the next code.
"""

import json
import lzma
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(command, *arguments):
    subprocess.run([sys.argv[1], command, *map(str, arguments), "--force"], check=True)


def keep(name):
    pathlib.Path(f"{name}.h5.xz").write_bytes(lzma.compress(pathlib.Path(f"{name}.h5").read_bytes(), preset=9))


data = ["--data", ROOT / "data" / "digits.h5"]
int8 = [*data, "--preset", "int8"]
run("train", "--model", ROOT / "tests" / "data" / "every_layer.json", *data, "--epochs", 1, "-o", "trained.h5")
run("fold", "trained.h5", "-o", "every_layer.h5")
keep("every_layer")
for target in ("ort", "tensorrt", "none"):
    run("calibrate", "every_layer.h5", *int8, "--target", target, "-o", f"every_layer_{target}.h5")
    keep(f"every_layer_{target}")

run("train", "--model", ROOT / "models" / "digits_cnn.json", *data, "--epochs", 4, "--batch", 64, "--lr", 0.004, "--seed", 5, "-o",
    "trained.h5")
run("fold", "trained.h5", "-o", "digits_cnn.h5")
keep("digits_cnn")
run("calibrate", "digits_cnn.h5", *data, "--preset", "fp8", "-o", "digits_cnn_fp8.h5")
keep("digits_cnn_fp8")

# resnet20 with half the channels; an early code differs in it.
model = json.loads((ROOT / "models" / "resnet20.json").read_text())
for node in model["nodes"]:
    channels = node.get("options", {}).get("out_channels")
    if channels:
        node["options"]["out_channels"] = channels // 2
pathlib.Path("resnet20.json").write_text(json.dumps(model))
run("train", "--model", "resnet20.json", *data, "--epochs", 3, "--batch", 64, "--lr", 0.004, "--seed", 12, "--threads", 1, "-o", "resnet20.h5")
run("calibrate", "resnet20.h5", *int8, "--target", "tensorrt", "-o", "resnet20_tensorrt.h5")
keep("resnet20_tensorrt")
