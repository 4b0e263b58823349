#!/usr/bin/env python3
"""tests/data/generate.py [--command FILE]: trains the networks of tests/train/ptq on the digits and folds their batch norm.

Writes digits_cnn.h5 and digits_mlp.h5 beside this program, from the models of the same names. Bounds of the tests hold for
any such training, not for these weights alone. Standard library only.
"""

import argparse
import os
import subprocess
import tempfile

NETWORKS = ["digits_cnn", "digits_mlp"]
TRAINING = ["--epochs", "30", "--batch", "64", "--lr", "0.004", "--schedule", "onecycle", "--augment", "shift=0.5", "--seed", "1"]


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default="build/release/bin/fakequant")
    command = parser.parse_args().command
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            trained = os.path.join(folder, f"{name}.h5")
            subprocess.run([command, "train", "--model", f"tests/data/{name}.json", "--data", "data/digits.h5", *TRAINING, "-o",
                            trained], check=True)
            subprocess.run([command, "fold", trained, "-o", f"tests/data/{name}.h5"], check=True)


main()
