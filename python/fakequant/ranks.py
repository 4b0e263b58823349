"""The processes that mpiexec or Slurm started, and how they end when one of them fails."""
import functools
import sys

from . import _fakequant


@functools.lru_cache(maxsize=None)
def ranks(timeout=600.0):
    """The processes that mpiexec or Slurm started with this one: `rank`, `count`, `host`. To be called by all of them, which
    were given the same arguments. `fit`, `qat`, `calibrate`, `evaluate`, `predict`, `sensitivity` and `auto_quantize` take it
    as `ranks` and share out their work; then all ranks make the call. Who waits longer than `timeout` seconds for another
    raises BackendError. An exception that nobody catches ends all processes, with its traceback from one of them.
    """
    found = _fakequant.started_ranks(timeout, sys.argv)
    if found.count > 1 and not isinstance(sys.excepthook, _EndOfAll):
        sys.excepthook = _EndOfAll(sys.excepthook)
    return found


class _EndOfAll:
    def __init__(self, before):
        self.before = before

    def __call__(self, kind, error, trace):
        status = 130 if issubclass(kind, KeyboardInterrupt) else 1
        speaks, message, abort = _fakequant.end_ranks(status, f"{kind.__name__}: {error}")
        if speaks:
            self.before(kind, error, trace)
            print(f"fakequant: {message}", file=sys.stderr, flush=True)
        if abort:
            _fakequant.abort_ranks(status)
