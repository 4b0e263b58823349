"""torchao's 8-bit floats with scales, floats of any width, MX and NVFP4 blocks."""

import torch
from torchao.prototype import custom_fp_utils
from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.quantization import quant_primitives as primitives

from .family import FLOATS, SHAPES, Value

SOURCE = "torchao 0.18.0, torch 2.15.0, CPU"
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
MODES = [ScaleCalculationMode.FLOOR, ScaleCalculationMode.CEIL, ScaleCalculationMode.EVEN, ScaleCalculationMode.RCEIL]


def float8(family):
    for _ in range(12):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS))
        dtype, block = family.pick(FLOAT8), family.pick_block(x.shape)
        if all(length == 1 for length in block) and x.numel() > 1:
            block[-1] = x.shape[-1]
        if all(length == 1 for length in block):
            block = list(x.shape)
        kind = family.pick([torch.float32, torch.float32, torch.float8_e8m0fnu])
        bounds = {"hp_value_lb": 0.25, "hp_value_ub": 4.0} if family.flag(0.4) else {}
        if kind == torch.float8_e8m0fnu and "hp_value_lb" not in bounds:
            bounds["hp_value_lb"] = 2.0 ** -10
        if all(length == 1 for length in block) and x.numel() > 1:
            continue
        scale = primitives._choose_scale_float8(x, block, dtype, kind, **bounds)
        family.case("choose_scale_float8", {"x": x}, lambda: {"scale": scale},
                    {"block_size": block, "float8_dtype": dtype, "scale_dtype": kind, **bounds})
        codes = primitives._quantize_affine_float8(x, scale, dtype)
        if bool((scale == 0).any()):
            continue
        family.case("quantize_affine_float8", {"x": x, "scale": scale}, lambda: {"codes": codes}, {"float8_dtype": dtype})
        output = family.pick(FLOATS)
        family.case("dequantize_affine_float8", {"codes": codes, "scale": scale},
                    lambda: {"y": primitives._dequantize_affine_float8(codes, scale, output)},
                    {"float8_dtype": dtype, "output_dtype": output})


def floatx(family):
    for ebits, mbits in [(2, 1), (3, 2), (2, 3), (3, 1), (2, 2), (1, 2), (4, 3)]:
        codes = torch.arange(2 ** (ebits + mbits), dtype=torch.uint8)
        grid = custom_fp_utils._floatx_unpacked_to_f32(codes, ebits, mbits)
        x = torch.cat([family.ties(grid.tolist()), family.values((40,), scale=float(grid.max())), torch.tensor([float("inf"), -float("inf")])])

        def compute():
            q = custom_fp_utils._f32_to_floatx_unpacked(x, ebits, mbits)
            return {"codes": Value(q, dtype=f"floatx_e{ebits}m{mbits}"), "y": custom_fp_utils._floatx_unpacked_to_f32(q, ebits, mbits)}

        family.case("cast_floatx", {"x": x}, compute, {"ebits": ebits, "mbits": mbits})


def mx(family):
    kinds = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "fp6_e2m3": mx_tensor.DTYPE_FP6_E2M3,
             "fp6_e3m2": mx_tensor.DTYPE_FP6_E3M2, "float4_e2m1fn_x2": torch.float4_e2m1fn_x2}
    written = {"fp6_e2m3": "floatx_e2m3", "fp6_e3m2": "floatx_e3m2", "float4_e2m1fn_x2": "e2m1x2_low_first"}
    for name, kind in kinds.items():
        for mode in MODES:
            for dtype in [torch.float32, torch.bfloat16]:
                block = family.pick([16, 32])
                x = family.values((family.whole(1, 4), block * family.whole(1, 2)), dtype, scale=2.0 ** family.whole(-20, 20))
                x[0, :block] *= family.pick([0, 1, 1, 1])
                if name == "float4_e2m1fn_x2" and block == 16 and family.flag():
                    x[-1, -block:] = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -5, -6, 0, -0.0, 4])
                target = family.pick(FLOATS)

                def compute():
                    scale, codes = mx_tensor.to_mx(x, kind, block, mode)
                    y = mx_tensor.to_dtype(codes, scale, kind, block, target)
                    raw = codes if name.startswith("float8") else Value(codes.view(torch.uint8), dtype=written[name])
                    return {"scale": scale, "codes": raw, "y": y}

                family.case("to_mx", {"x": x}, compute, {"elem_dtype": name, "block_size": block, "scaling_mode": mode.name,
                                                        "target_dtype": target})
    x = family.values((2, 40))
    family.case("to_mx", {"x": x}, lambda: {"y": mx_tensor.to_mx(x, torch.float8_e4m3fn, 32)},
                {"elem_dtype": "float8_e4m3fn", "block_size": 32, "scaling_mode": "FLOOR"}, rejected=True)


def nvfp4(family):
    for i in range(12):
        x = family.values((family.whole(1, 5), 16 * family.whole(1, 4)), family.pick([torch.float32, torch.bfloat16]))
        whole = (x.float().abs().max() / (448 * 6)) if i % 2 else None

        def compute():
            scale, codes = nvfp4_tensor.nvfp4_quantize(x, 16, whole)
            return {"scale": scale, "codes": Value(codes.view(torch.uint8), dtype="e2m1x2_low_first")}

        family.case("nvfp4_quantize", {"x": x, "per_tensor_scale": whole}, compute, {"block_size": 16})


def make(family):
    float8(family)
    floatx(family)
    mx(family)
    nvfp4(family)
