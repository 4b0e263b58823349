"""Killed and resumed at random moments; stopped by Ctrl-C; resumed with another model."""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, TINY, fails, patient, result, run, same_bytes, start  # noqa: E402
from crash import kill_and_resume  # noqa: E402

RUN = TINY + ["--data", DIGITS, "--batch", "64", "--seed", "1", "--set", "save_every=5", "--augment",
              "shift=0.6,randaugment=1:5,noise=0.05,cutout=2,mixup=0.3,cutmix=1", "--set", "loader.balanced=true"]
kill_and_resume(["train", *RUN, "--epochs", "8", "--ema", "0.99", "--val-fraction", "0.2"], 3)
run("train", *SHORT, "-o", "float.h5")
kill_and_resume(["qat", "float.h5", "--preset", "int8", "--amax", "running", "--set", "freeze_amax_after=40", "--data", DIGITS,
                 "--epochs", "3", "--set", "save_every=5", "--lr", "0.001"], 2)
kill_and_resume(["qat", "float.h5", "--preset", "w4a4", "--amax", "learned", "--data", DIGITS, "--epochs", "3",
                 "--set", "save_every=5", "--lr", "0.001", "--ema", "0.9"], 1)

process = start("train", *TINY, "--data", DIGITS, "--epochs", "2000", "-o", "stopped.h5", "--json")
assert '"epoch"' in process.stdout.readline() and '"epoch"' in process.stdout.readline()
process.send_signal(signal.SIGINT)
_, errors = process.communicate(timeout=patient(60))
assert process.returncode == 130 and errors.count("\n") == 1 and errors.startswith("fakequant: ["), errors
assert result("inspect", "stopped.h5")["kind"] == "checkpoint"

fails(2, ["model"], "train", "--model", "mlp", "--data", DIGITS, "--epochs", "2", "--resume", "-o", "float.h5")
run("train", *SHORT, "-o", "again.h5")
run("train", *SHORT, "--resume", "-o", "again.h5")
assert same_bytes("again.h5", "float.h5"), "resuming a finished run changed it"

# A given number of steps, ending within an epoch. More steps give the bits of a run with the larger number from the start.
STEPS = [*RUN, "--schedule", "constant"]
assert result("train", *STEPS, "--steps", "7", "-o", "parts.h5")["steps"] == 7
run("train", *STEPS, "--steps", "30", "--resume", "-o", "parts.h5")
run("train", *STEPS, "--steps", "30", "-o", "steps.h5")
assert same_bytes("parts.h5", "steps.h5")
run("train", *STEPS, "--steps", "7", "-o", "run/")
run("train", "--resume", "run/", "--steps", "30")
assert same_bytes("run/checkpoints/last.h5", "steps.h5")
fails(2, ["--steps 7", "--epochs 2"], "train", *RUN, "--steps", "7", "--epochs", "2", "-o", "both.h5")
print("resume: ok")
