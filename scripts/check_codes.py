#!/usr/bin/env python3
"""Evaluates an INT8 network in integers, independently of fakequant, and counts what differs from its own codes.

check_codes.py CHECKPOINT SCALES.h5 DATA.h5 PREDICTIONS.h5 [--split test] [--json FILE]

Arithmetic: int32 sums with the bias rounded to the accumulator's grid, one float32 multiply, round half to even.
"""
import argparse
import json

import h5py
import numpy as np

f32 = np.float32
args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
for name in ("checkpoint", "scales", "data", "predictions"):
    args.add_argument(name)
args.add_argument("--split", default="test")
args.add_argument("--json")
args = args.parse_args()

checkpoint, scales = h5py.File(args.checkpoint), h5py.File(args.scales)
wanted, split = h5py.File(args.predictions), h5py.File(args.data)[args.split]
quantizers = {}
for q in json.loads(scales["attributes"][()])["scales"]["quantizers"]:
    for path in [q["name"], *q["aliases"]]:
        quantizers[path] = q


def pixels(x):
    a = x.attrs
    v = x[()].astype(f32) * f32(a.get("scale", 1.0))
    return (v - f32(a.get("mean", 0.0))) / f32(a.get("std", 1.0)) if "mean" in a or "std" in a else v


def clamp(v, q):
    bits, unsigned = q["format"]["bits"], q["format"]["unsigned"]
    low = 0 if unsigned else -(2 ** (bits - 1)) + q["format"]["narrow_range"]
    return np.clip(np.rint(v), low, 2 ** (bits - (not unsigned)) - 1).astype(np.int64)


def product(node, x):
    """Codes to sums: x [n, k, pixels..] unfolded to rows, weights [o, k]."""
    o, w = node["options"], checkpoint["parameters"][node["name"] + ".weight"][()]
    sw = scales[node["name"] + ".weight_quantizer/scale"][()].reshape(-1)
    qw = clamp(w / sw.reshape(-1, *[1] * (w.ndim - 1)), quantizers[node["name"] + ".weight_quantizer"])
    sxw = scales[quantizers[node["name"] + ".input_quantizer"]["name"] + "/scale"][()] * sw
    bias = np.rint(checkpoint["parameters"][node["name"] + ".bias"][()] / sxw).astype(np.int64)
    if w.ndim == 4:
        p, (kh, kw) = np.ravel(o.get("padding", 0))[0], w.shape[2:]
        x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
        x = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(2, 3))
        s = np.ravel(o.get("stride", 1))[0]
        sums = np.einsum("nchwij,ocij->nohw", x[:, :, ::s, ::s], qw, optimize=True)
        return sums + bias[:, None, None], sxw[:, None, None]
    return x @ qw.T + bias, sxw


def run(nodes, x):
    """Values are (sums, scale); a reader divides the scale by its own and rounds once. Codes are kept by quantizer."""
    value, codes = (x, None), {}
    for node in nodes:
        kind, name = node["type"], node["name"] + ".input_quantizer"
        if name in quantizers and quantizers[name]["enabled"]:
            q, (a, m) = quantizers[name], value
            sy = scales[q["name"] + "/scale"][()]
            scaled = a / sy if m is None else a.astype(f32) * (m / (sy * f32(value[2]) if len(value) > 2 else sy))
            value = codes[q["name"]] = clamp(scaled.astype(f32), q)
        if kind in ("conv2d", "linear"):
            value = product(node, value)
        elif kind == "relu":
            value = (np.maximum(value[0], 0), *value[1:])
        elif kind == "max_pool":
            a = value[0]
            value = (a.reshape(*a.shape[:2], a.shape[2] // 2, 2, a.shape[3] // 2, 2).max((3, 5)), *value[1:])
        elif kind == "global_avg_pool":
            value = (value.sum((2, 3)), sy, value.shape[2] * value.shape[3])
        elif kind not in ("flatten", "identity", "batch_norm"):
            raise SystemExit(f"check_codes.py has no integer form of '{kind}'")
    return codes, value[0].astype(f32) * value[1]


model = json.loads(checkpoint["attributes"][()])["model"]
codes, logits = run(model["nodes"], pixels(split["x"]))
total = sum(c.size for c in codes.values())
wrong = sum(int((c.ravel() != wanted["codes"][name][()].ravel()).sum()) for name, c in codes.items())
bits = int((logits.astype(f32).view(np.int32) != wanted["logits"][()].view(np.int32)).sum())
print(f"train == deploy: {wrong:,} of {total:,} codes and {bits:,} of {logits.size:,} logits differ "
      "from an independent integer evaluation")
if args.json:
    json.dump({"codes": total, "codes_different": wrong, "logit_bits_different": bits}, open(args.json, "w"))
raise SystemExit(1 if wrong or bits else 0)
