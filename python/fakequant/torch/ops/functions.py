"""Layer types of the library for functions of one tensor: activations, pools, reductions, resizing, padding.

Each function here has the arguments of torch's function after the tensor, and returns a list of (type, options). It raises Unsupported.
"""
import math

from ... import _fakequant as _fq
from .refs import require

_LARGEST = 1e30  # of an option of a layer

#: Rows of the operator table by the name of the operator.
ROWS = {row["name"]: row for row in _fq.operators()}


def pair(value):
    return list(value) if isinstance(value, (tuple, list)) else value


def plain_function(row):
    """Returns a function for a row of the operator table with one input."""
    names = [option["torch"] for option in row["options"]] + ["inplace"]

    def layers(*values, **named):
        given = dict(zip(names, values)) | named
        require(len(values) <= len(names) and given.keys() <= set(names), f"{row['name']} with these arguments")
        return [(row["name"], {option["name"]: given.get(option["torch"], option["default"]) for option in row["options"]})]
    return layers


# Activations.

def clamp(min=None, max=None):
    require(all(limit is None or type(limit) in (int, float) for limit in (min, max)), "clamp with tensors as limits")
    require(min is None or max is None or min <= max, "clamp with a lower limit above the upper one")
    if min == 0 and max is None:
        return [("relu", {})]
    return [("clip", {"low": _limited(-math.inf if min is None else min), "high": _limited(math.inf if max is None else max)})]


def _limited(number):
    return float(min(max(number, -_LARGEST), _LARGEST))


def softmax(dim, _stacklevel=3, dtype=None):
    return [("softmax", {"axis": dim})]


def log_softmax(dim, _stacklevel=3, dtype=None):
    return [("log_softmax", {"axis": dim})]


def softmin(dim, _stacklevel=3, dtype=None):
    return [("neg", {}), ("softmax", {"axis": dim})]


def power(exponent):
    require(type(exponent) in (int, float) and math.isfinite(exponent), "pow with another exponent than a number")
    return [("power", {"exponent": float(exponent)})]


# Windows. A sequence or image without an axis of samples is rejected by the caller.

def max_pool(kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    require(not return_indices, "a pool that returns indices")
    return [("max_pool", {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size), "padding": pair(padding),
                          "dilation": pair(dilation), "ceil_mode": bool(ceil_mode)})]


