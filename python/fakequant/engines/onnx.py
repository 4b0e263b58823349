"""Runs an ONNX file that fakequant exported in ONNX Runtime and counts the differences from the evaluation of fakequant.

PREDICTIONS are HDF5 files with x, logits and codes/<quantizer>. Codes are read from the optimised graph, which is saved and run
again with the tensors of its quantizers as outputs. Outputs of the exported file would change the fusions.

Default bounds: the same bits for 8-bit integers. If the engine computes floats between the codes, logits may differ by 0.02 of the
largest, and 1e-3 of the codes and 1e-3 of the predictions. For floats, 4-bit weights and weights in blocks logits may differ by 1e-6.
Exit status: 0 the same, 1 different or not compared, 2 a file that cannot be used, 3 a Python package is missing."""
import collections
import json
import os
import sys
import tempfile

from .comparison import comparison_parser, print_messages, required_packages

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # set before the import
with required_packages(__name__, "onnxruntime onnx h5py"):
    import numpy as np
    import onnxruntime

    from .counts import Counts, Predictions
    from .onnx_engine import Engine
    from .onnx_reasons import (
        FLOAT_ANSWERS,
        FLOAT_CODES,
        FLOAT_LOGITS,
        beginnings,
        describe,
        describe_beginnings,
        explain,
        first_difference,
        rounds_floats,
    )
    from .onnx_session import LEVELS, TWO_BYTES
    from .onnx_source import FLOAT8, Source
    from .processor import has_vnni

ENGINE = f"onnxruntime {onnxruntime.__version__}"
MEASURED = ("1.31.1", "1.32.0")  # the versions whose figures are documented
ALONE = 8  # number of samples that also run as a batch of one


def bits_different(expected, value):
    return int((expected.ravel().view(np.int32) != value.ravel().view(np.int32)).sum())


def count(engine, source, sides):
    """Returns the counts of each side. A side is a list of files, and all sides have the same samples. Also counts in `engine`
    the logits that differ for the first samples alone, and when codes are outputs."""
    counts = [Counts() for _ in sides]
    for files in zip(*sides, strict=True):
        for rows in files[0].batches(source.batch(files[0].batch)):
            x = files[0].x(rows)
            logits = engine.logits(x)
            values, of_exposed = engine.codes(x)
            engine.exposed_different += bits_different(logits, of_exposed)
            if counts[0].logits == 0:
                alone = [engine.logits(x[i:i + 1]) for i in range(min(ALONE, len(logits)))]
                engine.alone_different = bits_different(logits[:ALONE], np.concatenate(alone))
            for side, file in zip(counts, files):
                add(side, engine, file, rows, logits, values)
    return counts


def add(counts, engine, file, rows, logits, values):
    expected = file.logits(rows)
    if logits.shape != expected.shape:
        raise ValueError(f"its outputs are {list(logits.shape)}, and the outputs of the checkpoint {list(expected.shape)}")
    counts.add_logits(expected, logits)
    agree = np.ones(len(expected), bool)
    for name, kind, wanted, value in engine.compared_codes(file, rows, values):
        counts.add_codes(name, wanted, value, kind not in FLOAT8)
        value = value.view(np.int32) if value.dtype == np.float32 else value
        if value.size == wanted.size:
            wanted, value = (np.moveaxis(codes, file.axis(name), 0) for codes in (wanted, value.reshape(wanted.shape)))
        counts.add_begun(name, wanted, value, agree)


def print_counts(own, folded, engine, samples, kernels, not_compared):
    print(f"verify: {own.text()}")
    if folded:
        print(f"batch norms folded: {folded.text()}")
    print(f"{ENGINE}, level {engine.level}, {samples:,} samples: "
          + ", ".join(f"{kind} {number}" for kind, number in kernels.items()))
    if not_compared:
        print(f"not compared: {sum(not_compared.values()):,} codes that the engine does not compute: {', '.join(not_compared)}")
    if engine.absent:
        print(f"quantizers that the file does not have: {', '.join(engine.absent)}")
    if engine.alone_different:
        print(f"{engine.alone_different} logits differ if a sample runs as a batch of one")
    if engine.exposed_different:
        print(f"{engine.exposed_different} logits changed when codes were outputs: the engine then computes them differently")


def as_json(own, folded, engine, samples, kernels, not_compared):
    return {"codes": own.codes, "logits": own.logits, **own.as_json(), "folded": folded and folded.as_json(),
            "samples": samples, "engine": ENGINE, "level": engine.level, "session_options": engine.options,
            "kernels": kernels,
            "float_kernels": [{"node": node.name, "kernel": node.op_type} for node in engine.float_kernels],
            "compared": own.compared, "not_compared": not_compared, "not_in_file": engine.absent,
            "alone_logit_bits_different": engine.alone_different,
            "exposed_logit_bits_different": engine.exposed_different}


def arguments():
    parser = comparison_parser(__doc__, None, None, None)
    parser.add_argument("--level", choices=LEVELS, help="optimisation level (default: all; basic for 8-bit floats and 4-bit activations)")
    parser.add_argument("--session", metavar="KEY=VALUE", action="append", default=[],
                        help="option of the session, for example session.disable_quant_qdq=1")
    return parser.parse_args()


def session_options(entries):
    for entry in entries:
        if "=" not in entry.strip("="):
            raise ValueError(f"--session {entry} is not KEY=VALUE, for example session.disable_quant_qdq=1")
    return dict(entry.split("=", 1) for entry in entries)


def processor_options(source):
    """Returns the session entries that byte products require on this processor. Without VNNI pairs of products saturate at 16 bits."""
    return TWO_BYTES if source.bytes() and has_vnni() is False else {}


def bounds(args, source, in_floats):
    """Returns the bounds of logits, codes and predictions: the flags, else 0 for integers and the stated bounds for floats."""
    usual = ((FLOAT_LOGITS, FLOAT_CODES, FLOAT_ANSWERS) if in_floats else (0.0, 0.0, 1.0) if source.integer()
             else (1e-6, 0.0, 1.0))
    given = [args.tolerance, args.code_tolerance, args.flip_tolerance]
    if given[:2] != [None, None] and given[2] is None:
        given[2] = 1.0  # the given bounds decide
    return [standard if value is None else value for value, standard in zip(given, usual)]


def run(args, sides, folder):
    files = sides[0]
    source = Source(args.model)
    level, options = source.settings()
    chosen = level, options | processor_options(source)
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
    if processor_options(source).items() & engine.options.items():
        print("this processor has no VNNI: sessions on it require session.x64quantprecision=1, which this session had")
    if floats:
        print(f"the engine computes floats between codes: logits may differ by {tolerance:g} of the largest, {code_tolerance:g} of "
              f"the codes and {flip_tolerance:g} of the predictions may differ")
    if first and (first["quantizer"] or not same):
        print(describe(first))
    begun = beginnings(source, engine, folded or own)
    if (folded or own).codes_different:
        print(describe_beginnings(begun))
    warnings = [] if onnxruntime.__version__ in MEASURED else [
        f"{ENGINE} runs; the documented results were measured with {' and '.join(MEASURED)}"]
    print_messages(warnings, reasons, ways)
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
            hint = ": the engine may lack a type, which export --emulate writes as arithmetic" if "NOT_IMPLEMENTED" in str(error) else ""
            print(f"{args.model} in {ENGINE}: {' '.join(str(error).split())}{hint}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    raise SystemExit(main())
