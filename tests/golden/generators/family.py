"""Writes the cases of one family, and draws their random inputs."""

import os
import zlib

import h5py
import numpy as np
import torch

NAMED = {torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2", torch.float8_e8m0fnu: "float8_e8m0fnu"}
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1,), (2,), (7,), (65,), (3, 17), (8, 48), (2, 3, 4, 5), (5, 1, 9), (1, 7, 1), (33, 8), (4, 6, 16)]
UNORDERED = "sum whose order is not specified"


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


class Value:
    """A result with a comparison of its own, or codes whose dtype must be named."""

    def __init__(self, tensor, compare=None, reason=None, dtype=None):
        self.tensor, self.compare, self.reason, self.dtype = tensor, compare, reason, dtype


def to_array(tensor):
    """numpy's array and the dtype attribute that a reader needs."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(np.uint16), "bfloat16"
    if tensor.dtype in NAMED:
        return tensor.contiguous().view(torch.uint8).numpy(), NAMED[tensor.dtype]
    if tensor.dtype == torch.bool:
        return tensor.to(torch.uint8).numpy(), "bool"
    return tensor.numpy(), None


def packing(array):
    """In the header where that is small, else compressed."""
    if array.nbytes > 1024:
        return {"compression": "gzip", "compression_opts": 9, "shuffle": True}
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    return {"dcpl": plist}


class Family:
    def __init__(self, folder, name, source, seed):
        self.path = os.path.join(folder, f"own_{name}.h5")
        self.random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self.count = 0
        self.root = {"schema": "fakequant-golden", "version": 1, "family": name, "profile": "own", "source": source, "seed": seed}
        self.file = h5py.File(name, "w", driver="core", backing_store=False, libver=("v110", "v110"))

    def __enter__(self):
        return self

    def __exit__(self, kind, *exception):
        """A copy is a third smaller: attributes written one by one leave holes."""
        if kind is None:
            with h5py.File(self.path, "w", libver=("v110", "v110")) as out:
                self._attributes(out, self.root)
                for name in self.file:
                    self.file.copy(name, out)
        self.file.close()

    # ---- writing ----

    def case(self, function, inputs, answer, attributes=None, rejected=False, **about):
        """Runs answer(), which gives the results by name, or must raise where the reference refuses. `about`: compare,
        reason, source, edge. Attributes that are None are left out: the reference's default."""
        results, error = None, None
        try:
            results = answer()
        except Exception as raised:  # references raise any type of error
            error = raised
            if not rejected:
                raise
        if rejected and error is None:
            raise AssertionError(f"{function} was expected to refuse {attributes}")
        group = self.file.create_group(f"{self.count:05}_{function}")
        self.count += 1
        self._attributes(group, {"function": function, "compare": about.pop("compare", "bits"), **(attributes or {}), **about})
        if error is not None:
            self._attributes(group, {"error": type(error).__name__, "error_message": " ".join(str(error).split())[:200]})
        self._tensors(group, "in", inputs)
        self._tensors(group, "out", results or {})

    @staticmethod
    def _attributes(group, values):
        for name, value in values.items():
            if value is None:
                continue
            if isinstance(value, torch.dtype):
                value = dtype_name(value)
            if isinstance(value, str):
                value = np.bytes_(value.encode("ascii", "replace"))
            elif isinstance(value, (bool, int)):
                value = np.int64(value)
            elif isinstance(value, (list, tuple)):
                value = np.asarray(value)
            group.attrs[name] = value

    @staticmethod
    def _tensors(group, part, tensors):
        for name, value in tensors.items():
            if value is None:
                continue
            if not isinstance(value, Value):
                value = Value(value)
            array, named = to_array(value.tensor.detach().cpu())
            dataset = group.create_dataset(f"{part}/{name}", data=array, track_times=False, **packing(array))
            Family._attributes(dataset, {"dtype": value.dtype or named, "compare": value.compare, "reason": value.reason})

    # ---- drawing ----

    def pick(self, choices):
        return choices[int(self.random.integers(len(choices)))]

    def flag(self, probability=0.5):
        return bool(self.random.random() < probability)

    def whole(self, low, high):
        """An integer of low .. high, both included."""
        return int(self.random.integers(low, high + 1))

    def values(self, shape, dtype=torch.float32, scale=None, specials=True, infinite=False, positive=False):
        """Normal values of a random magnitude; where `specials`, some zeros of either sign and subnormals, and,
        where `infinite`, infinities and NaN."""
        scale = 10.0 ** self.random.uniform(-2, 2) if scale is None else scale
        x = (self.random.standard_normal(shape) * scale).astype(np.float32)
        if positive:
            x = np.abs(x)
        if specials and x.size > 2:
            odd = [0.0, -0.0, 1e-42, -1e-42, 6e-8] + ([np.inf, -np.inf, np.nan] if infinite else [])
            flat = x.reshape(-1)
            for place in self.random.integers(x.size, size=max(1, x.size // 16)):
                flat[place] = abs(self.pick(odd)) if positive else self.pick(odd)
        return torch.from_numpy(np.asarray(x, np.float32)).to(dtype)

    def scales(self, shape, dtype=torch.float32, around=0.05):
        return torch.from_numpy(np.asarray(around * 2.0 ** self.random.uniform(-3, 3, shape), np.float32)).to(dtype)

    def integers(self, shape, low, high, dtype=torch.int32):
        return torch.from_numpy(np.asarray(self.random.integers(low, high + 1, shape))).to(dtype)

    def ties(self, grid, dtype=torch.float32):
        """The grid's values, the middles between them and their neighbours, with both signs."""
        grid = np.asarray(sorted(grid), np.float32)
        middles = ((grid[1:].astype(np.float64) + grid[:-1]) / 2).astype(np.float32)
        near = np.concatenate([grid, middles])
        near = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))])
        return torch.from_numpy(np.concatenate([near, -near])).to(dtype)

    def pick_block(self, shape):
        """A block that divides the shape."""
        return [self.pick([d for d in range(1, size + 1) if size % d == 0]) for size in shape]


def gradient(call, x, grad_y, *others):
    """call(x), and the gradients of x and of other inputs that require one."""
    x = x.clone().requires_grad_(True)
    y = call(x)
    y.backward(grad_y)
    return (y.detach(), x.grad, *[other.grad for other in others])
