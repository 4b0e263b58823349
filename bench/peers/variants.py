"""The fastest of several ways to run the same: each is built and timed once, the losers are dropped."""

import gc
import signal
import time

import torch
from peer import Side

LIMIT = 300  # seconds for a way to be built, compiled and timed


class TooSlow(BaseException):
    """Raised by the timer. Not an Exception, so that a compiler under test cannot catch it."""


def stop(*_):
    raise TooSlow(f"not ready after {LIMIT} s")


def seconds(run):
    """Returns the fastest of five calls after two warm-up calls: CPU time with one thread, else wall time."""
    run(), run()
    clock, times = time.process_time if torch.get_num_threads() == 1 else time.perf_counter, []
    for _ in range(5):
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


def tried(make):
    """(milliseconds, run), or (reason, None)."""
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        run = make()
        return round(seconds(run) * 1e3, 3), run
    except (TooSlow, Exception) as error:
        return f"{type(error).__name__}: {error}"[:200], None
    finally:
        signal.alarm(0)


def fastest(ways):
    """A Side of the fastest of `ways`: name -> function without arguments that gives what to call."""
    found, best, best_run = {}, None, None
    for name, make in ways.items():
        found[name], run = tried(make)
        print(f"{name}: {found[name]}", flush=True)
        if run and (best is None or found[name] < found[best]):
            best, best_run = name, run
        del run
        gc.collect()
    if best is None:
        raise RuntimeError(f"every variant failed: {found}")
    return Side(best_run, variant=best, variants=found)
