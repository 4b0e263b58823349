"""Writes an ExecuTorch program for XNNPACK from a network file of fakequant: an HDF5 file with operators and
constants. Codes and scales are copied. The batch size is the one of the file. --json FILE writes a report. Exit status:
0 written, 2 a network that cannot be written, 3 a Python package is missing."""
import json

from .comparison import Unusable, ended, program_parser, required_packages

with required_packages(__name__, "executorch torchao torch h5py"):
    import h5py
    import torch

    from .executorch_operators import KEEPS_CHANNELS, MOVES, OPERATORS, PRODUCTS, Codes, PooledSums, Sums
    from .executorch_program import VERSIONS, dynamic_linear, lowered


def attribute(file, name):
    return json.loads(file["attributes"][()])[name]


class Network(torch.nn.Module):
    """Runs the operators of the file in their order.

    Linear layers with dynamic int8 inputs of XNNPACK are layers of torchao, with the codes and scales of the file. A quantizer of an
    activation is a pair of quantize and dequantize, and constant codes are dequantized: XNNPACK fuses them into integer products. If
    XNNPACK has no such product, codes are multiplied as floats.
    """

    def __init__(self, file):
        super().__init__()
        graph = attribute(file, "graph")
        self.nodes, self.input, self.output = graph["nodes"], graph["input"], graph["output"]
        self.shape, self.tokens = graph["shape"], graph["tokens"]
        self.coded, self.layers, self.grids, self.joined, self.quantized_layers = {}, torch.nn.ModuleDict(), {}, {}, 0
        self.sums = {}  # {value: scales} of sums that are not rounded yet
        for name, value in file.get("values", {}).items():
            self.register_buffer(f"value{name}", torch.from_numpy(value[...]))
        for name, value in file.get("codes", {}).items():
            scales = torch.from_numpy(file["scales"][name][...])
            self.coded[int(name)] = (torch.from_numpy(value[...]), scales, attribute(file, f"bits/{name}"))
        for at, node in enumerate(self.nodes):
            self.prepare(at, node)
        self.early = self.joined | {value: grid for node in self.nodes if self.is_product(node) and node["output"] not in self.sums
                      for value, grid in [self.next_quantizer(node["output"])] if grid}

    def example(self):
        return torch.zeros(self.shape, dtype=torch.int64 if self.tokens else torch.float32)

    def prepare(self, at, node):
        if node["op"] == "quantize":
            self.grids[node["output"]] = node
            if (scales := self.sums.get(node["inputs"][0])) is not None:
                self.register_buffer(f"factor{at}", scales / node["scale"])
        elif node["op"] == "concat":
            self.prepare_join(node)
        elif node["op"] not in OPERATORS and not self.is_product(node):
            raise Unusable(f"'{node['path']}' ({node['op']}) is not supported for ExecuTorch, the operators "
                           f"{', '.join(sorted([*OPERATORS, *PRODUCTS]))} are")
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
            raise Unusable(f"'{node['path']}' has a weight without codes")

    def prepare_join(self, node):
        """Records the grid of a concatenation whose inputs have one grid."""
        grids = [self.grids.get(self.origin(value)) for value in node["inputs"]]
        if all(grid and all(grid[key] == grids[0][key] for key in ("scale", "zero_point", "low", "high")) for grid in grids):
            self.grids[node["output"]] = self.joined[node["output"]] = grids[0]

    def prepare_static(self, at, node, codes, scales, bias):
        grid, channels = self.grids.get(self.origin(node["inputs"][0])), codes.shape[int(node["op"] == "conv_transpose2d")]
        integers = self.next_quantizer(node["output"])[1] is not None and node["op"] != "conv_transpose2d"
        if grid is None:
            if integers:
                raise Unusable(f"'{node['path']}' is quantized for {node['attributes'].get('engine', 'another engine')}, or its "
                               "input has no range of its own: calibrate with --preset int8, 8da8w or 8da4w")
            return
        scales = scales if len(scales) == channels else scales.expand(channels).contiguous()
        if node["op"] == "conv_transpose2d":
            scales = scales.repeat(node["attributes"]["groups"])
        of_sums = torch.tensor(grid["scale"], dtype=torch.float32) * scales
        steps = None if bias is None else torch.round(bias / of_sums)  # on the grid of the sums
        if integers:
            self.register_buffer(f"codes{at}", codes)
            self.register_buffer(f"scales{at}", scales)
            self.register_buffer(f"zeros{at}", torch.zeros(len(scales), dtype=torch.int64))
            self.register_buffer(f"bias{at}", None if steps is None else steps * of_sums)
        else:
            self.register_buffer(f"steps{at}", codes.to(torch.float32))
            self.register_buffer(f"bias{at}", steps)
            wide = of_sums if node["op"] == "linear" else of_sums.reshape(-1, 1, 1)
            self.register_buffer(f"scales{at}", wide)
            self.record_scales(node["output"], wide)

    def record_scales(self, value, scales):
        """Records the scales of sums for operators that keep channels separate."""
        self.sums[value] = scales
        for node in self.nodes:
            if node["op"] in KEEPS_CHANNELS and node["inputs"][0] == value:
                self.record_scales(node["output"], scales)

    def next_quantizer(self, value):
        """Returns (value, quantizer): the quantizer after a product, its ReLU and operators that move values, or None."""
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
        """Returns the output of the quantizer whose codes are read, before operators that move them."""
        made = {node["output"]: node for node in self.nodes}
        while value in made and made[value]["op"] in MOVES:
            value = made[value]["inputs"][0]
        return value

    @staticmethod
    def is_product(node):
        return node["op"] in PRODUCTS

    def constant(self, value):
        return None if value < 0 else getattr(self, f"value{value}")

    def float_value(self, known, value):
        """Returns the value as floats. Codes are dequantized for each reader, because XNNPACK fuses each reader with its dequantize."""
        if value < 0:
            return None
        made = known[value] if value in known else self.constant_floats(value)
        return made.floats() if isinstance(made, (Codes, Sums)) else made

    def constant_floats(self, value):
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
                known[made] = self.rounded(at, node, known)
            elif str(at) in self.layers:
                known[made] = self.layers[str(at)](self.float_value(known, inputs[0]))
            elif self.is_product(node):
                known[made] = self.product(at, node, known)
            elif node["op"] == "global_avg_pool2d" and self.origin(inputs[0]) in self.grids:
                known[made] = self.pooled(inputs[0], known)
            elif isinstance(known.get(inputs[0]), Sums) and node["op"] in known[inputs[0]].kept_by:
                known[made] = known[inputs[0]].through(lambda sums, node=node: OPERATORS[node["op"]]([sums], node["attributes"]))
            else:
                known[made] = OPERATORS[node["op"]]([self.float_value(known, i) for i in inputs], node["attributes"])
            if node["op"] == "add" and any(isinstance(known.get(value), Codes) for value in inputs):
                known[made] = known[made] * 1.0  # else XNNPACK adds codes with its own multipliers instead of values
            if made in self.early:  # before operators that move codes, as the engine rounds
                known[made] = Codes(self.float_value(known, made), self.early[made])
        return self.float_value(known, self.output)

    def rounded(self, at, node, known):
        value, = node["inputs"]
        x = known.get(value)
        if isinstance(x, Sums):
            return x.rounded(getattr(self, f"factor{at}", None), node)
        return Codes(self.float_value(known, value), node)

    def steps(self, value, known):
        """Returns the codes without their zero point, as floats."""
        return torch.round(self.float_value(known, value) * (1.0 / self.grids[self.origin(value)]["scale"]))

    def pooled(self, value, known):
        steps = self.steps(value, known)
        scale = self.grids[self.origin(value)]["scale"]
        return PooledSums(steps.sum((2, 3), keepdim=True), (scale, steps.shape[2] * steps.shape[3]))

    def product(self, at, node, known):
        inputs, attributes = node["inputs"], node["attributes"]
        bias = self.constant(inputs[2]) if len(inputs) > 2 else None
        bias = getattr(self, f"bias{at}", bias)
        if hasattr(self, f"steps{at}"):
            sums = PRODUCTS[node["op"]](self.steps(inputs[0], known), getattr(self, f"steps{at}"), bias, attributes)
            return Sums(sums, getattr(self, f"scales{at}"))
        if hasattr(self, f"codes{at}"):
            weight = torch.ops.quantized_decomposed.dequantize_per_channel(
                getattr(self, f"codes{at}"), getattr(self, f"scales{at}"), getattr(self, f"zeros{at}"), 0, -127, 127, torch.int8)
        else:
            weight = self.float_value(known, inputs[1])
        return PRODUCTS[node["op"]](self.float_value(known, inputs[0]), weight, bias, attributes)


def run(args):
    with h5py.File(args.network) as file:
        network = Network(file)
    program, (inside, outside) = lowered(network, network.example())
    with open(args.file, "wb") as file:
        file.write(program)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"versions": VERSIONS, "bytes": len(program), "delegates": inside, "portable": outside,
                       "quantized_layers": network.quantized_layers}, file)
    return 0


def main():
    parser = program_parser(__doc__)
    parser.add_argument("network")
    parser.add_argument("file")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    raise SystemExit(ended(lambda: run(args), args.file))


if __name__ == "__main__":
    main()
