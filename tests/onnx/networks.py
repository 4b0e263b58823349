"""Float networks on the digits for the tests of exported files: trained for a few seconds each."""

import os
import sys

sys.path.insert(0, os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "tests", "cli", "lib"))
from command import DIGITS, SOURCE, result  # noqa: E402

NETWORKS = {"cnn": 2, "digits_cnn": 4, "mlp": 2, "resnet20": 3}

for name, epochs in NETWORKS.items():
    result("train", "--model", os.path.join(SOURCE, "models", name + ".json"), "--data", DIGITS, "--epochs", epochs,
           "--batch", 64, "--lr", "0.004", "--seed", 5, "-o", name + ".h5")
