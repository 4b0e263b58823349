#!/usr/bin/env python3
"""Runs an ONNX file that fakequant exported in ONNX Runtime and counts what differs from fakequant's own evaluation.

PREDICTIONS are HDF5 files with x, logits and codes/<quantizer>, as `fakequant verify` writes them. Codes are read from
the optimised graph: it is saved, the tensors of its quantizers are exposed, and it runs once more as it is; exposing
them in the exported file would change what the optimiser fuses. Exit status: 0 the same, 1 different or not compared,
2 a file that cannot be used, 3 a Python package is missing."""
import argparse
import collections
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before it is loaded: its packages report to their maker otherwise
if sys.version_info < (3, 10):
    print(f"{sys.executable} is Python {sys.version.split()[0]}: name one of 3.10 or newer by --python or FAKEQUANT_PYTHON",
          file=sys.stderr)
    raise SystemExit(3)
try:
    import onnxruntime

    from engine_predictions import Predictions
    from onnx_counts import count
    from onnx_engine import LEVELS, Engine, Source
    from onnx_reasons import (FLOAT_ANSWERS, FLOAT_CODES, FLOAT_LOGITS, beginnings, describe, describe_beginnings, explain,
                              first_difference, has_vnni, rounds_floats)
    from onnx_source import SETTINGS
except ImportError as error:
    print(f"{sys.executable} has no {error.name}: run {sys.executable} -m pip install onnxruntime onnx h5py, or name "
          "another Python by --python or FAKEQUANT_PYTHON", file=sys.stderr)
    raise SystemExit(3) from None
if sys.argv[1:] == ["--packages"]:  # whether they are all there
    raise SystemExit(0)

ENGINE = f"onnxruntime {onnxruntime.__version__}"
MEASURED = ("1.31.1", "1.32.0")  # the versions whose figures are documented


def print_counts(own, folded, engine, samples, kernels, not_compared):
    print(f"verify: {own.text()}")
    if folded:
        print(f"batch norms folded: {folded.text()}")
    print(f"{ENGINE}, level {engine.level}, {samples:,} samples: "
          + ", ".join(f"{kind} {number}" for kind, number in kernels.items()))
    if not_compared:
        print(f"not compared: {sum(not_compared.values()):,} codes that the engine does not compute: {', '.join(not_compared)}")
    if engine.absent:
        print(f"codes that the file has not: {', '.join(engine.absent)}")
    if engine.alone_different:
        print(f"{engine.alone_different} logits differ where a sample is a batch of its own")
    if engine.exposed_different:
        print(f"{engine.exposed_different} logits changed when codes were read: the engine computes them otherwise then")


def as_json(own, folded, engine, samples, kernels, not_compared):
    return {"codes": own.codes, "logits": own.logits, **own.as_json(), "folded": folded and folded.as_json(),
            "samples": samples, "engine": ENGINE, "level": engine.level, "session_options": engine.options,
            "kernels": kernels,
            "float_kernels": [{"node": node.name, "kernel": node.op_type} for node in engine.float_kernels],
            "compared": own.compared, "not_compared": not_compared, "not_in_file": engine.absent,
            "alone_logit_bits_different": engine.alone_different,
            "exposed_logit_bits_different": engine.exposed_different}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("predictions", nargs="+")
    parser.add_argument("--level", choices=LEVELS, help="of optimisation (all; basic for 8-bit floats and 4-bit activations)")
    parser.add_argument("--session", metavar="KEY=VALUE", action="append", default=[],
                        help="an option of the session, such as session.disable_quant_qdq=1")
    parser.add_argument("--threads", type=int, default=0, help="of the engine; 0: its own choice")
    parser.add_argument("--tolerance", type=float, help="of logits, relative to the largest one; 0: the same bits (0 for "
                        "8-bit integers, 0.02 where the engine computes floats between their codes; 1e-6 for floats, 4-bit weights and weights in blocks)")
    parser.add_argument("--code-tolerance", type=float,
                        help="share of codes that may differ (0; 1e-3 where the engine computes floats between codes)")
    parser.add_argument("--flip-tolerance", type=float, help="share of answers that may be others (1: any; 1e-3 where the engine "
                        "computes floats between codes)")
    parser.add_argument("--json", metavar="FILE", help="write the counts to this file too")
    parser.add_argument("--folded", metavar="PREDICTIONS", action="append", default=[],
                        help="for each of PREDICTIONS: the same samples where live batch norms are folded")
    parser.add_argument("--folder", metavar="FOLDER", help="for temporary files (one of the system's)")
    return parser.parse_args()


