"""A network that fakequant has written down, as a module of PyTorch."""
import json

import torch
from torch.nn import functional

from engine_script import Unusable
from executorch_program import dynamic_linear


def attribute(file, name):
    return json.loads(file["attributes"][()])[name]


class Network(torch.nn.Module):
    """Its operators one after another. Linear layers of XNNPACK's dynamic int8 are torchao's, with codes and scales of the
    file; a quantizer of an activation is a pair of quantize and dequantize, and constants that are codes are dequantized, which
    XNNPACK takes together into products of integers."""

    def __init__(self, file):
        super().__init__()
        graph = attribute(file, "graph")
        self.nodes, self.input, self.output = graph["nodes"], graph["input"], graph["output"]
        self.shape, self.tokens = graph["shape"], graph["tokens"]
        self.coded, self.layers, self.grids, self.joined, self.quantized_layers = {}, torch.nn.ModuleDict(), {}, {}, 0
        for name, value in file.get("values", {}).items():
            self.register_buffer(f"value{name}", torch.from_numpy(value[...]))
        for name, value in file.get("codes", {}).items():
            scales = torch.from_numpy(file["scales"][name][...])
            self.coded[int(name)] = (torch.from_numpy(value[...]), scales, attribute(file, f"bits/{name}"))
        for at, node in enumerate(self.nodes):
            self.prepare(at, node)
        self.early = self.joined | {value: grid for node in self.nodes if self.is_product(node)
                      for value, grid in [self.rounded_at(node["output"])] if grid}

    def example(self):
        return torch.zeros(self.shape, dtype=torch.int64 if self.tokens else torch.float32)

    def prepare(self, at, node):
        if node["op"] == "quantize":
            self.grids[node["output"]] = node
        elif node["op"] == "concat":
            self.prepare_join(node)
        elif node["op"] not in OPERATORS and not self.is_product(node):
            raise Unusable(f"'{node['path']}' ({node['op']}): no way to write it for ExecuTorch; it takes "
                           f"{', '.join(sorted([*OPERATORS, 'linear', 'conv2d']))}")
        if self.is_product(node) and node["inputs"][1] in self.coded:
            self.quantized_layers += 1
            bias = self.constant(node["inputs"][2]) if len(node["inputs"]) > 2 else None
            codes, scales, bits = self.coded[node["inputs"][1]]
            if node["attributes"].get("engine") == "xnnpack":
                scales = scales if scales.ndim == 2 else scales.reshape(-1, 1)
                self.layers[str(at)] = dynamic_linear(codes, scales, bias, bits)
            else:
                self.prepare_static(at, node, codes, scales.flatten(), bias)
        elif node["attributes"].get("engine") == "xnnpack":
            raise Unusable(f"'{node['path']}' has a weight that is no codes")

    def prepare_join(self, node):
        """Codes of one grid, side by side, are codes of that grid."""
        grids = [self.grids.get(self.origin(value)) for value in node["inputs"]]
        if all(grid and all(grid[key] == grids[0][key] for key in ("scale", "zero_point", "low", "high")) for grid in grids):
            self.grids[node["output"]] = self.joined[node["output"]] = grids[0]

    def prepare_static(self, at, node, codes, scales, bias):
        grid = self.grids.get(self.origin(node["inputs"][0]))
        integers = self.rounded_at(node["output"])[1] is not None  # else its sums stay floats: XNNPACK has no kernel for that
        if grid is None and integers:
            raise Unusable(f"'{node['path']}' is quantized for {node['attributes'].get('engine', 'another engine')}, or its input "
                           "has no range of its own: calibrate with --preset int8, 8da8w or 8da4w")
        scales = scales if len(scales) == codes.shape[0] else scales.expand(codes.shape[0]).contiguous()
        if bias is not None and grid is not None:  # on the grid of the sums, as it was trained
            grid_of_sums = torch.tensor(grid["scale"], dtype=torch.float32) * scales
            self.register_buffer(f"bias{at}", torch.round(bias / grid_of_sums) * grid_of_sums)
        if integers:
            self.register_buffer(f"codes{at}", codes)
            self.register_buffer(f"scales{at}", scales)
            self.register_buffer(f"zeros{at}", torch.zeros(len(scales), dtype=torch.int64))

    def rounded_at(self, value):
        """Behind a product and its ReLU: (the value, the quantizer that it reaches through what moves codes), or (.., None)."""
        first = None
        while True:
            readers = [node for node in self.nodes if value in node["inputs"]]
            if len(readers) != 1:
                return first, None
            reader, = readers
            if reader["op"] == "quantize":
                return value if first is None else first, reader
            if reader["op"] == "relu" and first is None:
                value = reader["output"]
            elif reader["op"] in MOVES:
                first, value = value if first is None else first, reader["output"]
            else:
                return first, None

    def origin(self, value):
        """The quantizer whose codes are read, behind what moves them."""
        made = {node["output"]: node for node in self.nodes}
        while value in made and made[value]["op"] in MOVES:
            value = made[value]["inputs"][0]
        return value

    @staticmethod
    def is_product(node):
        return node["op"] in ("linear", "conv2d")

    def constant(self, value):
        return None if value < 0 else getattr(self, f"value{value}")

    def value_of(self, known, value):
        """As floats: codes are dequantized once for each reader, as XNNPACK takes a reader and its pair together."""
        if value < 0:
            return None
        made = known[value] if value in known else self.floats_of(value)
        return made.floats() if isinstance(made, Codes) else made

    def floats_of(self, value):
        if value not in self.coded:
            return self.constant(value)
        codes, scales, _ = self.coded[value]
        for axis in range(scales.ndim):
            scales = scales.repeat_interleave(codes.shape[axis] // scales.shape[axis], axis)
        return codes.to(torch.float32) * scales

    def forward(self, x):
        known = {self.input: x}
        for at, node in enumerate(self.nodes):
            inputs, made = node["inputs"], node["output"]
            if node["op"] == "quantize":
                known[made] = Codes(self.value_of(known, inputs[0]), node)
            elif str(at) in self.layers:
                known[made] = self.layers[str(at)](self.value_of(known, inputs[0]))
            elif self.is_product(node):
                known[made] = self.product(at, node, known)
            else:
                known[made] = OPERATORS[node["op"]]([self.value_of(known, i) for i in inputs], node["attributes"])
            if node["op"] == "add" and any(isinstance(known.get(value), Codes) for value in inputs):
                known[made] = known[made] * 1.0  # XNNPACK would add codes by multipliers of its own, not values
            if made in self.early:  # before what moves codes, where the engine rounds
                known[made] = Codes(known[made], self.early[made])
        return self.value_of(known, self.output)

    def product(self, at, node, known):
        inputs, told = node["inputs"], node["attributes"]
        x, bias = self.value_of(known, inputs[0]), self.constant(inputs[2]) if len(inputs) > 2 else None
        bias = getattr(self, f"bias{at}", bias)
        if hasattr(self, f"codes{at}"):
            codes = getattr(self, f"codes{at}")
            weight = torch.ops.quantized_decomposed.dequantize_per_channel(
                codes, getattr(self, f"scales{at}"), getattr(self, f"zeros{at}"), 0, -127, 127, torch.int8)
        else:
            weight = self.value_of(known, inputs[1])
        if node["op"] == "linear":
            return functional.linear(x, weight, bias)
        return functional.conv2d(x, weight, bias, told["stride"], told["padding"], told["dilation"], told["groups"])


class Codes:
    """A value on the grid of a quantizer."""

    def __init__(self, x, node):
        zero = node["zero_point"]
        self.grid = (node["scale"], zero, int(node["low"]) + zero, int(node["high"]) + zero, torch.int8)
        self.codes = torch.ops.quantized_decomposed.quantize_per_tensor(x, *self.grid)

    def floats(self):
        return torch.ops.quantized_decomposed.dequantize_per_tensor(self.codes, *self.grid)


def layer_norm(inputs, told):
    x, weight, bias = (*inputs, None, None)[:3]
    return functional.layer_norm(x, x.shape[x.ndim - told["axes"]:], weight, bias, told["eps"])


def attention(inputs, told):
    q, k, v, mask = (*inputs, None)[:4]
    if mask is not None:
        raise Unusable("attention with a mask of its own: no way to write it for ExecuTorch")
    scores = torch.matmul(q, k.transpose(-2, -1)) * told["scale"]
    if told["causal"]:
        rows, columns = scores.shape[-2:]
        scores = scores + torch.full((rows, columns), -1e30).triu(1)
    return torch.matmul(torch.softmax(scores, -1), v)


def transposed_conv(inputs, told):
    x, weight, bias = (*inputs, None)[:3]
    return functional.conv_transpose2d(x, weight, bias, told["stride"], told["padding"], told["output_padding"], told["groups"],
                                       told["dilation"])


def sliced(inputs, told):
    end = min(told["end"], inputs[0].shape[told["axis"]])
    return inputs[0][(slice(None),) * told["axis"] + (slice(told["begin"], end, told["step"]),)]


MOVES = {"dequantize", "to_float", "reshape", "flatten", "transpose", "slice", "max_pool2d", "dropout"}
OPERATORS = {
    "dequantize": lambda i, a: i[0], "to_float": lambda i, a: i[0], "dropout": lambda i, a: i[0],
    "relu": lambda i, a: torch.relu(i[0]), "gelu": lambda i, a: functional.gelu(i[0], approximate=a["approximate"]),
    "silu": lambda i, a: functional.silu(i[0]), "sigmoid": lambda i, a: torch.sigmoid(i[0]),
    "tanh": lambda i, a: torch.tanh(i[0]), "softmax": lambda i, a: torch.softmax(i[0], a["axis"]),
    "add": lambda i, a: i[0] + i[1], "sub": lambda i, a: i[0] - i[1], "multiply": lambda i, a: i[0] * i[1],
    "layer_norm": layer_norm, "embedding": lambda i, a: functional.embedding(i[0], i[1]),
    "reshape": lambda i, a: i[0].reshape(a["shape"]), "flatten": lambda i, a: i[0].flatten(a["start_axis"]),
    "transpose": lambda i, a: i[0].permute(a["axes"]), "slice": sliced,
    "concat": lambda i, a: torch.cat(i, a["axis"]),
    "scaled_dot_product_attention": attention, "conv_transpose2d": transposed_conv,
    "max_pool2d": lambda i, a: functional.max_pool2d(i[0], a["kernel"], a["stride"], a["padding"]),
    "global_avg_pool2d": lambda i, a: i[0].mean((2, 3), keepdim=True)}
