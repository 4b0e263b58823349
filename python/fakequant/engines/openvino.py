"""Runs an ONNX file that fakequant exported in OpenVINO on the CPU and compares it with the evaluation of fakequant.

PREDICTIONS are HDF5 files with x, logits and codes/<quantizer>. A second run has the codes as outputs. This may prevent fusions, so
the program counts the logits that differ between the two runs. Exit status: 0 within the bounds, 1 outside of the bounds, 2 a file
that cannot be used, 3 a Python package is missing."""
import collections

from .comparison import arguments, ended, finish, required_packages, version_warning

with required_packages(__name__, "openvino onnx h5py"):
    import numpy as np
    import openvino as ov

    from .counts import Counts, Predictions
    from .onnx_source import ON_GRIDS, Source
    from .processor import has_vnni

VERSION = ov.get_version().split("-")[0]
MOVED = {"Transpose", "Flatten", "Reshape", "MaxPool", "Concat", "Relu", "Identity", "Slice", "Clip", "Max"}
MEASURED = "2026.4.1"
LOGITS, CODES, ANSWERS = 0.01, 1e-3, 0.0  # shares of the largest logit, of all codes, and of all predictions


def open_model(path, outputs, threads):
    core = ov.Core()
    model = core.read_model(path)
    if outputs:
        model.add_outputs(outputs)
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = threads
    return core.compile_model(model, "CPU", options)


class OpenVino:
    """The network as users run it, and a network with the codes as outputs.

    `missing` are quantizers that the file lacks. `constant` are quantizers of constants, whose codes are not compared.
    """

    def __init__(self, path, source, predictions, threads):
        self.missing, self.names, self.constant = source.sorted_quantizers(predictions)
        self.network = open_model(path, [], threads)
        self.inside = open_model(path, self.names, threads)
        self.exposed_different = 0
        operations = [op for op in self.network.get_runtime_model().get_ordered_ops()]
        kinds = [(op, self.runtime_info(op, "layerType"), self.runtime_info(op, "runtimePrecision")) for op in operations]
        hidden = {"Input", "Output", "Const", "Reorder", "Parameter", "Result", "Constant"}
        self.kernels = dict(collections.Counter(f"{kind} {precision}" for _, kind, precision in kinds if kind not in hidden))
        self.float_kernels = [{"node": op.get_friendly_name(), "kernel": kind} for op, kind, precision in kinds
                              if kind not in hidden and precision in ("f32", "f16", "bf16")]

    @staticmethod
    def runtime_info(op, key):
        info = op.get_rt_info()
        return str(info[key].value if hasattr(info[key], "value") else info[key]) if key in info else ""

    def logits(self, x):
        return np.ascontiguousarray(self.network(network_inputs(self.network, x))[self.network.output(0)])

    def codes(self, x):
        """Returns the codes by quantizer, and the logits of the same run."""
        found = self.inside(network_inputs(self.inside, x))
        return ({name: found[self.inside.output(name)] for name in self.names},
                np.ascontiguousarray(found[self.inside.output(0)]))

    @staticmethod
    def expected(source, name, stored):
        node = source.quantizer(name)
        return stored.astype(np.int32) + source.zero_point(node)


def network_inputs(network, x):
    if len(network.inputs) == 1:
        return [x]
    sizes = [int(np.prod([d.get_length() for d in list(part.partial_shape)[1:]])) for part in network.inputs]
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
    return [own.reshape(len(x), *[d.get_length() for d in list(part.partial_shape)[1:]])
            for part, own in zip(network.inputs, parts)]


def explain(engine, source, counts):
    """Returns (reasons, ways, lines) about the first quantizer whose codes differ."""
    if not counts.different and not counts.logit_bits_different:
        return [], [], []
    order = {name: at for at, name in enumerate(source.producers)}
    first = min(counts.different, key=order.get) if counts.different else None
    nodes = source.find_upstream_nodes(source.quantizer(first).input[0] if first else source.output, counts.compared)
    operators = [node for node in nodes if node.op_type not in ON_GRIDS]
    named = ", ".join(f"{node.name} ({node.op_type})" for node in operators[:4]) or "the input"
    what = (f"{first}, {counts.different[first]:,} of {counts.compared[first]:,} codes by at most "
            f"{counts.steps.get(first, 0)} steps" if first else "the logits")
    arithmetic = [node for node in operators if node.op_type not in MOVED]
    cause = ("the engine rounds floats after its integer sums in its own order" if arithmetic else
             "the engine multiplies the input by the reciprocal of its scale, and the file divides: ties give other codes")
    ways = [] if source.powers_of_two() else [
        "calibrate with --scale pow2 and train: products by powers of two are exact"]
    if has_vnni() is False:
        cause += "; this processor has no VNNI, and pairs of products of bytes saturate at 16 bits in the engine"
        ways.insert(0, "run it on a processor with VNNI")
    line = f"first difference: {what}; it rounds the result of {named}: {cause}"
    return [line], ways, [line]


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
        lines.append(f"quantizers that the file does not have: {', '.join(engine.missing)}")
    if engine.exposed_different:
        lines.append(f"{engine.exposed_different:,} logits changed when codes were outputs: the engine then fuses differently")
    return finish(args, f"openvino {VERSION}", counts, samples, same=not engine.missing, lines=lines + first,
                  warnings=version_warning("openvino", VERSION, MEASURED), reasons=reasons, ways=ways,
                  kernels=engine.kernels, float_kernels=engine.float_kernels, not_in_file=engine.missing,
                  not_compared=not_compared,
                  exposed_logit_bits_different=engine.exposed_different)


if __name__ == "__main__":
    given = arguments(__doc__, LOGITS, ANSWERS, CODES)
    raise SystemExit(ended(lambda: run(given), given.model))
