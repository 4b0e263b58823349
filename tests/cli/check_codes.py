"""scripts/check_codes.py compares every code of every quantizer, or says that it cannot."""

import os
import shutil
import subprocess
import sys

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, SOURCE, run  # noqa: E402


def check(status, expected, checkpoint="int8.h5", predictions="codes.h5", data=DIGITS):
    line = [sys.executable, os.path.join(SOURCE, "scripts", "check_codes.py"), checkpoint, "scales.h5", data, predictions]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == status and expected in done.stdout + done.stderr, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr


def changed(change):
    """The predictions with something changed."""
    shutil.copy("codes.h5", "changed.h5")
    with h5py.File("changed.h5", "r+") as file:
        change(file)
    return "changed.h5"


def cut(name, rows):
    def change(file):
        values = file[name][:rows]
        del file[name]
        file[name] = values
    return change


def add_one(name):
    def change(file):
        values = file[name][()]
        values.flat[0] += 1
        file[name][()] = values
    return change


run("train", *SHORT, "-o", "float.h5")
run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "-o", "int8.h5")
run("export", "int8.h5", "-o", ".")
run("predict", "int8.h5", "--data", DIGITS, "--codes", "-o", "codes.h5")
check(0, "train == deploy: 0 of ")
with h5py.File("codes.h5") as file:
    names = ["codes/" + name for name in file["codes"]]
assert len(names) >= 4, names

run("predict", "int8.h5", "--data", DIGITS, "-o", "none.h5")
check(2, "nothing to compare", predictions="none.h5")
for name in names:
    check(1, "train == deploy: 1 of ", predictions=changed(add_one(name)))
    check(2, name.removeprefix("codes/"), predictions=changed(lambda file, name=name: file.pop(name)))
    check(2, name.removeprefix("codes/"), predictions=changed(lambda file, name=name: file.move(name, "codes/other")))
for name in [*names, "logits"]:
    for rows in [0, 1]:
        check(2, name.removeprefix("codes/"), predictions=changed(cut(name, rows)))
check(1, "and 1 of 3,600 logits differ", predictions=changed(add_one("logits")))

run("calibrate", "float.h5", "--data", DIGITS, "--preset", "int8", "--keep-bn", "-o", "live.h5")
run("export", "live.h5", "-o", ".")
run("predict", "live.h5", "--data", DIGITS, "--codes", "-o", "live_codes.h5")
check(2, "live batch norms", checkpoint="live.h5", predictions="live_codes.h5")
