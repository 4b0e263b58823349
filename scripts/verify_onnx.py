#!/usr/bin/env python3
"""Runs an ONNX file that fakequant exported in ONNX Runtime and counts what differs from fakequant's own evaluation.

PREDICTIONS are HDF5 files with x, logits and codes/<quantizer>, as `fakequant verify` writes them. Codes are read from
the optimised graph: it is saved, the tensors of its quantizers are exposed, and it runs once more as it is; exposing
them in the exported file would change what the optimiser fuses. Exit status: 0 the same, 1 different, 2 a file that
cannot be used, 3 a Python package is missing."""
import argparse
import collections
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before it is loaded: its packages report to their maker otherwise
try:
    import h5py
    import numpy as np
    import onnxruntime
    from onnx import TensorProto

    from onnx_engine import FLOAT8, LEVELS, Engine, Source
except ImportError as error:
    print(f"{sys.executable} has no {error.name}: run {sys.executable} -m pip install onnxruntime onnx h5py, or name "
          "another Python by --python or FAKEQUANT_PYTHON", file=sys.stderr)
    raise SystemExit(3) from None

BATCH, ALONE = 256, 8
ENGINE = f"onnxruntime {onnxruntime.__version__}"


def expected_codes(source, name, kind, stored):
    """The library's codes as the engine's tensor holds them: with the zero point, which the engine moves by 128 where it
    makes a signed tensor unsigned."""
    node = source.quantizer(name)
    if kind in FLOAT8:
        return stored.view(FLOAT8[kind]).astype(np.float32).view(np.int32)
    moved = kind == TensorProto.UINT8 and source.code_type(node) == TensorProto.INT8
    return stored.astype(np.int32) + source.zero_point(node) + (128 if moved else 0)


def in_logical_order(expected, value, channels_last):
    """With the channels first. Where the shapes tell the order they have the word: the optimiser also moves the
    transpositions of the network itself."""
    if value.ndim < 3:
        return value
    moved = np.moveaxis(value, -1, 1)
    first, last = value.shape == expected.shape, moved.shape == expected.shape
    return moved if (channels_last if first == last else last) else value


def count_different(expected, value, channels_last=False):
    """Elements with other bits, in logical order."""
    value = in_logical_order(expected, value, channels_last)
    value = np.ascontiguousarray(value)
    value = value.view(np.int32) if value.dtype == np.float32 else value
    return expected.size if value.size != expected.size else int((value.ravel() != expected.ravel()).sum())


class Counts:
    def __init__(self):
        self.codes = self.logits = self.logit_bits_different = self.flips = 0
        self.alone_different = self.exposed_different = 0
        self.max_abs_diff = self.largest = 0.0
        self.different = collections.Counter()  # codes by quantizer

    def add_logits(self, expected, value):
        same = expected.view(np.int32) == value.view(np.int32)
        with np.errstate(invalid="ignore"):
            off = np.nan_to_num(np.where(same, 0, np.abs(expected.astype(np.float64) - value)), nan=np.inf)
        self.logits += expected.size
        self.logit_bits_different += int((~same).sum())
        self.flips += int((expected.argmax(-1) != value.argmax(-1)).sum())
        self.max_abs_diff = max(self.max_abs_diff, float(off.max(initial=0)))
        self.largest = max(self.largest, float(np.abs(np.nan_to_num(expected)).max(initial=0)))

    def same(self, tolerance, code_tolerance):
        if self.different.total() > code_tolerance * self.codes:
            return False
        if tolerance == 0:
            return not (self.logit_bits_different or self.alone_different)
        return self.max_abs_diff <= tolerance * self.largest


def compare(engine, source, files):
    """All samples in batches; the first few also one by one."""
    counts = Counts()
    for file in files:
        for start in range(0, len(file["x"]), BATCH):
            rows = slice(start, start + BATCH)
            x, expected = file["x"][rows], file["logits"][rows]
            logits = engine.logits(x)
            if logits.shape != expected.shape:
                raise ValueError(f"it answers {list(logits.shape)} where the checkpoint answers {list(expected.shape)}")
            counts.add_logits(expected, logits)
            if counts.logits == expected.size:
                alone = np.concatenate([engine.logits(x[i:i + 1]) for i in range(min(ALONE, len(x)))])
                counts.alone_different = count_different(expected[:ALONE].view(np.int32), alone)
            values, of_exposed = engine.codes(x)
            counts.exposed_different += count_different(logits.view(np.int32), of_exposed)
            for name, (tensor, channels_last, kind) in engine.found.items():
                wanted = expected_codes(source, name, kind, file["codes"][name][rows])
                counts.codes += wanted.size
                counts.different += {name: count_different(wanted, values[tensor], channels_last)}
                counts.different += collections.Counter()  # drops zeros
    return counts


