"""A link that is put under an output while the command runs is replaced by the output: the file that it leads to stays."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, SHORT, TINY, patient, run, start  # noqa: E402

TEXT = "a file of somebody\n"
LONG = TINY + ["--data", DIGITS, "--epochs", "60", "--batch", "64", "--seed", "1", "--verbose"]


def victim():
    with open("victim.txt", "w") as file:
        file.write(TEXT)


def swapped(out, *flags):
    """Starts a training run. Replaces `out` by a link after the run has checked its outputs."""
    victim()
    process = start("train", *LONG, *flags, "-o", out)
    process.stdout.readline()  # the outputs are checked
    if os.path.lexists(out):
        os.remove(out)
    os.symlink(os.path.abspath("victim.txt"), out)
    _, errors = process.communicate(timeout=patient(300))
    with open("victim.txt") as file:
        assert file.read() == TEXT, f"{out}: written through the link"
    return process.returncode, errors


status, errors = swapped("new.h5")
assert status == 0 and not os.path.islink("new.h5") and os.path.getsize("new.h5") > 1000, errors
run("train", *SHORT, "-o", "old.h5")
status, errors = swapped("old.h5")
assert status == 0 and not os.path.islink("old.h5"), errors
run("evaluate", "new.h5", "--data", DIGITS)

# A link that exists before the run is followed. A link that replaces it during the run is not.
os.mkdir("disk")
os.symlink("disk/real.h5", "link.h5")
run("train", *SHORT, "-o", "link.h5")
assert os.path.islink("link.h5") and os.path.isfile("disk/real.h5")
before = os.stat("disk/real.h5").st_mtime_ns
assert swapped("link.h5")[0] == 0 and os.stat("disk/real.h5").st_mtime_ns > before

# Files of a run directory that are added to are not opened through links.
for name in ["log.txt", "metrics.jsonl"]:
    victim()
    os.makedirs(f"run_{name}", exist_ok=True)
    os.symlink(os.path.abspath("victim.txt"), f"run_{name}/{name}")
    done = run("train", *SHORT, "-o", f"run_{name}/", "--force", status=None)
    with open("victim.txt") as file:
        assert file.read() == TEXT, name
    named = "is a link" in done.stderr or (done.returncode == 2 and f"{name}:1" in done.stderr)  # read before it is written
    assert done.returncode == 0 or named, done.stderr
