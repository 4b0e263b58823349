"""ModelOpt's packed tensors on the CPU."""

import torch
from modelopt.torch.quantization import qtensor

from .family import FLOATS, Value

SOURCE = "nvidia-modelopt 0.47.0, torch 2.15.0, CPU"
SHAPES = [(7,), (64,), (3, 17), (8, 48), (2, 3, 4, 6), (5, 1, 9), (33, 8)]
MEAN = {"compare": "rel:1e-4", "reason": "the mean of the scales is a sum whose order is not specified"}


def data(family, shape, dtypes=FLOATS):
    """No zero channel or block: 0/0 is an accident of the reference."""
    x = family.values(shape, family.pick(dtypes), specials=False)
    return torch.where(x == 0, torch.ones((), dtype=x.dtype), x)


def scaled(family):
    for name, kind in {"int8_qtensor": qtensor.INT8QTensor, "fp8_qtensor": qtensor.FP8QTensor}.items():
        for _ in range(12):
            x = data(family, family.pick(SHAPES))
            axes = sorted(family.random.choice(x.dim(), size=family.whole(1, x.dim()), replace=False).tolist())
            lengths = [family.whole(2, 5) for _ in axes]
            way = family.pick(["tensor", "axis", "blocks", "blocks"])
            if way == "axis" and x.dim() < 2:
                way = "tensor"
            blocks = dict(zip(axes, lengths)) if way == "blocks" else None
            axis = axes[0] if way == "axis" else None

            def compute():
                packed, scale = kind.quantize(x, None, axis, blocks)
                return {"codes": packed._quantized_data, "scale": scale,
                        "y": packed.dequantize(x.dtype, scale=scale, block_sizes=blocks)}

            family.case(name, {"x": x}, compute, {"axis": axis, "block_axes": axes if blocks else None,
                                                 "block_lengths": lengths if blocks else None})


def int4(family):
    for _ in range(10):
        block = family.pick([2, 4, 8, 16])
        shape = (family.whole(1, 4), block * family.whole(1, 4)) if family.flag(0.7) else (1, 2 * family.whole(1, 20))
        x = data(family, shape)

        def compute():
            packed, scale = qtensor.INT4QTensor.quantize(x, block)
            return {"codes": Value(packed._quantized_data, dtype="int4x2_high_first"), "scale": scale,
                    "y": packed.dequantize(x.dtype, scale=scale, block_sizes={-1: block})}

        family.case("int4_qtensor", {"x": x}, compute, {"block_size": block})
    x = data(family, (2, 3))
    family.case("int4_qtensor", {"x": x}, lambda: {"scale": qtensor.INT4QTensor.quantize(x, 2)[1]}, {"block_size": 2}, rejected=True)


def four_bits(family):
    for i in range(12):
        x = data(family, (family.whole(1, 6), 16 * family.whole(1, 4) - family.pick([0, 0, 6])))
        whole = x.float().abs().max() / 2688 * family.pick([1.0, 0.8]) if i % 2 else None

        def compute():
            packed, scale, scale2 = qtensor.NVFP4QTensor.quantize(x, 16, None, whole)
            return {"codes": Value(packed._quantized_data, dtype="e2m1x2_low_first"), "scale": scale, "scale2": scale2}

        family.case("nvfp4_qtensor", {"x": x, "scale2": whole}, compute, {"block_size": 16})
    for _ in range(8):
        block = family.pick([16, 32])
        x = data(family, (family.whole(1, 4), block * family.whole(1, 3)))

        def compute():
            packed, scale = qtensor.MXFP4QTensor.quantize(x, block)
            return {"codes": Value(packed._quantized_data, dtype="e2m1x2_low_first"),
                    "scale": Value(scale, dtype="float8_e8m0fnu"), "y": packed.dequantize(x.dtype, scale=scale, block_sizes={-1: block})}

        family.case("mxfp4_qtensor", {"x": x}, compute, {"block_size": block})
    for _ in range(8):
        x = data(family, (family.whole(1, 4), family.whole(3, 80)))

        def compute():
            packed, scale = qtensor.MXFP8QTensor.quantize(x)
            return {"codes": packed._quantized_data, "scale": Value(scale, dtype="float8_e8m0fnu"),
                    "y": packed.dequantize(x.dtype, scale=scale)}

        family.case("mxfp8_qtensor", {"x": x}, compute, {"block_size": 32})


def nf4(family):
    for _ in range(4):
        block, scales = family.pick([4, 16, 64]), family.pick([2, 4])
        x = data(family, (2, block * scales // 2), [torch.float32, torch.float16])

        def compute():
            kind = qtensor.NF4QTensor
            packed, scale = kind.quantize(x, block, scales)
            codes, double, zero = kind.double_quantization(scale, scales, 8)
            y = packed.dequantize(x.dtype, scale=codes, double_scale=double, scale_zeros=zero,
                                  block_sizes={-1: block, "scale_block_sizes": {-1: scales}})
            return {"codes": Value(packed._quantized_data, dtype="nf4x2_high_first"), "scale": scale,
                    "scale_codes": Value(codes, **MEAN), "double_scale": Value(double, **MEAN),
                    "scale_zero": Value(zero, **MEAN), "y": Value(y, **MEAN)}

        family.case("nf4_qtensor", {"x": x}, compute, {"block_size": block, "scale_block_size": scales})


def odd_blocks(family):
    """Blocks that the reference packs but cannot dequantize."""
    for shape, block in [((2, 6), 3), ((2, 6), 1), ((4, 10), 5), ((1, 14), 7)]:
        x = data(family, shape)

        def compute():
            packed, scale = qtensor.INT4QTensor.quantize(x, block)
            return {"codes": Value(packed._quantized_data, dtype="int4x2_high_first"), "scale": scale}

        family.case("int4_qtensor", {"x": x}, compute, {"block_size": block})


def make(family):
    scaled(family)
    int4(family)
    four_bits(family)
    nf4(family)
    odd_blocks(family)
