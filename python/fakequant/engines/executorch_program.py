"""Programs of ExecuTorch for XNNPACK: lowering, loading, running."""
import collections
import contextlib
import importlib.metadata
import io
import logging
import re
import warnings

logging.disable(logging.WARNING)  # warnings of the imports
import torch  # noqa: E402
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner  # noqa: E402
from executorch.exir import to_edge_transform_and_lower  # noqa: E402
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer  # noqa: E402
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_  # noqa: E402
from torchao.quantization.granularity import PerAxis, PerGroup  # noqa: E402

VERSIONS = {name: importlib.metadata.version(name) for name in ("executorch", "torchao", "torch")}


def dynamic_linear(codes, scales, bias, bits):
    """Returns a Linear for XNNPACK's dynamic int8 inputs with these weights: codes i8 [N, K], scales f32 [N, 1] or [N, K / block]."""
    channels, columns = codes.shape
    layer = torch.nn.Linear(columns, channels, bias=bias is not None)
    block = columns // scales.shape[1]
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8 if bits > 4 else torch.int4,
                                                   weight_granularity=PerAxis(0) if block == columns else PerGroup(block))
    quantize_(layer, config)
    with torch.no_grad():
        layer.weight.qdata.copy_(codes)
        layer.weight.scale.copy_(scales.reshape(layer.weight.scale.shape))
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


class SideBySide(torch.nn.Module):
    """Independent layers, each with its own input. Lowering one program is faster than lowering many."""

    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, *inputs):
        return tuple(layer(x) for layer, x in zip(self.layers, inputs))


def lowered(module, *examples):
    """Returns the bytes of the program, and the result of `delegated`."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        edge = to_edge_transform_and_lower(torch.export.export(module.eval(), examples),
                                           partitioner=[XnnpackPartitioner()])
        counts = delegated(edge.exported_program())
        program = edge.to_executorch().buffer
    return bytes(program), counts


def delegated(program):
    """Returns the number of parts that XNNPACK computes, and the counts of portable kernels by name."""
    inside, outside = 0, collections.Counter()
    for node in program.graph.nodes:
        if node.op == "call_function" and "getitem" not in str(node.target):
            if "delegate" in str(node.target):
                inside += 1
            else:
                named = re.search(r"\w+::\w+", str(node.target))
                outside[named.group() if named else str(node.target)] += 1
    return inside, dict(outside)


class Program:
    """A loaded program. It keeps the bytes alive, because the runtime only refers to them."""

    def __init__(self, data):
        self.data = data
        self.module = _load_for_executorch_from_buffer(data)

    def __call__(self, *inputs):
        """Returns the list of outputs."""
        return [y.numpy().copy() for y in self.module.forward(inputs)]
