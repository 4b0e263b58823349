"""How threads of OpenMP wait for the next loop: as those of the command do."""
import contextlib
import os

_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_SPINS = "5000"  # some 20 microseconds, as in cli/system/waiting.cpp


@contextlib.contextmanager
def short_spins():
    """While the library is loaded, unless the user has chosen: libgomp, which it brings along, reads its environment then. One
    that is there already, as torch's may be, stays as it is, and so does the environment behind the block."""
    if any(name in os.environ for name in _CHOICES):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]