def avg_pool(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    require(divisor_override is None, "a pool with divisor_override")
    return [("avg_pool", {"kernel": pair(kernel_size), "stride": pair(stride or kernel_size), "padding": pair(padding),
                          "ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)})]


def adaptive_pool(kind, axes, shape, output_size, return_indices=False):
    """`kind` is "avg" or "max", `axes` the number of pooled axes of an input of this shape."""
    require(not return_indices, "a pool that returns indices")
    sizes = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * axes
    sizes = [own if size is None else size for size, own in zip(sizes, shape[-axes:])]
    if sizes == shape[-axes:]:
        return [("identity", {})]
    if all(size == 1 for size in sizes):
        return [("global_avg_pool", {})] if kind == "avg" else [("max", {"axes": list(range(2, 2 + axes)), "keep_axes": True})]
    if kind == "avg":
        return [("adaptive_avg_pool", {"size": sizes[0] if axes == 1 else sizes})]
    require(all(own % size == 0 for own, size in zip(shape[-axes:], sizes)), "an adaptive maximum with windows of several sizes")
    kernel = [own // size for own, size in zip(shape[-axes:], sizes)]
    return max_pool(kernel[0] if axes == 1 else kernel)


def local_response_norm(size, alpha=1e-4, beta=0.75, k=1.0):
    return [("local_response_norm", {"size": size, "alpha": float(alpha), "beta": float(beta), "k": float(k)})]


# Resizing and padding.

_MODES = {"nearest": "nearest", "nearest-exact": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def resize(shape, target, scale_factor, mode, align_corners, recompute_scale_factor, antialias=False):
    """Layers of interpolate for an input of `shape` and sizes `target` of the output."""
    require(mode in _MODES, f"interpolate with mode {mode!r}")
    if target == shape[2:] and not align_corners and _MODES[mode] != "cubic":
        return [("identity", {})]
    require(not antialias or all(new >= old for new, old in zip(target, shape[2:])), "interpolate with antialias")
    options = {"sizes": target, "mode": _MODES[mode]}
    if mode == "nearest-exact":
        options |= {"coordinates": "half_pixel", "rounding": "prefer_ceil"}
    elif mode == "nearest":
        options |= {"coordinates": "asymmetric", "rounding": "floor"}
    else:
        options["coordinates"] = "align_corners" if align_corners else "half_pixel"
    if scale_factor is not None and not recompute_scale_factor and not align_corners:
        factors = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * len(target)
        options["scales"] = [float(factor) for factor in factors]
    return [("resize", options)]


def pad(shape, pad, mode="constant", value=None):
    """`pad` has (before, after) of the last axis, then of the axis before it. The axis of samples is not padded."""
    pairs = [list(pad[i:i + 2]) for i in range(0, len(pad), 2)][::-1]
    while len(pairs) >= len(shape) and pairs[0] == [0, 0]:
        pairs = pairs[1:]
    require(len(pad) % 2 == 0 and len(pairs) < len(shape), "a pad of the axis of samples")
    if not any(map(any, pairs)):
        return [("identity", {})]
    before, after = [p[0] for p in pairs], [p[1] for p in pairs]
    return [("pad", {"before": before, "after": after, "mode": mode, "value": _limited(value or 0.0)})]


def alpha_dropout(p=0.5, training=True, inplace=False, channels=False):
    return [("alpha_dropout", {"p": p, "channels": channels})] if training and p else [("identity", {})]


def dropout(p=0.5, training=True, inplace=False, kind="dropout"):
    return [(kind, {"p": p})] if training and p else [("identity", {})]


def channel_dropout(p=0.5, training=True, inplace=False):
    return dropout(p, training, kind="channel_dropout")


def drop_path(p, mode="row", training=True):
    require(mode == "row", "stochastic_depth with another mode than row")
    return dropout(p, training, kind="drop_path")


#: Functions of one tensor that keep its shape, by the name of torch's function.
ELEMENTWISE = {
    **{name: plain_function(row) for row in ROWS.values() if row["inputs"] == 1 for name in row["torch"]},
    **dict.fromkeys(("contiguous", "clone", "positive"), lambda *_, **__: [("identity", {})]),
    **{name: lambda layer=name: [(layer, {})] for name in ("log", "erf", "sin", "cos", "floor", "ceil", "trunc", "sign", "reciprocal")},
    "logsigmoid": lambda: [("log_sigmoid", {})], "fix": lambda: [("trunc", {})], "negative": lambda: [("neg", {})],
    "absolute": lambda: [("abs", {})], "round": lambda decimals=0: (require(decimals == 0, "round with decimals"), [("round", {})])[1],
    "clamp": clamp, "clip": clamp, "clamp_min": lambda min: clamp(min), "clamp_max": lambda max: clamp(None, max),
    "hardtanh": lambda min_val=-1.0, max_val=1.0, inplace=False: clamp(min_val, max_val),
    "threshold": lambda threshold, value, inplace=False: (require(threshold == value == 0, "threshold with other numbers than 0"),
                                                          [("relu", {})])[1],
    "pow": power, "square": lambda: power(2), "rsqrt": lambda: power(-0.5),
    "log1p": lambda: [("shift", {"by": 1.0}), ("log", {})], "expm1": lambda: [("exp", {}), ("shift", {"by": -1.0})],
    "exp2": lambda: [("scale", {"factor": math.log(2)}), ("exp", {})],
    "log2": lambda: [("log", {}), ("scale", {"factor": 1 / math.log(2)})],
    "log10": lambda: [("log", {}), ("scale", {"factor": 1 / math.log(10)})],
}
#: Functions of one tensor that compute along one axis, the argument `dim`.
ALONG_AXIS = {"softmax": softmax, "log_softmax": log_softmax, "softmin": softmin, "glu": lambda dim=-1: [("glu", {"axis": dim})]}
#: Functions that differ between training and evaluation.
RANDOM = {"dropout": dropout, "dropout1d": channel_dropout, "dropout2d": channel_dropout, "dropout3d": channel_dropout,
          "feature_dropout": channel_dropout, "alpha_dropout": alpha_dropout, "stochastic_depth": drop_path,
          "feature_alpha_dropout": lambda p=0.5, training=True, inplace=False: alpha_dropout(p, training, channels=True)}
#: Pools, by name: (number of pooled axes, function).
POOLS = {f"{kind}_pool{axes}d": (axes, function) for axes in (1, 2, 3) for kind, function in (("max", max_pool), ("avg", avg_pool))}
