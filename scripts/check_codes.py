#!/usr/bin/env python3
"""Evaluates an INT8 network in integers, independently of fakequant, and counts what differs from its predictions."""
import argparse
import json

import h5py
import numpy as np

f32 = np.float32
args = argparse.ArgumentParser(description=__doc__)
for name in ("checkpoint", "scales", "data", "predictions"):
    args.add_argument(name)
args.add_argument("--split", default="test")
args.add_argument("--json", help="also write the counts to this file")
args = args.parse_args()
checkpoint, scales = h5py.File(args.checkpoint), h5py.File(args.scales)
wanted, x = h5py.File(args.predictions), h5py.File(args.data)[args.split]["x"]
quantizers = {path: q for q in json.loads(scales["attributes"][()])["scales"]["quantizers"]
              for path in [q["name"], *q["aliases"]]}


def clamp(v, q):
    f = q["format"]
    low = 0 if f["unsigned"] else f["narrow_range"] - 2 ** (f["bits"] - 1)
    return np.clip(np.rint(v), low, 2 ** (f["bits"] - (not f["unsigned"])) - 1).astype(np.int64)


def product(name, options, codes):
    """int32 sums with the bias on their grid, and that grid, one scale a channel."""
    w, b = (checkpoint["parameters"][f"{name}.{part}"][()] for part in ("weight", "bias"))
    sw = scales[f"{name}.weight_quantizer/scale"][()].reshape(-1)
    qw = clamp(w / sw.reshape(-1, *[1] * (w.ndim - 1)), quantizers[f"{name}.weight_quantizer"])
    sxw = scales[quantizers[f"{name}.input_quantizer"]["name"] + "/scale"][()] * sw
    bias = np.rint(b / sxw).astype(np.int64)
    if w.ndim == 2:
        return codes @ qw.T + bias, sxw
    p, stride = np.ravel(options.get("padding", 0))[0], np.ravel(options.get("stride", 1))[0]
    padded = np.pad(codes, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, qw, optimize=True) + bias[:, None, None], sxw[:, None, None]


def evaluate(nodes, images):
    """A value is (numbers, their scale or None for floats); the next quantizer rounds it once."""
    (value, scale), count, found = (images, None), f32(1), {}
    for node in nodes:
        kind, options = node["type"], node.get("options", {})
        q = quantizers.get(node["name"] + ".input_quantizer", {"enabled": False})
        if q["enabled"]:
            sy = scales[q["name"] + "/scale"][()]
            value = clamp(value / sy if scale is None else value.astype(f32) * (scale / (sy * count)), q)
            found[q["name"]], scale, count = value, sy, f32(1)
        if kind in ("conv2d", "linear"):
            value, scale = product(node["name"], options, value)
        elif kind == "relu":
            value = np.maximum(value, 0)
        elif kind == "max_pool":
            n, c, h, w = value.shape
            value = value.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
        elif kind == "global_avg_pool":
            value, count = value.sum((2, 3)), f32(value.shape[2] * value.shape[3])
        elif kind not in ("flatten", "identity", "batch_norm"):
            raise SystemExit(f"check_codes.py has no integer form of '{kind}'")
    return found, value.astype(f32) * scale


images = x[()].astype(f32) * f32(x.attrs.get("scale", 1.0))
codes, logits = evaluate(json.loads(checkpoint["attributes"][()])["model"]["model"]["nodes"], images)
total = sum(c.size for c in codes.values())
wrong = sum(int((c.ravel() != wanted["codes"][name][()].ravel()).sum()) for name, c in codes.items())
bits = int((logits.view(np.int32) != wanted["logits"][()].view(np.int32)).sum())
print(f"train == deploy: {wrong:,} of {total:,} codes and {bits:,} of {logits.size:,} logits differ "
      "from an independent integer evaluation")
if args.json:
    with open(args.json, "w") as file:
        json.dump({"codes": total, "codes_different": wrong, "logit_bits_different": bits}, file)
raise SystemExit(1 if wrong or bits else 0)
