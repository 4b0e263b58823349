"""MPI is a module that is loaded only for several processes. Errors if it cannot be loaded, and signals that it leaves alone."""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import COMMAND, DIGITS, TINY, environment, fresh, result  # noqa: E402
from launch import skip_without_mpi  # noqa: E402

MODULE = "libfakequant_mpi.so"
SEVERAL = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
TRAIN = ["train", *TINY, "--data", DIGITS, "--batch", "64", "--micro-batch", "16", "--epochs", "1", "-o", "x.h5"]


def make_module(name, text):
    """A folder that has a file of that text for the module, or a library of that C."""
    folder = os.path.abspath(fresh(name))
    if text.startswith("#include"):
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/{MODULE}"], input=text, text=True, check=True)
    else:
        with open(f"{folder}/{MODULE}", "w") as file:
            file.write(text)
    return folder


def doctor(folder, *before):
    """The section `ranks` of doctor, with a Python that sends it SIGHUP."""
    with open("python", "w") as file:
        file.write(f"#!/bin/sh\nkill -{signal.SIGHUP.value} $PPID\nexec false\n")
    os.chmod("python", 0o755)
    line = ["bash", "-c", 'trap "" HUP; exec "$@"', "bash", COMMAND, "doctor", "--python", "./python"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=dict(environment(1), LD_LIBRARY_PATH=folder))
    assert done.returncode == 0, done
    return done.stdout.split("\nranks ", 1)[1].split("\npython", 1)[0]


def expect_error(folder, *words):
    done = subprocess.run([COMMAND, *TRAIN], capture_output=True, text=True, timeout=60,
                          env=dict(environment(1), LD_LIBRARY_PATH=folder, **SEVERAL))
    assert done.returncode == 1 and done.stderr.startswith("fakequant: [ranks] ") and done.stderr.count("\n") == 1, done
    assert all(word in done.stderr for word in words), done.stderr
    assert not os.path.exists("x.h5")


skip_without_mpi()
linked = subprocess.run(["ldd", COMMAND], capture_output=True, text=True, check=True).stdout
assert "libmpi" not in linked and "fakequant_mpi" not in linked, linked
ranks = next(finding for finding in result("doctor")["findings"] if finding["name"] == "ranks")
assert "mpiexec runs train" in ranks["found"] and "MPI cannot be loaded" not in ranks["advice"], ranks

broken = make_module("broken", "nothing")
expect_error(broken, "MPI cannot be loaded: ", f"{broken}/{MODULE}", "install fakequant-mpi", "LD_LIBRARY_PATH")
assert "MPI cannot be loaded: " in doctor(broken)
# As UCX does, which Open MPI 5 brings.
other = make_module("other", "#include <signal.h>\nstatic void caught(int n) { (void)n; raise(SIGKILL); }\n"
                          "__attribute__((constructor)) static void load(void) { signal(SIGHUP, caught); }\n")
expect_error(other, MODULE + " is of another version")
assert "of another version" in doctor(other)
environment_of_one = dict(environment(1), LD_LIBRARY_PATH=broken)
subprocess.run([COMMAND, *TRAIN], check=True, capture_output=True, timeout=60, env=environment_of_one)
assert os.path.exists("x.h5")
print("ranks_module: ok")
