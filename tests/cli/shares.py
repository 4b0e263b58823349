"""Runs that keep one calibration state at once, and runs that are killed and repeated, count every image once."""

import fcntl
import json
import os
import signal
import sys
import time

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, fails, patient, run, same_bytes, start  # noqa: E402


def wait_until(what, seconds=120):
    end = time.monotonic() + patient(seconds)
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def samples(state):
    with h5py.File(state) as file:
        return json.loads(file["attributes"][()])["samples"]


run("train", *SHORT, "-o", "float.h5")
base = ["calibrate", "float.h5", "--method", "one_pass"]
data = [*base, "--data", DIGITS]
run(*data, "--samples", "300", "-o", "whole.h5")
run(*data, "--samples", "100", "-o", "first.h5")

# Three at once.
for attempt in range(3):
    if os.path.exists("s.h5"):
        os.remove("s.h5")
    runs = [start(*data, "--samples", "100", "--skip", skip, "--state", "s.h5", threads=1) for skip in (0, 100, 200)]
    for process in runs:
        _, errors = process.communicate(timeout=patient(300))
        assert process.returncode == 0, errors
    assert samples("s.h5") == 300, samples("s.h5")
    run(*base, "--merge", "s.h5", "-o", "merged.h5")
    assert same_bytes("merged.h5", "whole.h5")

# Killed while it writes -o, before it writes --state: a pipe without a reader blocks it there.
os.mkfifo("pipe")
killed = start(*data, "--samples", "100", "--state", "k.h5", "-o", "pipe")
wait_until(lambda: os.path.exists(".k.h5.fakequant-lock"))
time.sleep(1)
killed.send_signal(signal.SIGKILL)
killed.communicate()
assert not os.path.exists("k.h5")
run(*data, "--samples", "100", "--state", "k.h5", "-o", "again.h5")
assert samples("k.h5") == 100 and same_bytes("again.h5", "first.h5")
assert "not counted again" in run(*data, "--samples", "100", "--batch", "7", "--state", "k.h5", "-o", "again.h5").stdout
assert samples("k.h5") == 100 and same_bytes("again.h5", "first.h5")
assert not [name for name in os.listdir(".") if "fakequant" in name], os.listdir(".")

# Merged twice; a merge that is repeated after its state was written.
run(*data, "--samples", "200", "--skip", "100", "--state", "b.h5")
run(*base, "--merge", "k.h5", "b.h5", "k.h5", "-o", "merged.h5")
assert same_bytes("merged.h5", "whole.h5")
for repeated in range(2):
    run(*base, "--merge", "k.h5", "b.h5", "--state", "k.h5", "-o", "merged.h5")
    assert samples("k.h5") == 300 and same_bytes("merged.h5", "whole.h5")
run(*data, "--samples", "100", "--merge", "k.h5", "-o", "merged.h5")
assert same_bytes("merged.h5", "whole.h5")
fails(2, ["k.h5", "in common"], *base, "--merge", "b.h5", "k.h5", "-o", "other.h5")

# A waiting process reports that it waits, and can be stopped.
with open(".s.h5.fakequant-lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    waiting = start(*data, "--samples", "100", "--state", "s.h5")
    assert "waiting for another process, which has s.h5" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=patient(300))
    assert waiting.returncode == 130, waiting.returncode
print("shares: ok")
