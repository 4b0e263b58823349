"""ModelOpt's E4M3 fake quantization on the CPU; its FP4 and dynamic blocks, whose kernels need a GPU, by their formulas."""

import numpy as np
import torch
from modelopt.torch.quantization import tensor_quant

from .family import FLOATS, SHAPES, gradient
from .modelopt_int_cases import pick_amax, summed

SOURCE = "nvidia-modelopt 0.47.0, torch 2.15.0, CPU"
FORMULA = "formula emulation: half-even E2M1 of |x| / s in IEEE arithmetic; scales by modelopt scaled_e4m3"
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e4m3(family):
    for _ in range(20):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), infinite=family.flag(0.4))
        amax = None if family.flag(0.15) else pick_amax(family, x)
        bias = family.values((1,) * (x.dim() - 1) + x.shape[-1:], x.dtype, scale=0.1, specials=False) if family.flag(0.2) else None
        through = family.flag(0.2)
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def compute():
            y, grad = gradient(lambda v: tensor_quant.scaled_e4m3(v, amax, bias, 4, 3, None, through), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("scaled_e4m3", {"x": x, "amax": amax, "bias": bias, "grad_y": grad_y}, compute,
                    {"E": 4, "M": 3, "pass_through_bwd": through})
    x = family.values((3,))
    family.case("scaled_e4m3", {"x": x}, lambda: {"y": tensor_quant.scaled_e4m3(x, None, None, 5, 2)}, {"E": 5, "M": 2}, rejected=True)


def e2m1(magnitude):
    """The nearest value, the one with an even mantissa of two; 6 above 5."""
    middles = (E2M1[1:] + E2M1[:-1]) / 2
    up = torch.tensor([False, True, False, True, False, True, False])  # a tie goes to the even neighbour
    index = (magnitude.unsqueeze(-1) > middles).sum(-1) + ((magnitude.unsqueeze(-1) == middles) & up).any(-1).long()
    return torch.where(magnitude.isnan(), torch.tensor(6.0), E2M1[index])


def signed(value, x):
    return torch.where(x >= 0, value, -value)


def fp4(family):
    for _ in range(10):
        blocks, length = family.whole(1, 9), family.pick([16, 16, 32, 8])
        x = family.values((blocks, length), family.pick(FLOATS), infinite=family.flag(0.2))
        amax = x.float().nan_to_num(0, 0, 0).abs().amax(-1, keepdim=True) * family.pick([1, 1, 0.7])
        whole = amax.max() * 2 if family.flag() else None
        quantized, normal = family.flag(0.8), family.pick([448.0, 448.0, 256.0])
        if not bool((amax > 0).any()):
            continue
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def compute():
            scale = amax.float() / 6.0
            if quantized:
                top = amax.max() if whole is None else whole
                scale = tensor_quant.scaled_e4m3_impl(scale, top.float() * (448.0 / normal) / 6.0)
            safe = torch.where(scale.isfinite(), scale, torch.ones(()))
            y = signed(e2m1(x.float().abs() / safe) * safe, x.float())
            y = torch.where(scale == 0, torch.zeros(()), y).to(x.dtype)
            return {"y": y, "scale": scale.view(-1), "grad_x": torch.where(x.abs() <= amax, grad_y, torch.zeros((), dtype=x.dtype))}

        family.case("static_blockwise_fp4_fake_quant", {"x": x, "amax": amax, "global_amax": whole, "grad_y": grad_y}, compute,
                    {"block_size": length, "quantize_block_scales": quantized, "fp8_max_for_normalization": normal}, source=FORMULA)
    for dtype in FLOATS:
        x = torch.cat([family.ties(E2M1.tolist()), family.values((40,), scale=3.0, infinite=True)]).to(dtype)
        grad_y = family.values(x.shape, dtype, specials=False)
        family.case("fp4_cast_ste", {"x": x, "grad_y": grad_y},
                    lambda: {"y": signed(e2m1(x.float().abs()), x.float()).to(dtype),
                             "grad_x": torch.where(x.abs() <= 6, grad_y, torch.zeros((), dtype=dtype))}, source=FORMULA)


# ---- blocks with dynamic scales: tensor_quant_mx.cu and fp4_kernel_hopper.py in numpy ----

FORMATS = {(4, 3): 448.0, (5, 2): 57344.0, (3, 2): 28.0, (2, 3): 7.5, (2, 1): 6.0, 8: 127.0}
KERNELS = "formula emulation of modelopt's CUDA kernels in IEEE arithmetic"
f32 = np.float32


def minifloat(v, exponent, mantissa, top):
    """The nearest value of a magnitude, half to even, saturating."""
    v = np.minimum(np.asarray(v, np.float64), top)
    unit = np.exp2(np.maximum(np.frexp(v)[1] - 1, 2 - 2 ** (exponent - 1)) - mantissa)
    return np.rint(v / unit) * unit


def power_of_two_scales(am, top):
    r = f32(am / f32(top))
    m, e = np.frexp(np.float64(r))
    e = int(e) - 1
    if m != 0.5 and -127 < np.log2(np.float64(r)) < 127:
        e += 1
    return f32(2.0 ** -e), f32(2.0 ** e)


def scales_of_scales(am, top, whole):
    if whole is None:
        u = minifloat(f32(1.0 / np.float64(f32(f32(top) / am))), 4, 3, 448.0)
        return f32(1.0 / u), f32(u)
    t = 448.0 * np.float64(f32(f32(top) / whole))
    u = minifloat(f32(np.float64(f32(am / f32(top))) * t), 4, 3, 448.0) / t
    return f32(1.0 / u), f32(u)


def dynamic_block(block, kind, scale_bits, whole):
    top, magnitude = FORMATS[kind], np.abs(block)
    am = f32(magnitude.max())
    guarded = am == 0 or (whole is not None and whole == 0)
    scale, unscale = (f32(1), f32(1)) if guarded else (
        power_of_two_scales(am, top) if scale_bits == (8, 0) else scales_of_scales(am, top, whole))
    scaled = magnitude * scale
    code = np.minimum(np.rint(scaled), 127) if kind == 8 else minifloat(scaled, *kind, top)
    return np.copysign(f32(code) * unscale, block)


def triton_block(block, whole):
    base = max(f32(whole / f32(2688.0)), f32(1e-12)) if whole <= 0 else f32(whole / f32(2688.0))
    scale = f32(minifloat(np.minimum(f32(np.abs(block).max() / f32(f32(6.0) * base)), f32(448.0)), 4, 3, 448.0)) * base
    scale = f32(1) if scale < f32(1e-5) else scale
    return np.where(block >= 0, 1, -1).astype(f32) * (f32(minifloat(np.abs(block) / scale, 2, 1, 6.0)) * scale)


def dynamic(family):
    for i in range(24):
        kernel = "triton" if i % 4 == 3 else "cuda_ext"
        kind = (2, 1) if kernel == "triton" else family.pick(list(FORMATS))
        scale_bits = (4, 3) if kernel == "triton" else family.pick([(8, 0), (8, 0), (4, 3)])
        size = 16 if kernel == "triton" else family.pick([8, 16, 32])
        x = family.values((family.whole(1, 4), size * family.whole(1, 3) - (0 if kernel == "triton" else family.pick([0, 0, 3]))), family.pick(FLOATS), specials=False)
        whole = x.float().abs().max() * family.pick([1.0, 2.0]) if kernel == "triton" or (scale_bits == (4, 3) and family.flag(0.7)) else None

        def compute():
            rows = x.float().numpy()
            padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % size)))
            top = None if whole is None else f32(whole)
            blocks = [triton_block(b, top) if kernel == "triton" else dynamic_block(b, kind, scale_bits, top) for b in padded.reshape(-1, size)]
            y = np.stack(blocks).reshape(padded.shape)[:, :rows.shape[1]]
            return {"y": torch.from_numpy(np.ascontiguousarray(y.astype(f32))).to(x.dtype)}

        family.case("dynamic_block_quantize", {"x": x, "global_amax": whole}, compute,
                    {"num_bits": list(kind) if kind != 8 else 8, "scale_bits": list(scale_bits), "block_size": size, "kernel": kernel},
                    compare="abs:0", reason="the reference leaves the sign of a zero input undefined", source=KERNELS)


def e4m3_repeated(family):
    """Ranges that repeat the input."""
    for shape, ranges in [((3,), (2, 3)), ((), (3,)), ((2, 1, 3), (2, 4, 1))]:
        x, amax = family.values(shape, scale=1.0, specials=False), family.scales(ranges, around=1.0)
        grad_y = family.values(torch.broadcast_shapes(shape, ranges), specials=False)

        def compute():
            y, grad = gradient(lambda v: tensor_quant.scaled_e4m3(v, amax, None, 4, 3), x, grad_y)
            return {"y": y, "grad_x": summed(grad, grad_y)}

        family.case("scaled_e4m3", {"x": x, "amax": amax, "grad_y": grad_y}, compute)


def make(family):
    e4m3(family)
    fp4(family)
    dynamic(family)
    e4m3_repeated(family)