def session_options(entries):
    for entry in entries:
        if "=" not in entry.strip("="):
            raise ValueError(f"--session {entry} is not KEY=VALUE, such as session.disable_quant_qdq=1")
    return dict(entry.split("=", 1) for entry in entries)


def of_processor(source):
    """What a session of products of bytes needs on this one: pairs of products saturate at 16 bits where VNNI is missing."""
    return SETTINGS["TWO_BYTES"] if source.bytes() and has_vnni() is False else {}


def bounds(args, source, in_floats):
    """Of logits, codes and answers: what was asked for, else the same bits of integers, and what is stated of floats."""
    usual = ((FLOAT_LOGITS, FLOAT_CODES, FLOAT_ANSWERS) if in_floats else (0.0, 0.0, 1.0) if source.integer()
             else (1e-6, 0.0, 1.0))
    given = [args.tolerance, args.code_tolerance, args.flip_tolerance]
    if given[:2] != [None, None] and given[2] is None:
        given[2] = 1.0  # any that the bounds that were asked for allow
    return [standard if value is None else value for value, standard in zip(given, usual)]


def run(args, sides, folder):
    files = sides[0]
    source = Source(args.model)
    level, options = source.settings()
    chosen = level, options | of_processor(source)
    engine = Engine(source, args.model, files[0], args.level or chosen[0],
                    chosen[1] | session_options(args.session), args.threads, folder)
    counts = count(engine, source, sides)
    own, folded = counts[0], counts[1] if len(counts) > 1 else None
    floats = rounds_floats(source, engine, chosen)
    tolerance, code_tolerance, flip_tolerance = bounds(args, source, floats)
    same = (all(side.within(tolerance, code_tolerance, flip_tolerance) for side in counts)
            and not (engine.absent or own.logits == 0)
            and (tolerance > 0 or engine.alone_different == engine.exposed_different == 0))
    samples = sum(map(len, files))
    not_compared = {name: sum(file.size(name) for file in files) for name in engine.missing}
    kernels = collections.Counter(node.op_type for node in engine.graph.nodes)
    first = first_difference(source, engine, folded or own)
    reasons, ways = explain(source, engine, own, folded, first, chosen, same) if not same or (floats and first) else ([], [])
    ways = [way for way in ways if not (same and way.startswith("accept it"))]
    print_counts(own, folded, engine, samples, kernels, not_compared)
    if of_processor(source).items() & engine.options.items():
        print("this processor has no VNNI: sessions here need session.x64quantprecision=1, as this one had")
    if floats:
        print(f"the engine computes floats between codes: logits are judged to {tolerance:g} of the largest, {code_tolerance:g} of "
              f"the codes and {flip_tolerance:g} of the answers may differ")
    if first and (first["quantizer"] or not same):
        print(describe(first))
    begun = beginnings(source, engine, folded or own)
    if (folded or own).codes_different:
        print(describe_beginnings(begun))
    warnings = [] if onnxruntime.__version__ in MEASURED else [
        f"{ENGINE} runs; what is documented was measured with {' and '.join(MEASURED)}"]
    for head, lines in [("warning", warnings), ("why", reasons), ("way out", ways)]:
        for line in lines:
            print(f"{head}: {line}")
    if args.json:
        report = as_json(own, folded, engine, samples, kernels, not_compared) | {
            "tolerance": tolerance, "code_tolerance": code_tolerance, "flip_tolerance": flip_tolerance,
            "warnings": warnings, "same": same, "first_difference": first, "begun": begun,
            "reasons": reasons, "ways": ways}
        with open(args.json, "w") as file:
            json.dump(report, file)
    return 0 if same else 1


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        try:
            sides = [[Predictions(path) for path in side] for side in (args.predictions, args.folded) if side]
            return run(args, sides, folder)
        except Exception as error:  # some of the engine's classes derive from Exception only
            hint = ": is it of a type that export --emulate writes otherwise?" if "NOT_IMPLEMENTED" in str(error) else ""
            print(f"{args.model} in {ENGINE}: {' '.join(str(error).split())}{hint}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    raise SystemExit(main())
