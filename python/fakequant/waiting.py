"""Spin time of waiting OpenMP threads."""
import contextlib
import os

_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_SPINS = "5000"  # about 20 microseconds, as in cli/system/waiting.cpp


@contextlib.contextmanager
def short_spins():
    """Sets a short spin time for the libgomp that is loaded in the block, unless the user has set one. libgomp reads its environment when it
    is loaded. A libgomp that another package has loaded is unchanged. The end of the block restores the environment."""
    if any(name in os.environ for name in _CHOICES):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]
