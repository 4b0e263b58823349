"""What an engine computes in floats, or rounds otherwise than a product of codes, and why: the causes behind codes that differ."""
from onnx import TensorProto

from onnx_source import MOVES, ON_GRIDS

# What an integer kernel takes into its rounding, and what the definition rounds before: the sums become floats, are cut off, and
# are divided by the next scale, where the kernel multiplies once.
CUT_OFF = {"Clip"}
PASSES = {"Relu", "Identity", "Clip", "Max"} | MOVES
PRODUCTS = {"Conv", "Gemm", "MatMul"}


def cut_off(source):
    """Nodes between codes that cut sums off (relu6, clip)."""
    return [node for node in source.nodes if node.op_type in CUT_OFF
            and source.producers.get(node.input[0]) is not None
            and source.producers[node.input[0]].op_type not in ON_GRIDS | {"QuantizeLinear"}
            and any(reader.op_type == "QuantizeLinear" for reader in source.readers.get(node.output[0], []))]


def readers_behind(source, name):
    """Who reads a value, behind what an integer kernel takes along."""
    for reader in source.readers.get(name, []):
        if reader.op_type in PASSES:
            yield from readers_behind(source, reader.output[0])
        else:
            yield reader


def float_bias(source, node):
    """Whether the node adds a bias of floats, which the engine rounds to the grid of the sums once more."""
    bias = node.input[2] if len(node.input) > 2 else ""
    return bias in source.constants and source.constants[bias].data_type == TensorProto.FLOAT


def cause_of(source, kernel):
    """Why a kernel computes in floats, as (kind, a line): "operator", "fusion" or "bias"."""
    node = next((node for node in source.nodes if node.name and kernel.name.startswith(node.name)), None)
    told = f"{kernel.op_type} {kernel.name}".strip()
    if node is None or node.op_type not in PRODUCTS:
        return "operator", f"{told}: the engine has no integer kernel of it that rounds as the definition does"
    others = [reader for reader in readers_behind(source, node.output[0]) if reader.op_type != "QuantizeLinear"]
    if others:
        return "fusion", (f"{told}: not taken together with a quantizer, as {others[0].op_type} {others[0].name} reads its "
                          "result")
    if float_bias(source, node):
        return "bias", f"{told}: its bias is floats, which the engine rounds again"
    return "fusion", f"{told}: not taken together with the quantizers around it"


def float_causes(source, kernels):
    """{kind: lines} of the kernels that compute in floats."""
    found = {}
    for kernel in kernels:
        kind, line = cause_of(source, kernel)
        found.setdefault(kind, []).append(line)
    return found
