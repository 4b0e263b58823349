"""Builds our side's program and, for Python peers, a virtual environment."""

import hashlib
import os
import shutil
import subprocess
import sys

from .rows import Refused

FOLDER = "build/bench"
OWN = "build/release/bin/fakequant_bench"
REQUIREMENTS = "bench/peers/requirements.txt"
KEPT = str(8 << 30)


def build_own(print_line):
    """Builds the program of our side in the release preset. Does nothing if it is up to date."""
    log = f"{FOLDER}/build.log"
    os.makedirs(FOLDER, exist_ok=True)
    if not os.path.exists(OWN):
        print_line(f"building {OWN} (release preset; the output goes to {log})")
    with open(log, "w") as output:
        done = subprocess.run(["bash", "-c", ". scripts/lib/install.sh && build_preset release --target fakequant_bench"],
                              stdout=output, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Refused(f"the build of our side failed: see {log}. scripts/test --no-test installs its dependencies")
    return [os.path.abspath(OWN)]


def run_logged(command, log, otherwise):
    with open(log, "a") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT)
        except OSError as error:
            raise Refused(f"{otherwise} ({error})") from error
    if done.returncode:
        raise Refused(f"{otherwise} (the output is in {log})")


def make_environment(print_line):
    """Returns the Python of the virtual environment with the pinned peers. Makes the environment if it is missing or the pins changed."""
    folder, log = f"{FOLDER}/venv", f"{FOLDER}/venv.log"
    os.makedirs(FOLDER, exist_ok=True)
    python, stamp = f"{folder}/bin/python", f"{folder}/pins"
    with open(REQUIREMENTS, "rb") as file:
        pins = hashlib.sha256(file.read()).hexdigest()
    if os.path.exists(stamp) and open(stamp).read() == pins:
        return os.path.abspath(python)
    if sys.version_info < (3, 11):
        raise Refused(f"the peers need Python 3.11 or newer, this is {sys.version.split()[0]}: run scripts/bench with a newer one")
    print_line(f"installing the peers of {REQUIREMENTS} into {folder}: about 3 GB to fetch, 5 GB on disk")
    shutil.rmtree(folder, ignore_errors=True)
    open(log, "w").close()
    run_logged([sys.executable, "-I", "-m", "venv", folder], log,
               "no virtual environment can be made: install python3-venv, or leave out --peers")
    run_logged([python, "-I", "-m", "pip", "install", "--no-deps", "--requirement", REQUIREMENTS], log,
               "the peers cannot be installed: is PyPI reachable? Rows without them run without --peers")
    with open(stamp, "w") as file:
        file.write(pins)
    return os.path.abspath(python)


def environment(threads):
    """Environment of both sides: number of threads and wait policy."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}


def own_environment(threads, own_waiting):
    """Environment of our side. `own_waiting`: use the command's wait policy, unless the user sets OMP_WAIT_POLICY."""
    values = environment(threads)
    if own_waiting and "OMP_WAIT_POLICY" not in os.environ:
        del values["OMP_WAIT_POLICY"]
    return values


def peer_environment(threads):
    """Environment of the peer. Its malloc keeps memory, like our arena, and its compiled code stays in our folder."""
    return {**environment(threads), "MKL_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1",
            "MALLOC_MMAP_THRESHOLD_": KEPT, "MALLOC_TRIM_THRESHOLD_": KEPT,
            "TORCHINDUCTOR_CACHE_DIR": os.path.abspath(f"{FOLDER}/inductor")}
