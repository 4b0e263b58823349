"""Shared code of the end-to-end tests: runs the command and inspects its results."""

import json
import os
import re
import shutil
import subprocess
import sys
import traceback

COMMAND = os.environ["FAKEQUANT"]
PATIENCE = float(os.environ.get("FAKEQUANT_TEST_PATIENCE", "1"))
SOURCE = os.environ["FAKEQUANT_SOURCE_DIR"]
DIGITS = os.path.join(SOURCE, "data", "digits.h5")
PART = re.compile(r"this build has no (ONNX|MPI)")
TINY = ["--model", "cnn", "--model-options", '{"widths": [8, 8, 8], "features": 16}']
SHORT = TINY + ["--data", DIGITS, "--epochs", "2", "--batch", "64", "--seed", "1"]


def english(letters):
    """A fixed text: the beginning of the licence. Accuracy bounds of tests depend on the text."""
    with open(os.path.join(SOURCE, "LICENSE"), encoding="utf-8") as file:
        return file.read()[:letters]


def environment(threads):
    return dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")


def skip_without_part(errors):
    """Skips the rest of the test if the build lacks a part that the command requires."""
    missing = PART.search(errors)
    if not missing:
        return
    place = next(frame for frame in traceback.extract_stack() if os.path.dirname(__file__) not in frame.filename)
    print(f"SKIPPED: this build has no {missing[1]}: the rest, from line {place.lineno} of {os.path.basename(place.filename)}")
    sys.exit(77)


def patient(seconds):
    """Returns a timeout for this build, given the timeout of a usual build."""
    return PATIENCE * seconds


def run(*arguments, status=0, threads=2, limits=None):
    """Runs the command; returns the finished process. `status`: expected status, a tuple of them, or None for any. `limits`: shell commands
    (ulimit) to run before it."""
    line = [COMMAND, *map(str, arguments)]
    if limits:
        line = ["bash", "-c", limits + '; exec "$@"', "bash", *line]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(threads), timeout=patient(300))
    allowed = status if isinstance(status, tuple) else (status,)
    if not {None, done.returncode} & set(allowed):
        skip_without_part(done.stderr)
    assert {None, done.returncode} & set(allowed), (
        f"{arguments}: exit status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}")
    return done


def start(*arguments, threads=2):
    return subprocess.Popen([COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(threads))


def sanitized():
    """Whether a sanitizer is in the command, which reserves more addresses than any limit before main."""
    return run("--version", status=None, limits="ulimit -v 2000000").returncode != 0


def events(*arguments, threads=2):
    """The JSON objects of a run, in order."""
    lines = run(*arguments, "--json", threads=threads).stdout.splitlines()
    return [json.loads(line) for line in lines]


def result(*arguments, threads=2):
    last = events(*arguments, threads=threads)[-1]
    assert last["event"] == "result", last
    return last


def fails(status, says, *arguments, limits=None):
    """The command ends with that status and one line on standard error that holds every text of `says`."""
    before = snapshot()
    done = run(*arguments, status=status, limits=limits)
    line = done.stderr
    assert line.startswith("fakequant: [") and line.count("\n") == 1, f"{arguments}: not one line:\n{line}"
    for text in [says] if isinstance(says, str) else says:
        if text not in line:
            skip_without_part(line)
        assert text in line, f"{arguments}: '{text}' is not in: {line}"
    assert snapshot() == before, f"{arguments}: files changed: {set(snapshot()) ^ set(before)}"
    return line


def snapshot():
    """Every file below here with its size and time."""
    found = {}
    for folder, _, names in os.walk("."):
        for name in names:
            path = os.path.join(folder, name)
            status = os.stat(path, follow_symlinks=os.path.exists(path))
            found[path] = (status.st_size, status.st_mtime_ns)
    return found


def same_bytes(a, b):
    with open(a, "rb") as first, open(b, "rb") as second:
        return first.read() == second.read()


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder
