"""What tests on several processes share."""

import hashlib
import shutil

from command import run

MPIEXEC = shutil.which("mpiexec")
# What Open MPI asks for on a small machine and as root; MPICH does not look at it.
LAUNCH = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
          "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def skip_without_mpi():
    if MPIEXEC is None or "left out" in run("doctor").stdout.split("ranks", 1)[1].split("\n", 1)[0]:
        print("SKIPPED: no mpiexec, or a build without MPI")
        raise SystemExit(77)
