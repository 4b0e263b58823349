"""Shared code of the tests of exported files."""

import json
import lzma
import os
import shutil
import subprocess
import sys

SOURCE = os.environ["FAKEQUANT_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "cli", "lib"))
from command import COMMAND, DIGITS, english, events, fails, result, run, start  # noqa: E402, F401

sys.path.insert(0, os.path.join(SOURCE, "python"))
from fakequant.engines.processor import has_avx512_vnni, has_vnni  # noqa: E402, F401

NETWORKS = ["cnn", "digits_cnn", "mlp", "resnet20"]


def session_options():
    """Returns session options that make integer results exact on this processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if has_vnni() is False:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def trained(name):
    """A float checkpoint of the fixture."""
    return os.path.join(os.environ["FAKEQUANT_NETWORKS"], name + ".h5")


def unpack_checkpoint(name):
    """A checkpoint of kept/ (keep.py), whose bits are the same on all systems: for bounds that were measured."""
    with lzma.open(os.path.join(SOURCE, "tests", "onnx", "kept", name + ".h5.xz")) as packed, open(name + ".h5", "wb") as file:
        shutil.copyfileobj(packed, file)
    return name + ".h5"


def imported(jobs):
    """Imports and runs networks. A job is (file, output, x, path of the answer); its result {"shape": ..} or {"rejected": reason}."""
    lines = []
    for i, (file, output, x, path) in enumerate(jobs):
        x.tofile(f"{i}.x")
        lines.append(" ".join([file, output, f"{i}.x", path, *map(str, x.shape)]))
    with open("jobs", "w") as listed:
        listed.write("\n".join(lines))
    done = subprocess.run([os.environ["ONNX_IMPORTED"], "jobs"], stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def calibrated(network, *flags, name=None):
    """Calibrates, exports and gives checkpoint and file."""
    name = name or "_".join([network, *(flag.strip("-") for flag in flags)])
    checkpoint, file = name + ".h5", name + ".onnx"
    result("calibrate", trained(network), "--data", DIGITS, *flags, "-o", checkpoint)
    result("export", checkpoint, "--format", "onnx", "-o", file)
    return checkpoint, file


def verified(checkpoint, file, *flags, status=0):
    """The counts of fakequant verify, which must end with that status."""
    lines = run("verify", file, "--checkpoint", checkpoint, "--data", DIGITS, "--json", *flags, status=status).stdout
    return json.loads(lines.splitlines()[-1])


def assert_identical(found, samples=360):
    same = {"codes_different": 0, "logit_bits_different": 0, "flips": 0, "max_abs_diff": 0, "not_in_file": [],
            "alone_logit_bits_different": 0, "exposed_logit_bits_different": 0, "samples": samples, "logits": 10 * samples}
    assert found["codes"] > 0 and {key: found[key] for key in same} == same, found
