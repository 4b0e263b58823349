#!/usr/bin/env python3
"""generate.py [--seed N] [--out FOLDER] [FAMILY...]: runs the reference libraries and writes their answers.

One file own_<family>.h5 each, in the schema of the golden files: a group for each case with the function's name, its
parameters, in/ and out/; and onnx_import/, networks as PyTorch exports them, with their logits. The files beside this
program were made with the default seed. `scripts/goldens` makes the environment with the versions below and runs this.
References, as pinned:
"""

PINS = {"torch": "2.15.0", "torchao": "0.18.0", "nvidia-modelopt": "0.47.0", "onnxruntime": "1.31.1", "onnx": "1.23.2",
        "onnxscript": "0.7.2", "ml_dtypes": "0.6.0", "numpy": "2.4.6", "h5py": "3.16.0", "huggingface_hub": "2.4.0",
        "requests": "2.34.2"}  # the last two: modelopt imports them without asking for them

import argparse  # noqa: E402
import importlib.metadata  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import warnings  # noqa: E402

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

FAMILIES = ["torch", "torchao_affine", "torchao_float", "modelopt_int", "modelopt_float", "modelopt_qtensor",
            "modelopt_quantizer", "pytorch_quantization", "onnx", "calibrators", "observers"]
NETWORKS = "onnx_import"  # networks of PyTorch's exporters, a folder of its own


def check_versions():
    for package, wanted in PINS.items():
        found = importlib.metadata.version(package)
        if found.split("+")[0] != wanted:
            sys.exit(f"generate.py: {package} is {found}, but the golden files use {wanted}: use scripts/goldens")


def main():
    parser = argparse.ArgumentParser(description=__doc__ + "  " + ", ".join(f"{k} {v}" for k, v in PINS.items()),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", metavar="FAMILY", nargs="*", help=f"of {', '.join([*FAMILIES, NETWORKS])} (default: all)")
    parser.add_argument("--seed", type=int, default=4, metavar="N")
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)), metavar="FOLDER")
    parser.add_argument("--pins", action="store_true", help="print the pinned packages and stop")
    options = parser.parse_args()
    if options.pins:
        print("\n".join(f"{package}=={version}" for package, version in PINS.items()))
        return
    unknown = set(options.families) - {*FAMILIES, NETWORKS}
    if unknown:
        parser.error(f"no family {', '.join(sorted(unknown))}: use {', '.join([*FAMILIES, NETWORKS])}")
    check_versions()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(1)
    from generators.family import Family

    for name in options.families or [*FAMILIES, NETWORKS]:
        if name == NETWORKS:
            print(__import__("generators.onnx_import", fromlist=["make"]).make(options.out, options.seed), flush=True)
            continue
        module = __import__(f"generators.{name}_cases", fromlist=["make"])
        with Family(options.out, name, module.SOURCE, options.seed) as family:
            module.make(family)
        print(f"{family.path}: {family.count} cases, {os.path.getsize(family.path)} bytes", flush=True)


if __name__ == "__main__":
    main()
