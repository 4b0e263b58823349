"""Random networks: a model file of every type of node, data for it, and how it is quantized; all from a seed."""

import json
import random

import h5py
import numpy as np

ACTIVATIONS = ["relu6", "leaky_relu", "gelu", "silu", "sigmoid", "tanh", "hard_sigmoid", "hard_swish", "clip"]
FORMATS = {"int8": 12, "per_tensor": 3, "narrow": 2, "signed": 2, "six": 1, "w3a3": 1, "w2a2": 1, "w4a8": 2, "w4a4": 1, "fp8": 1,
           "int8_weight_only": 1, "int4_blockwise": 1}
WEIGHTS_ONLY = {"int8_weight_only", "int4_blockwise"}
CONFIGS = {
    "per_tensor": {"preset": "int8", "rules": [{"pattern": "*weight_quantizer", "axis": None}]},
    "narrow": {"preset": "int8", "rules": [{"pattern": "*input_quantizer*", "narrow_range": True}]},
    "signed": {"preset": "int8", "rules": [{"pattern": "*input_quantizer*", "unsigned": False}]},
    "six": {"preset": "int8", "rules": [{"pattern": "*", "num_bits": 6}]},
}


NO_SAMPLES = (0,)  # the shape of values whose axis 0 is not the samples: no other node reads them
MOVING = 1_000_000  # networks of seeds from here on also slice, expand, pick, and join class tokens


