"""An exported ONNX file in OpenVINO on the CPU, and the codes that it makes."""
import collections

import numpy as np
import openvino as ov

from onnx_source import ON_GRIDS
from processor import has_vnni

VERSION = ov.get_version().split("-")[0]
MOVED = {"Transpose", "Flatten", "Reshape", "MaxPool", "Concat", "Relu", "Identity", "Slice", "Clip", "Max"}


def opened(path, outputs, threads):
    core = ov.Core()
    model = core.read_model(path)
    if outputs:
        model.add_outputs(outputs)
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = threads
    return core.compile_model(model, "CPU", options)


class OpenVino:
    """The network as users have it, and one that shows codes; `missing` are quantizers that the file has not, `constant`
    quantizers of constants, whose codes are not compared."""

    def __init__(self, path, source, predictions, threads):
        self.missing, self.names, self.constant = source.sorted_quantizers(predictions)
        self.network = opened(path, [], threads)
        self.inside = opened(path, self.names, threads)
        self.exposed_different = 0
        operations = [op for op in self.network.get_runtime_model().get_ordered_ops()]
        kinds = [(op, self.told(op, "layerType"), self.told(op, "runtimePrecision")) for op in operations]
        hidden = {"Input", "Output", "Const", "Reorder", "Parameter", "Result", "Constant"}
        self.kernels = dict(collections.Counter(f"{kind} {precision}" for _, kind, precision in kinds if kind not in hidden))
        self.float_kernels = [{"node": op.get_friendly_name(), "kernel": kind} for op, kind, precision in kinds
                              if kind not in hidden and precision in ("f32", "f16", "bf16")]

    @staticmethod
    def told(op, key):
        info = op.get_rt_info()
        return str(info[key].value if hasattr(info[key], "value") else info[key]) if key in info else ""

    def logits(self, x):
        return np.ascontiguousarray(self.network(fed(self.network, x))[self.network.output(0)])

    def codes(self, x):
        """By quantizer, and the logits of that run."""
        found = self.inside(fed(self.inside, x))
        return ({name: found[self.inside.output(name)] for name in self.names},
                np.ascontiguousarray(found[self.inside.output(0)]))

    @staticmethod
    def expected(source, name, stored):
        node = source.quantizer(name)
        return stored.astype(np.int32) + source.zero_point(node)


def fed(network, x):
    if len(network.inputs) == 1:
        return [x]
    sizes = [int(np.prod([d.get_length() for d in list(part.partial_shape)[1:]])) for part in network.inputs]
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
    return [own.reshape(len(x), *[d.get_length() for d in list(part.partial_shape)[1:]])
            for part, own in zip(network.inputs, parts)]


def explain(engine, source, counts):
    """(reasons, ways, lines): the first quantizer whose codes differ, and what computes them."""
    if not counts.different and not counts.logit_bits_different:
        return [], [], []
    order = {name: at for at, name in enumerate(source.producers)}
    first = min(counts.different, key=order.get) if counts.different else None
    nodes = source.behind(source.quantizer(first).input[0] if first else source.output, counts.compared)
    operators = [node for node in nodes if node.op_type not in ON_GRIDS]
    named = ", ".join(f"{node.name} ({node.op_type})" for node in operators[:4]) or "the input"
    what = (f"{first}, {counts.different[first]:,} of {counts.compared[first]:,} codes by {counts.steps.get(first, 0)} steps at "
            f"most" if first else "the logits")
    arithmetic = [node for node in operators if node.op_type not in MOVED]
    cause = ("the engine rounds floats behind its integer sums in an order of its own" if arithmetic else
             "the engine multiplies the input by the reciprocal of its scale, where the file divides, which shows at ties")
    ways = [] if source.powers_of_two() else [
        "calibrate with --scale pow2 and train that: products by powers of two round nothing"]
    if has_vnni() is False:
        cause += "; this processor has no VNNI, so that pairs of products of bytes saturate at 16 bits in the engine"
        ways.insert(0, "run it on a processor with VNNI")
    told = f"first different: {what}; it rounds the result of {named}: {cause}"
    return [told], ways, [told]
