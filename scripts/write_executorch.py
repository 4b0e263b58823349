#!/usr/bin/env python3
"""write_executorch.py NETWORK FILE.pte: an ExecuTorch program for XNNPACK, of a network as fakequant writes it down: an
HDF5 file with its operators and constants. Codes and scales are copied, never made anew. The batch is the one of the
file. With --json FILE what was written is told. Exit status: 0 written, 2 a network that cannot be, 3 a Python package is
missing."""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from engine_script import ended  # noqa: E402

try:
    import h5py

    from executorch_network import Network
    from executorch_program import VERSIONS, lowered
except ImportError as error:
    print(f"{sys.executable} has no {error.name}: run {sys.executable} -m pip install executorch torchao torch h5py, or name "
          "another Python by --python or FAKEQUANT_PYTHON", file=sys.stderr)
    raise SystemExit(3) from None


def run(args):
    with h5py.File(args.network) as file:
        network = Network(file)
    program, (inside, outside) = lowered(network, network.example())
    with open(args.file, "wb") as file:
        file.write(program)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"versions": VERSIONS, "bytes": len(program), "delegates": inside, "portable": outside,
                       "quantized_layers": network.quantized_layers}, file)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("file")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    raise SystemExit(ended(lambda: run(args), args.file))


if __name__ == "__main__":
    main()
