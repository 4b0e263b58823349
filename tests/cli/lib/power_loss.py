"""Entry point of scripts/crash power. power_loss.py MOST [NAME..]: largest number of states per command that runs resume from."""

import os
import shutil
import sys

from command import DIGITS, TINY, run
from power import PowerTrial


def trials():
    shutil.rmtree("start", ignore_errors=True)
    for folder in ("none", "float", "int8"):
        os.makedirs(f"start/{folder}")
    short = ["--data", DIGITS, "--batch", "720", "--threads", "1", "--seed", "3"]
    train = ["train", *TINY, *short, "--epochs", "3", "--set", "keep_epochs=2", "--val-fraction", "0.2", "--set", "log=csv,tensorboard"]
    run("train", *TINY, *short, "--epochs", "1", "-o", "start/float/float.h5", threads=1)
    run("calibrate", "start/float/float.h5", "--data", DIGITS, "--samples", "64", "-o", "start/int8/int8.h5", threads=1)
    run("export", "start/int8/int8.h5", "-o", "start/int8/out", threads=1)
    growing = ("run/log.txt", "run/metrics.jsonl", "run/events.out.tfevents.")
    yield PowerTrial("train", "start/none", [*train, "-o", "run/"], [*train, "--resume", "-o", "run/"],
                     ("run/checkpoints/last.h5", "run/checkpoints/best.h5"), growing)
    yield PowerTrial("qat", "start/int8", ["qat", "int8.h5", *short, "--epochs", "2", "-o", "qat.h5"],
                     ["qat", "int8.h5", *short, "--epochs", "2", "--resume", "-o", "qat.h5"], ("qat.h5",))
    yield PowerTrial("export", "start/int8", ["export", "int8.h5", "-o", "out"], ["export", "int8.h5", "-o", "out"],
                     ("out_scales.json", "out_scales.h5"))


def power_loss(most, names=None, log=lambda text: None):
    """Returns the number of states, and the number of states that runs resumed from."""
    counts = [trial.run(most, log) for trial in trials() if names is None or trial.name in names]
    return tuple(map(sum, zip(*counts)))


if __name__ == "__main__":
    states, tried = power_loss(int(sys.argv[1]), sys.argv[2:] or None, log=lambda text: print(text, flush=True))
    print(f"{states} states of the disk: every file whole, the old one or the new one; {tried} were gone on from")
