"""`python -m fakequant.data PART ..`: the command line, the report and exit statuses.

Exit status: 0 done, 1 a failure of the system, 2 bad arguments or files, or a missing package, 128 + N after signal N.
"""
import json
import os
import signal
import sys
import time

from .common import DataError, MissingPackage, SystemFailure, check_packages, did_you_mean, printable
from .flags import PARTS, Flags


class Interrupted(BaseException):
    """A signal asks the conversion to end. Not an Exception: no handler of bad input may catch it."""


class Bar:
    """A progress bar on a terminal, redrawn ten times a second."""

    def __init__(self, shown):
        self.shown, self.drawn, self.begin = shown, 0.0, time.monotonic()

    def __call__(self, label, done, total):
        now = time.monotonic()
        if not self.shown or now - self.drawn < 0.1:
            return
        self.drawn = now
        cells, rate = int(24 * done / max(total, 1)), done / max(now - self.begin, 1e-9)
        sys.stdout.write(f"\r\033[K{label} [{'#' * cells}{'.' * (24 - cells)}] {rate:.0f} samples/s")
        sys.stdout.flush()

    def clear(self):
        if self.shown and self.drawn:
            sys.stdout.write("\r\033[K")


_PACKAGES = {"from-images": ["PIL"], "from-parquet": ["pyarrow"]}


def convert(part, words, progress=lambda label, done, total: None):
    """Runs a part. Returns (lines, report): the text for people, and the result for machines."""
    flags = Flags.parse(PARTS[part], words)
    needed = _PACKAGES.get(part, []) + ["PIL"] * flags.given("image")
    check_packages([*needed, "numpy", "h5py"])
    from .conversion import convert as run
    return run(flags, progress)


def encode(words):
    """Prints the token ids of the text on standard input, as a JSON list."""
    check_packages(["tokenizers", "numpy"])
    from .tokens import load_pieces
    if len(words) == 1 and words[0].startswith("--tokenizer="):
        words = words[0].split("=", 1)
    if len(words) != 2 or words[0] != "--tokenizer":
        raise DataError("give --tokenizer FILE, and the text on standard input")
    ids = load_pieces(words[1]).ids(sys.stdin.buffer.read(), "the text")
    print(json.dumps(ids.tolist()))


def _run(words):
    if not words or words[0] in ("-h", "--help"):
        print("\n".join(f"  {part.name:<13} {part.summary}" for part in PARTS.values()))
        return
    part, words = words[0], words[1:]
    if part == "encode":
        return encode(words)
    if part not in PARTS:
        raise DataError(f"unknown command '{part}'{did_you_mean(part, [*PARTS, 'encode'])}")
    if "--help" in words or "-h" in words:
        sys.stdout.write(PARTS[part].help())
        return
    as_json = "--json" in words
    bar = Bar(not as_json and sys.stdout.isatty())
    lines, report = convert(part, words, bar)
    bar.clear()
    if as_json:
        text = json.dumps({"event": "result", "command": f"dataset {part}", **report}, ensure_ascii=False)
        whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # file names need not be UTF-8
        print(json.dumps(json.loads(whole), separators=(",", ":")))
    else:
        sys.stdout.write("".join(printable(line) + "\n" for line in lines))
    sys.stdout.flush()


def _stop(number, _frame):
    raise Interrupted(number)


def main(words=None):
    """Runs a part and returns the exit status. An error is one line on standard error."""
    words = sys.argv[1:] if words is None else list(words)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    name = f"dataset {words[0]}" if words else "dataset"
    try:
        _run(words)
        return 0
    except DataError as error:
        status, message = 2, str(error)
    except MissingPackage as error:
        status, name, message = 2, "dataset", str(error)
    except Interrupted as error:
        status, message = 128 + error.args[0], f"stopped by {signal.Signals(error.args[0]).name}: nothing was written"
    except MemoryError:
        status, message = 1, "out of memory"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status, message = 1, "standard output cannot be written"
    except (SystemFailure, OSError) as error:
        status, message = 1, str(error)
    line = printable(f"fakequant: [{name}] {message}").replace("\n", "?")
    sys.stderr.write(line.encode(errors="replace").decode() + "\n")
    return status