def print_counts(counts, source, engine, samples, kernels):
    print(f"verify: {counts.different.total():,} of {counts.codes:,} codes and {counts.logit_bits_different:,} of "
          f"{counts.logits:,} logits differ (bits), {counts.flips:,} argmax flips, largest difference "
          f"{counts.max_abs_diff:.3g}")
    print(f"{ENGINE}, level {engine.level}, {samples:,} samples: "
          + ", ".join(f"{kind} {count}" for kind, count in kernels.items()))
    for names, what in [(engine.missing, "that the engine does not make"), (engine.absent, "that the file has not")]:
        if names:
            print(f"codes {what}: {', '.join(names)}")
    if counts.different:
        first = min(counts.different, key=list(source.producers).index)
        print(f"codes differ in {len(counts.different)} quantizers, first in {first}: {counts.different[first]:,}")
    if counts.alone_different:
        print(f"{counts.alone_different} logits differ where a sample is a batch of its own")
    if counts.exposed_different:
        print(f"{counts.exposed_different} logits changed when codes were read: the engine computes them otherwise then")


def as_json(counts, engine, samples, kernels):
    return {"codes": counts.codes, "codes_different": counts.different.total(), "logits": counts.logits,
            "logit_bits_different": counts.logit_bits_different, "flips": counts.flips,
            "max_abs_diff": counts.max_abs_diff, "samples": samples, "engine": ENGINE, "level": engine.level,
            "session_options": engine.options, "kernels": kernels, "not_materialised": engine.missing,
            "not_in_file": engine.absent, "different": counts.different,
            "alone_logit_bits_different": counts.alone_different,
            "exposed_logit_bits_different": counts.exposed_different}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("predictions", nargs="+")
    parser.add_argument("--level", choices=LEVELS, help="of optimisation (all; basic for 8-bit floats and 4-bit activations)")
    parser.add_argument("--session", metavar="KEY=VALUE", action="append", default=[],
                        help="an option of the session, such as session.disable_quant_qdq=1")
    parser.add_argument("--threads", type=int, default=0, help="of the engine; 0: its own choice")
    parser.add_argument("--tolerance", type=float, help="of logits, relative to the largest one; 0: the same bits (0 for "
                        "8-bit integers; 1e-6 for floats, 4-bit weights and weights in blocks)")
    parser.add_argument("--code-tolerance", type=float, default=0.0, help="share of codes that may differ (0)")
    parser.add_argument("--json", metavar="FILE", help="write the counts to this file too")
    return parser.parse_args()


def run(args, files, folder):
    source = Source(args.model)
    level, options = source.settings()
    options |= dict(entry.split("=", 1) for entry in args.session)
    engine = Engine(source, args.model, list(files[0].get("codes", ())), args.level or level, options, args.threads, folder)
    counts = compare(engine, source, files)
    tolerance = args.tolerance if args.tolerance is not None else 0.0 if source.integer() else 1e-6
    samples, kernels = sum(len(file["x"]) for file in files), collections.Counter(n.op_type for n in engine.graph.nodes)
    print_counts(counts, source, engine, samples, kernels)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(as_json(counts, engine, samples, kernels) | {"tolerance": tolerance}, file)
    return 0 if counts.same(tolerance, args.code_tolerance) and not engine.absent else 1


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return run(args, [h5py.File(path) for path in args.predictions], folder)
        except Exception as error:  # some of the engine's classes derive from Exception only
            hint = ": is it of a type that export --emulate writes otherwise?" if "NOT_IMPLEMENTED" in str(error) else ""
            print(f"{args.model} in {ENGINE}: {' '.join(str(error).split())}{hint}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    raise SystemExit(main())
