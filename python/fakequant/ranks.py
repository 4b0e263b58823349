"""ranks: the processes that mpiexec or Slurm started. An exception in one of them ends all."""
import functools
import sys

from . import _fakequant


@functools.cache
def ranks(timeout=600.0):
    """Returns the ranks of a run that mpiexec or Slurm started: `rank`, `count`, `host`.

    All processes call it, with the same arguments. `fit`, `qat`, `calibrate`, `evaluate`, `predict`, `sensitivity` and `auto_quantize` take it
    as `ranks` and share the work. All ranks make the same call. A rank that waits for another one for more than `timeout` seconds raises
    BackendError. An uncaught exception ends all processes, and one of them prints its traceback.
    """
    found = _fakequant.started_ranks(timeout, sys.argv)
    if found.count > 1 and not isinstance(sys.excepthook, _EndAllRanks):
        sys.excepthook = _EndAllRanks(sys.excepthook)
    return found


class _EndAllRanks:
    """Exception hook that ends all ranks. `before` is the hook that prints the traceback."""

    def __init__(self, before):
        self.before = before

    def __call__(self, kind, error, trace):
        status = 130 if issubclass(kind, KeyboardInterrupt) else 1
        prints, message, abort = _fakequant.end_ranks(status, f"{kind.__name__}: {error}")
        if prints:
            self.before(kind, error, trace)
            print(f"fakequant: {message}", file=sys.stderr, flush=True)
        if abort:
            _fakequant.abort_ranks(status)
