"""The fastest of several ways to run the same: each is built and timed once, the losers are dropped."""

import gc
import signal
import time

LIMIT = 300  # seconds for a way to be built, compiled and timed


class TooSlow(BaseException):
    """Not an Exception: nothing that compiles may take it for an error of its own and go on."""


def stop(*_):
    raise TooSlow(f"not ready after {LIMIT} s")


def seconds(run):
    """Of the fastest of three calls after two, on a core."""
    run(), run()
    times = []
    for _ in range(3):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def tried(make):
    """(seconds, run), or (None, reason)."""
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        run = make()
        return seconds(run), run
    except (TooSlow, Exception) as error:
        return None, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def fastest(ways):
    """(name, run) of `ways`: name -> function without arguments that gives what to call. Prints the times."""
    best = None
    for name, make in ways.items():
        took, run = tried(make)
        print(f"{name}: {f'{took * 1e3:.2f} ms' if took else run}", flush=True)
        if took and (best is None or took < best[0]):
            best = (took, name, run)
        del run
        gc.collect()
    if best is None:
        raise RuntimeError(f"none of {', '.join(ways)} runs; the worker's log says why")
    return best[1:]
