#!/usr/bin/env python3
"""Runs an ONNX file that fakequant exported in OpenVINO on the CPU and compares it with fakequant's own evaluation.

PREDICTIONS are HDF5 files with x, logits and codes/<quantizer>, as `fakequant verify` writes them. Codes are read in a
second run in which they are outputs, which may keep the engine from fusing: where its logits are others than those of the
first run, their number is told. Exit status: 0 within the bounds, 1 not, 2 a file that cannot be used, 3 a Python package
is missing."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from engine_script import arguments, ended, finish, version_warning  # noqa: E402

try:
    from engine_counts import Counts
    from engine_predictions import Predictions
    from onnx_source import Source
    from openvino_engine import VERSION, OpenVino, explain
except ImportError as error:
    print(f"{sys.executable} has no {error.name}: run {sys.executable} -m pip install openvino onnx h5py, or name another "
          "Python by --python or FAKEQUANT_PYTHON", file=sys.stderr)
    raise SystemExit(3) from None
if sys.argv[1:] == ["--packages"]:  # whether they are all there
    raise SystemExit(0)

MEASURED = "2026.4.1"
LOGITS, CODES, ANSWERS = 0.01, 1e-3, 0.0  # of the largest logit; of all codes; of all answers


def compare(engine, source, files, counts):
    for samples in zip(*files, strict=True):
        for rows in samples[0].batches(samples[0].batch):
            x = samples[0].x(rows)
            logits = engine.logits(x)
            codes, shown = engine.codes(x)
            engine.exposed_different += int((logits.view("i4") != shown.view("i4")).sum())
            for side, file in zip(counts, samples):
                side.add_logits(file.logits(rows), logits)
                for name, values in codes.items():
                    side.add_codes(name, engine.expected(source, name, file.codes(name, rows)), values, True)


def run(args):
    source = Source(args.model)
    files = [[Predictions(path) for path in side] for side in (args.predictions, args.folded) if side]
    engine = OpenVino(args.model, source, files[0][0], args.threads)
    counts = [Counts() for _ in files]
    compare(engine, source, files, counts)
    samples = sum(map(len, files[0]))
    not_compared = {name: sum(file.size(name) for file in files[0]) for name in engine.constant}
    reasons, ways, first = explain(engine, source, counts[-1])
    lines = [f"kernels: {', '.join(f'{kind} {number}' for kind, number in engine.kernels.items())}"]
    if not_compared:
        lines.append(f"not compared: {sum(not_compared.values()):,} codes of constants: {', '.join(not_compared)}")
    if engine.missing:
        lines.append(f"codes that the file has not: {', '.join(engine.missing)}")
    if engine.exposed_different:
        lines.append(f"{engine.exposed_different:,} logits changed when codes were read: the engine fuses otherwise then")
    return finish(args, f"openvino {VERSION}", counts, samples, same=not engine.missing, lines=lines + first,
                  warnings=version_warning("openvino", VERSION, MEASURED), reasons=reasons, ways=ways,
                  kernels=engine.kernels, float_kernels=engine.float_kernels, not_in_file=engine.missing,
                  not_compared=not_compared,
                  exposed_logit_bits_different=engine.exposed_different)


if __name__ == "__main__":
    given = arguments(__doc__, LOGITS, ANSWERS, CODES)
    raise SystemExit(ended(lambda: run(given), given.model))
