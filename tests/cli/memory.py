"""Memory of a step is planned and measured; gradient checkpointing takes less of it and changes no bit."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, events, fails, result, run, same_bytes  # noqa: E402

DEEP = ["--model", "resnet20", "--model-options", '{"widths": [8, 8, 8], "blocks": 3}', "--data", DIGITS, "--epochs", "2",
        "--seed", "1"]

report = [event for event in events("train", *DEEP, "-o", "plain.h5") if event["event"] == "epoch"]
assert ["memory" in event for event in report] == [True, False], report
plain = report[0]["memory"]
assert 0 < plain["saved_activations"] < plain["planned_peak"]
assert 0.5 < plain["measured_peak"] / plain["planned_peak"] < 2, plain  # batches ahead and scratch memory are not planned

blocks = result("train", *DEEP, "--set", "checkpoint_blocks=stage?_block?", "-o", "blocks.h5")["memory"]
assert same_bytes("plain.h5", "blocks.h5")
assert blocks["saved_activations"] < plain["saved_activations"] / 2, (blocks, plain)
assert blocks["measured_peak"] < plain["measured_peak"], (blocks, plain)

found = result("inspect", "plain.h5", "--batch", "128")["memory"]
assert found["batch"] == 128 and found["peak"] > found["saved_activations"] > plain["saved_activations"] * 1.5
assert "training step of 64 samples" in run("inspect", "plain.h5").stdout

fails(2, ["--batch"], "inspect", "plain.h5", "--batch", "0")
fails(2, ["set_checkpointing", "nonsense"], "train", *DEEP, "--set", "checkpoint_blocks=nonsense", "-o", "never.h5")
print("memory: ok")