class Nodes:
    """A model file under way: values by name with their shape without the batch."""

    def __init__(self, rng, shape, integers, moving=False):
        self.rng, self.integers, self.moving = rng, integers, moving
        self.nodes, self.shapes = [], {"input": shape}
        self.last = "input"

    def add(self, kind, shape, inputs=None, /, **options):
        name = f"n{len(self.nodes)}_{kind}"
        node = {"name": name, "type": kind, "inputs": inputs or [self.last]}
        if options:
            node["options"] = options
        self.nodes.append(node)
        self.shapes[name] = tuple(shape)
        self.last = name

    @property
    def shape(self):
        return self.shapes[self.last]

    def step(self):
        """One more layer or block on the last value."""
        steps = [self.product] * 4 + [self.nothing]
        if len(self.shape) == 3:
            steps += [self.max_pool, self.avg_pool, self.join, self.residual, self.moved_block, self.upsample]
        if len(self.shape) == 2:
            steps += [self.residual, self.join, self.turn]
        if len(self.shape) == 1:
            steps += [self.residual, self.join]
        if not self.integers:
            steps += [self.activation, self.norm, self.gate, self.softmax]
        if self.moving:
            steps += [self.halves, self.halves, self.token, self.token, self.pick, self.spread, self.sequence_first]
        self.rng.choice(steps)()

    def product(self, activation=True):
        """A convolution or linear layer, often with a norm, nearly always with an activation."""
        rng, shape = self.rng, self.shape
        if len(shape) == 1 or (len(shape) == 2 and rng.random() < 0.5):
            width = rng.choice([4, 8, 12])
            self.add("linear", (*shape[:-1], width), out_features=width, bias=rng.random() < 0.8)
        elif len(shape) == 2:
            self.convolve("conv1d", shape[1:])
        elif not self.integers and min(shape[1:]) > 1 and rng.random() < 0.15:
            self.transposed()
        else:
            self.convolve("conv2d", shape[1:])
        if len(self.shape) == 3 and rng.random() < 0.4:
            self.add("batch_norm", self.shape)
        if activation and rng.random() < 0.85:
            self.activate()

    def activate(self):
        if self.integers or self.rng.random() < 0.5:
            self.add("relu", self.shape)
        else:
            self.activation()

    def activation(self):
        kind = self.rng.choice(ACTIVATIONS)
        options = {"clip": {"low": self.rng.choice([-0.5, 0]), "high": 1.5},
                   "leaky_relu": {"slope": self.rng.choice([0.1, 0.25])},
                   "gelu": {"approximate": self.rng.choice(["none", "tanh"])}}.get(kind, {})
        self.add(kind, self.shape, **options)

    def convolve(self, kind, sizes):
        rng, channels = self.rng, self.shape[0]
        groups = rng.choice([1, 1, 1, channels] + [g for g in (2, 4) if channels % g == 0])
        width = groups * rng.choice([1, 2]) if groups > 1 else rng.choice([4, 6, 8, 16])
        kernel = [rng.choice([k for k in (1, 2, 3, 3, 5) if k <= size]) for size in sizes]
        dilation = 2 if all(2 * (k - 1) < size for k, size in zip(kernel, sizes)) and rng.random() < 0.15 else 1
        stride = 2 if min(sizes) > 4 and rng.random() < 0.3 else 1
        padding = [rng.choice([0, k // 2]) * dilation for k in kernel]
        after = [(n + 2 * p - dilation * (k - 1) - 1) // stride + 1 for n, p, k in zip(sizes, padding, kernel)]
        one = kind == "conv1d"
        self.add(kind, (width, *after), out_channels=width, kernel=kernel[0] if one else kernel, stride=stride,
                 padding=padding[0] if one else padding, dilation=dilation, groups=groups, bias=rng.random() < 0.8)

    def transposed(self):
        channels, *sizes = self.shape
        groups = self.rng.choice([1, 1, *[g for g in (2, 4) if channels % g == 0]])
        kernel, stride, width = self.rng.choice([2, 3]), self.rng.choice([1, 2]), groups * self.rng.choice([2, 4])
        self.add("conv_transpose2d", (width, *[(n - 1) * stride + kernel for n in sizes]), out_channels=width, kernel=kernel,
                 stride=stride, groups=groups)

    def upsample(self):
        if not self.integers and max(self.shape[1:]) < 10:
            self.transposed()

    def window(self):
        sizes = self.shape[1:]
        kernel = self.rng.choice([k for k in (1, 2, 3) if k <= min(sizes)])
        stride = self.rng.choice([1, 2])
        padding = self.rng.choice([0, kernel // 2])
        after = [(n + 2 * padding - kernel) // stride + 1 for n in sizes]
        return (self.shape[0], *after), {"kernel": kernel, "stride": stride, "padding": padding}

    def max_pool(self):
        shape, options = self.window()
        self.add("max_pool", shape, **options)

    def avg_pool(self):
        shape, options = self.window()
        self.add("avg_pool", shape, **options, count_include_pad=self.rng.random() < 0.5)

    def nothing(self):
        """An operator without effect in evaluation, or a residual block under one name."""
        if self.rng.random() < 0.5 or len(self.shape) != 3:
            self.add(self.rng.choice(["identity", "dropout"]), self.shape)
            return
        inner = [{"name": "a", "type": "conv2d", "options": {"out_channels": self.shape[0], "kernel": 1}},
                 {"name": "b", "type": "batch_norm"}, {"name": "sum", "type": "add", "inputs": ["b", "input"]}]
        self.add("graph", self.shape)
        self.nodes[-1]["nodes"] = inner

    def same_shape(self):
        """Earlier values of the last one's shape; rarely one that an activation already reads, which is rounded twice."""
        activated = {node["inputs"][0] for node in self.nodes if node["type"] in ACTIVATIONS + ["relu"]}
        raw = self.rng.random() < 0.2
        return [name for name, shape in self.shapes.items()
                if shape == self.shape and name != self.last and (raw or name not in activated)]

    def residual(self):
        """Adds an earlier value, or one of a branch; the order is either."""
        others = self.same_shape()
        if not others or self.rng.random() < 0.3:
            others = [self.branch()]
        pair = [self.last, self.rng.choice(others)]
        self.rng.shuffle(pair)
        self.add("add", self.shapes[pair[0]], pair)
        if self.rng.random() < 0.6:
            self.activate()

    def branch(self):
        """Another value of the last one's shape, computed from the same beginning; the last one stays."""
        kept = self.last
        width = self.shape[-1] if len(self.shape) == 1 else self.shape[0]
        if len(self.shape) == 1:
            self.add("linear", self.shape, out_features=width)
        else:
            kind = "conv2d" if len(self.shape) == 3 else "conv1d"
            self.add(kind, self.shape, out_channels=width, kernel=3, padding=1)
        if self.rng.random() < 0.5:
            self.activate()
        made, self.last = self.last, kept
        return made

    def join(self):
        others = self.same_shape()
        parts = [self.last, *self.rng.sample(others, k=min(len(others), self.rng.choice([1, 1, 2])))]
        if len(parts) == 1:
            parts.append(self.branch())
        self.rng.shuffle(parts)
        first, *rest = self.shapes[parts[0]]
        self.add("concat", (first * len(parts), *rest), parts)

    def moved_block(self):
        """Pixels as tokens and back, or a reshape to a sequence."""
        channels, height, width = self.shape
        self.add("reshape", (channels, height * width), shape=[channels, height * width])

    def turn(self):
        self.add("transpose", self.shape[::-1], axes=[0, 2, 1])

    def axis(self, least):
        """Returns an axis with `least` elements or more, counted without the batch; None if no axis has them."""
        fitting = [axis for axis, size in enumerate(self.shape) if size >= least]
        return self.rng.choice(fitting) if fitting else None

    def resized(self, axis, size):
        return (*self.shape[:axis], size, *self.shape[axis + 1:])

    def cut(self, source, axis, begin, end):
        self.last = source
        self.add("slice", self.resized(axis, end - begin), axis=axis + 1, begin=begin, end=end)
        return self.last

    def halves(self):
        """Slices of one value, added, or joined in any order; some are read by a layer of their own."""
        axis, source = self.axis(2), self.last
        if axis is None:
            return
        half = self.shape[axis] // 2
        parts = [self.cut(source, axis, at, at + half) for at in (0, half)]
        if self.rng.random() < 0.3:
            self.last = parts[0]
            parts[0] = self.branch()
        self.rng.shuffle(parts)
        if self.rng.random() < 0.5:
            self.last = parts[0]
            self.add("add", self.shape, parts)
        else:
            self.last = parts[0]
            self.add("concat", self.resized(axis, 2 * half), parts, axis=axis + 1)

    def token(self):
        """Joins a class token, which is the same for every sample, as the first or the last one. May add an embedding of
        positions, and may take one token alone."""
        axis, source = self.rng.randrange(len(self.shape)), self.last
        size = self.shape[axis]
        self.last = source
        self.add("parameter", self.resized(axis, 1), [source], shape=list(self.resized(axis, 1)), repeat=True)
        parts = [self.last, source]
        self.rng.shuffle(parts)
        self.last = source
        self.add("concat", self.resized(axis, size + 1), parts, axis=axis + 1)
        if self.rng.random() < 0.5:
            joined, shape = self.last, self.shape
            self.add("parameter", NO_SAMPLES, [joined], shape=list(shape))
            self.add("add", shape, [joined, self.last])
        if self.rng.random() < 0.3:
            at = self.rng.randrange(size + 1)
            self.cut(self.last, axis, at, at + 1)

    def pick(self):
        axis = self.axis(2)
        if axis is not None:
            indices = [self.rng.randrange(self.shape[axis]) for _ in range(self.rng.randint(1, self.shape[axis]))]
            self.add("index_select", self.resized(axis, len(indices)), axis=axis + 1, indices=indices)

    def spread(self):
        """A slice of one element, repeated to the size of the value that it is added to."""
        axis, source = self.axis(2), self.last
        if axis is None:
            return
        whole = self.shape
        self.cut(source, axis, 0, 1)
        self.add("expand", whole, shape=list(whole))
        pair = [source, self.last]
        self.rng.shuffle(pair)
        self.add("add", whole, pair)

    def sequence_first(self):
        """Rows with the samples on axis 1, as in PyTorch's attention."""
        if len(self.shape) != 2:
            return
        width, length = self.rng.choice([4, 8]), self.shape[0]
        self.add("transpose", NO_SAMPLES, axes=[1, 0, 2])
        self.add("linear", NO_SAMPLES, out_features=width)
        if self.rng.random() < 0.5:
            self.add("relu", NO_SAMPLES)
        self.add("transpose", (length, width), axes=[1, 0, 2])

    def norm(self):
        self.add("layer_norm" if self.rng.random() < 0.5 or len(self.shape) < 3 else "batch_norm", self.shape)

    def softmax(self):
        self.add("softmax", self.shape, axis=-1)

    def gate(self):
        """Times itself through a sigmoid or the like: what squeeze-and-excite does."""
        kept = self.last
        if len(self.shape) == 3 and self.rng.random() < 0.5:
            self.add("global_avg_pool", (self.shape[0], 1, 1))
            self.add("conv2d", self.shape, out_channels=self.shape[0], kernel=1)
        self.add(self.rng.choice(["sigmoid", "hard_sigmoid"]), self.shape)
        self.add("multiply", self.shapes[kept], [kept, self.last])

    def head(self):
        if len(self.shape) == 3 and self.rng.random() < 0.5:
            if self.rng.random() < 0.2:
                self.add("conv2d", (4, *self.shape[1:]), out_channels="classes", kernel=1)
                self.add("global_avg_pool", (4, 1, 1))
                self.add("flatten", (4,))
                return
            self.add("global_avg_pool", (self.shape[0], 1, 1))
        if len(self.shape) > 1:
            self.add("flatten", (int(np.prod(self.shape)),))
        self.add("linear", (4,), out_features="classes", bias=self.rng.random() < 0.8)
        if not self.integers and self.rng.random() < 0.1:
            self.add("log_softmax", (4,))


def random_network(seed):
    """The model's nodes, and everything else that its run needs."""
    rng = random.Random(seed)
    integers = rng.random() < 0.7
    shape = rng.choice([(1, 8, 8), (3, 6, 6), (2, 5, 7), (4, 12), (3, 9), (10,)])
    nodes = Nodes(rng, shape, integers, seed >= MOVING)
    for _ in range(rng.randint(2, 7)):
        nodes.step()
    nodes.head()
    kind = rng.choices(list(FORMATS), list(FORMATS.values()))[0]
    return {
        "seed": seed, "shape": shape, "nodes": nodes.nodes,
        "format": kind,
        "target": rng.choices(["ort", "tensorrt", "none"], [10, kind != "w4a4", 1])[0],
        "scale": rng.choices(["free", "pow2"], [4, 1])[0],
        "keep_bn": rng.random() < 0.3,
        "amax": "" if kind in WEIGHTS_ONLY else rng.choice(["", "", "frozen", "running", "learned"]),
        "inputs": rng.choice(["any", "positive", "pixels"]),
    }


def write_model(network, path):
    """One node a line."""
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join("  " + json.dumps(node) for node in network["nodes"]) + "\n]\n")


def write_data(network, path, train=48, test=64):
    """A data set of that shape: floats, floats that are not negative, or bytes."""
    rng = np.random.default_rng(network["seed"])
    with h5py.File(path, "w") as file:
        for split, count in [("train", train), ("test", test)]:
            x = rng.normal(size=(count, *network["shape"])).astype(np.float32)
            if network["inputs"] == "positive":
                x = np.abs(x)
            elif network["inputs"] == "pixels":
                x = rng.integers(0, 256, size=x.shape).astype(np.uint8)
            group = file.create_group(split)
            group["x"], group["y"] = x, rng.integers(0, 4, size=count)
            if network["inputs"] == "pixels":
                group["x"].attrs["scale"] = np.float32(1 / 255)
