"""`python -m fakequant.data PART ..`: the command line, the report and exit statuses.

Exit status: 0 done, 1 a failure of the system, 2 bad arguments or files, or a missing package, 128 + N after signal N.
"""
import contextlib
import json
import os
import signal
import sys
import time

from .common import DataError, MissingPackage, SystemFailure, check_packages, did_you_mean, printable, unfinished
from .conversion import convert
from .flags import PARTS


class Progress:
    """Prints the samples that are written on a terminal, ten times a second."""

    def __init__(self, shown):
        self.shown, self.printed = shown, 0.0

    def __call__(self, done, total):
        if self.shown and time.monotonic() - self.printed > 0.1:
            self.printed = time.monotonic()
            sys.stdout.write(f"\r\033[K{done} of {total} samples" if done < total else "\r\033[K")
            sys.stdout.flush()


def encode(words):
    """Prints the token ids of the text on standard input, as a JSON list."""
    if len(words) == 1 and words[0].startswith("--tokenizer="):
        words = words[0].split("=", 1)
    if len(words) != 2 or words[0] != "--tokenizer":
        raise DataError("use --tokenizer FILE, and the text on standard input")
    check_packages(["tokenizers", "numpy"])
    from .tokens import load_pieces
    print(json.dumps(load_pieces(words[1]).ids(sys.stdin.buffer.read(), "the text").tolist()))


def run(words):
    if not words or words[0] in ("-h", "--help"):
        print("\n".join(f"  {part.name:<13} {part.summary}" for part in PARTS.values()))
        return
    name, words = words[0], words[1:]
    if name == "encode":
        return encode(words)
    if name not in PARTS:
        raise DataError(f"unknown command '{name}'{did_you_mean(name, [*PARTS, 'encode'])}")
    values = PARTS[name].parse(words)
    if values.pop("help", None):
        print(PARTS[name].parser().format_help(), end="")
        return
    as_json = values.pop("json", False)
    lines, report = convert(name, values, Progress(not as_json and sys.stdout.isatty()))
    if as_json:
        text = json.dumps({"event": "result", "command": f"dataset {name}", **report}, ensure_ascii=False)
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # names of files may not be UTF-8
        print(json.dumps(json.loads(text), separators=(",", ":")))
    else:
        print("\n".join(map(printable, lines)))
    sys.stdout.flush()


_failures = []  # keeps files open: HDF5 1.10 crashes when it closes a file that it could not write


def fail(name, message):
    line = printable(f"fakequant: [{name}] {message}")
    os.write(2, (line + "\n").encode(errors="replace"))


def main(words=None):
    """Runs a part and returns the exit status. An error is one line on standard error."""
    words = sys.argv[1:] if words is None else list(words)
    name = f"dataset {words[0]}" if words else "dataset"

    def stop(number, _frame):
        # Does not raise an exception: Python ignores exceptions in destructors and callbacks.
        for path in unfinished:
            with contextlib.suppress(OSError):
                os.unlink(path)
        fail(name, f"stopped by {signal.Signals(number).name}: nothing was written")
        os._exit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        run(words)
        return 0
    except DataError as error:
        status, message = 2, str(error)
    except MissingPackage as error:
        status, name, message = 2, "dataset", str(error)
    except MemoryError:
        status, message = 1, "out of memory"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status, message = 1, "standard output cannot be written"
    except (SystemFailure, OSError) as error:
        _failures.append(error)
        status, message = 1, str(error)
    fail(name, message)
    return status


if __name__ == "__main__":
    ended = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(ended)  # without destructors: see _failures
