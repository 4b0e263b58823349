"""Shared parts of the programs that run an engine: required packages, arguments, report, exit status. It imports no package."""
import argparse
import contextlib
import json
import math
import re
import sys


class Unusable(Exception):
    """The file cannot be used, or the engine rejects it."""


class Missing(Exception):
    """A requirement is not installed."""


@contextlib.contextmanager
def required_packages(module, packages):
    """Context manager for the imports of a program.

    Ends the program with status 3 and a message if a package is missing or Python is older than 3.10, and with status 0 if the only
    argument is --packages. Does nothing if `module` is imported and not run.
    """
    if module != "__main__":
        yield
        return
    if sys.version_info < (3, 10):
        print(f"{sys.executable} is Python {sys.version.split()[0]}: Python 3.10 or newer is required. Set --python or FAKEQUANT_PYTHON",
              file=sys.stderr)
        raise SystemExit(3)
    try:
        yield
    except ImportError as error:
        print(f"{sys.executable} has no {error.name}: run {sys.executable} -m pip install {packages}, or set "
              "--python or FAKEQUANT_PYTHON to another Python", file=sys.stderr)
        raise SystemExit(3) from None
    if sys.argv[1:] == ["--packages"]:
        raise SystemExit(0)


def program_parser(doc):
    """Returns the argument parser of a program, which runs as a module."""
    spec = sys.modules["__main__"].__spec__  # None if a script calls main()
    return argparse.ArgumentParser(prog=spec and f"python3 -m {spec.name}", description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def comparison_parser(doc, tolerance, flip_tolerance, code_tolerance=0.0):
    """Returns the argument parser of a program that compares a file. The bounds are the defaults of the flags; None depends on the file."""
    parser = program_parser(doc)
    parser.add_argument("model")
    parser.add_argument("predictions", nargs="+")
    parser.add_argument("--threads", type=int, default=0, help="number of threads of the engine (default: 0, the engine's own choice)")
    for flag, default, what in [("tolerance", tolerance, "largest difference of a logit, relative to the largest logit; 0: the same bits"),
                                ("code-tolerance", code_tolerance, "share of codes that may differ"),
                                ("flip-tolerance", flip_tolerance, "share of predictions that may differ")]:
        value = "depends on the file" if default is None else default
        parser.add_argument(f"--{flag}", type=float, default=default, help=f"{what} (default: {value})")
    parser.add_argument("--json", metavar="FILE", help="write the counts to this file")
    parser.add_argument("--folded", metavar="PREDICTIONS", action="append", default=[],
                        help="for each of PREDICTIONS: the same samples of the network with folded batch norms")
    parser.add_argument("--folder", metavar="FOLDER", help="folder for temporary files (default: the folder of the system)")
    return parser


def arguments(doc, *bounds):
    """Parses the command line of a program with an engine installed by fakequant.engines.install."""
    parser = comparison_parser(doc, *bounds)
    parser.add_argument("--home", metavar="FOLDER", help="folder of the engine, as fakequant.engines.install makes it")
    parser.add_argument("--layers", metavar="FILE", help="HDF5 file of linear layers with their inputs and outputs")
    return parser.parse_args()


def print_messages(warnings, reasons, ways):
    for head, lines in [("warning", warnings), ("reason", reasons), ("remedy", ways)]:
        for line in lines:
            print(f"{head}: {line}")


def version_warning(engine, version, measured):
    """Returns a list with one warning if the version is not the measured version."""
    known = re.match(r"[0-9.]*[0-9]", version)
    return [] if known and known.group() == measured else [
        f"{engine} {version} runs; the documented results were measured with {engine} {measured}"]


def rounded_up(share):
    """Returns a share rounded up to two digits, as text."""
    step = 10.0 ** (math.floor(math.log10(share)) - 1) if share > 0 else 1.0
    return f"{math.ceil(share / step * (1 + 1e-9)) * step:.2g}"


def accepting(args, sides):
    """Returns a list of one remedy with the tolerances that accept the differences, empty if the present ones do."""
    if not all(math.isfinite(side.max_abs_diff) and side.largest > 0 for side in sides):
        return []
    needed = {"--tolerance": (max(side.max_abs_diff / side.largest for side in sides), args.tolerance),
              "--code-tolerance": (max(side.codes_different / max(side.codes, 1) for side in sides), args.code_tolerance),
              "--flip-tolerance": (max(side.flips / max(side.answers, 1) for side in sides), args.flip_tolerance)}
    flags = [f"{flag} {rounded_up(share)}" for flag, (share, limit) in needed.items() if share > limit]
    return [f"accept it with {' '.join(flags)}: {sides[0].flips:,} predictions change"] if flags else []


def finish(args, engine, sides, samples, *, same, lines=(), warnings=(), reasons=(), ways=(), **more):
    """Prints the counts, writes the report and returns the exit status.

    `sides` are the counts of the trained network and, if it has live batch norms, of the folded network. `same` says whether the other
    conditions hold.
    """
    own, folded = sides[0], sides[1] if len(sides) > 1 else None
    within = all(side.within(args.tolerance, args.code_tolerance, args.flip_tolerance) for side in sides)
    same = bool(same and within and own.logits > 0)
    reasons, ways = ([], []) if same else (list(reasons), [*ways, *accepting(args, sides)])
    print(f"verify: {own.text()}")
    if folded:
        print(f"batch norms folded: {folded.text()}")
    print(f"{engine}, {samples:,} samples; bounds: logits to {args.tolerance:g} of the largest, {args.code_tolerance:g} of codes, "
          f"{args.flip_tolerance:g} of predictions")
    for line in lines:
        print(line)
    print_messages(warnings, reasons, ways)
    if args.json:
        report = {"codes": own.codes, "logits": own.logits, **own.as_json(), "folded": folded and folded.as_json(),
                  "samples": samples, "engine": engine, "level": "", "session_options": {}, "kernels": {}, "float_kernels": [],
                  "compared": own.compared, "not_compared": {}, "not_in_file": [], "alone_logit_bits_different": 0,
                  "exposed_logit_bits_different": 0, "first_difference": None, "tolerance": args.tolerance,
                  "code_tolerance": args.code_tolerance, "flip_tolerance": args.flip_tolerance, "same": same,
                  "warnings": list(warnings), "reasons": reasons, "ways": ways} | more
        with open(args.json, "w") as file:
            json.dump(report, file)
    return 0 if same else 1


def ended(run, model):
    """Returns the exit status of the function `run`. Prints an exception as a line on standard error."""
    try:
        return run()
    except Missing as error:
        print(error, file=sys.stderr)
        return 3
    except Exception as error:  # engines throw classes of their own
        print(f"{model}: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
        return 2
