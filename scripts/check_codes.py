#!/usr/bin/env python3
"""Evaluates an INT8 network in integers, independently of fakequant, and counts what differs from its predictions. Exit
status: 0 the same, 1 different, 2 when not every code of every quantizer can be compared."""
import argparse
import json
import sys

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


def refuse(why):
    print(f"check_codes.py: {why}", file=sys.stderr)
    raise SystemExit(2)


def different(name, found, predicted):
    """Returns the number of elements with different bits."""
    if found.shape != predicted.shape or found.size == 0:
        refuse(f"{name} is {list(found.shape)} here and {list(predicted.shape)} in {args.predictions}: are they of {args.data}?")
    return int((found != predicted).sum())


def clamp(v, q):
    f = q["format"]
    low = 0 if f["unsigned"] else f["narrow_range"] - 2 ** (f["bits"] - 1)
    return np.clip(np.rint(v), low, 2 ** (f["bits"] - (not f["unsigned"])) - 1).astype(np.int64)


def product(name, options, codes):
    """Returns (sums of code products with the bias, as integers, and their scale per channel)."""
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
    """Evaluates the network in integers. A value is (numbers, scale), or (floats, None). The next quantizer rounds it once."""
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
        elif kind == "flatten":
            scale = scale if scale is None or np.ndim(scale) == 0 else np.broadcast_to(scale, value.shape[1:]).ravel()
            value = value.reshape(len(value), -1)
        elif kind not in ("identity", "batch_norm"):
            refuse(f"there is no integer form of '{kind}'")
    return found, value.astype(f32) * scale


images = x[()].astype(f32) * f32(x.attrs.get("scale", 1.0))
model = json.loads(checkpoint["attributes"][()])["model"]
if not model["folded"] and any(node["type"] == "batch_norm" for node in model["model"]["nodes"]):
    refuse(f"{args.checkpoint} has live batch norms: use what fakequant fold makes of it")
codes, logits = evaluate(model["model"]["nodes"], images)
missing = {name for name, q in quantizers.items() if q["enabled"] and name == q["name"] and name.endswith(".input_quantizer")}
missing = (missing | set(wanted.get("codes", ()))) - (set(codes) & set(wanted.get("codes", ())))
if missing or not codes:
    refuse(f"nothing to compare of {', '.join(sorted(missing)) or 'any quantizer'}: {args.predictions} needs predict --codes, "
           "and every quantizer a layer that is known here")
total = sum(c.size for c in codes.values())
wrong = sum(different(name, c, wanted["codes"][name][()]) for name, c in codes.items())
bits = different("logits", logits.view(np.int32), wanted["logits"][()].view(np.int32))
print(f"train == deploy: {wrong:,} of {total:,} codes and {bits:,} of {logits.size:,} logits differ "
      "from an independent integer evaluation")
if args.json:
    with open(args.json, "w") as file:
        json.dump({"codes": total, "codes_different": wrong, "logit_bits_different": bits}, file)
raise SystemExit(1 if wrong or bits else 0)
