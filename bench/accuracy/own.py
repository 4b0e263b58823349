"""Our side: float networks, calibrated and fine-tuned by `calibrate` and `qat` with --preset alone."""

import json
import os
import subprocess

from .cases import BATCH, FLOAT_RATE


def run(command, *words):
    """Standard output; one thread, as the peers."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([command, *map(str, words)], text=True, capture_output=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-800:]}")
    return done.stdout


def accuracy(command, checkpoint, data):
    lines = [json.loads(line) for line in run(command, "evaluate", checkpoint, "--data", data, "--json").splitlines()]
    return [line["accuracy"] for line in lines if "accuracy" in line][-1]


def float_network(command, case, data, seed, path):
    """Trains the float network, unless its file exists."""
    if not os.path.exists(path):
        options = ["--model-options", case.options] if case.options else []
        run(command, "train", "--model", case.network, *options, "--data", data, "--epochs", case.epochs, "--batch", BATCH,
            "--lr", FLOAT_RATE, *case.flags, "--seed", seed, "-o", path)
    return accuracy(command, path, data)


def quantized(command, case, data, seed, path, preset):
    """Accuracy calibrated and fine-tuned, by defaults."""
    stem = f"{os.path.splitext(path)[0]}.{preset}"
    calibrated, tuned = f"{stem}.ptq.h5", f"{stem}.qat.h5"
    run(command, "calibrate", path, "--data", data, "--preset", preset, "-o", calibrated)
    run(command, "qat", calibrated, "--data", data, "--epochs", case.fine_epochs, "--batch", BATCH, "--seed", seed, "-o", tuned)
    found = {"ptq": accuracy(command, calibrated, data), "qat": accuracy(command, tuned, data)}
    os.remove(calibrated), os.remove(tuned)
    return found
