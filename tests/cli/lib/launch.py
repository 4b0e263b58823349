"""Shared code of tests with several processes."""

import hashlib
import shutil
import subprocess

from command import COMMAND, environment, run

MPIEXEC = shutil.which("mpiexec")
# Settings that Open MPI requires on a small machine and as root; MPICH ignores them.
LAUNCH = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
          "OMPI_MCA_hwloc_base_binding_policy": "none",
          "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def skip_without_mpi():
    if MPIEXEC is None or "left out" in run("doctor").stdout.split("ranks", 1)[1].split("\n", 1)[0]:
        print("SKIPPED: no mpiexec, or a build without MPI")
        raise SystemExit(77)


def launched(ranks, *arguments, variables=()):
    line = [MPIEXEC, "-n", str(ranks), COMMAND, *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            env=dict(environment(1), **LAUNCH, **dict(variables)))


def on(ranks, *arguments, status=0, variables=()):
    """Runs the command on that number of ranks and returns the finished process; one rank runs without mpiexec."""
    if ranks == 1:
        return run(*arguments, status=status, threads=1)
    process = launched(ranks, *arguments, variables=variables)
    out, errors = process.communicate(timeout=240)
    assert status is None or process.returncode == status, f"{ranks} ranks: {process.returncode}\n{out}\n{errors}"
    return subprocess.CompletedProcess(arguments, process.returncode, out, errors)


def expect_error(ranks, says, *arguments, variables=()):
    """One line for all of them."""
    done = on(ranks, *arguments, status=None, variables=variables)
    own = [line for line in done.stderr.splitlines() if line.startswith("fakequant:")]
    assert done.returncode != 0 and len(own) == 1 and says in own[0], f"{says}:\n{done.stderr}"
