"""Programs that replace the Python of `fakequant verify`."""

import json
import os

import h5py
from command import DIGITS, run


def program(path, lines):
    """Writes a shell script that receives the arguments of that Python; $json is the path of the report."""
    with open(path, "w") as file:
        file.write('#!/bin/sh\nfor word; do case $word in --json=*) json=${word#--json=} ;; esac; done\n' + lines + "\n")
    os.chmod(path, 0o755)
    return os.path.abspath(path)


def right_report(checkpoint, folded=None):
    """Returns the report of an engine that computes the digits without differences."""
    run("predict", checkpoint, "--data", DIGITS, "--codes", "-o", "predictions.h5")
    with h5py.File("predictions.h5") as file:
        compared = {name: int(codes.size) for name, codes in file["codes"].items()}
        samples, logits = len(file["logits"]), int(file["logits"].size)
    same = {"codes_different": 0, "logit_bits_different": 0, "answers": 360, "flips": 0, "max_abs_diff": 0.0, "different": {}, "largest_steps": {}}
    return {"codes": sum(compared.values()), "logits": logits, **same, "folded": folded and dict(same), "samples": samples,
            "engine": "stand-in 1", "level": "all", "session_options": {}, "kernels": {"QGemm": 3}, "float_kernels": [],
            "compared": compared, "not_compared": {}, "not_in_file": [], "alone_logit_bits_different": 0,
            "exposed_logit_bits_different": 0, "tolerance": 0.0, "code_tolerance": 0.0, "flip_tolerance": 1.0, "same": True,
            "first_difference": None, "reasons": [], "ways": []}


def write(path, report):
    with open(path, "w") as file:
        file.write(report if isinstance(report, str) else json.dumps(report))
    return path
