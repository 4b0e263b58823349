"""ModelOpt's E4M3 fake quantization on the CPU; its FP4 blocks, whose kernels need a GPU, by their formula.

The kernels with dynamic scales are CUDA only and have no case here.
"""

import torch
from modelopt.torch.quantization import tensor_quant

from .family import FLOATS, SHAPES, gradient
from .modelopt_int_cases import amax_for

SOURCE = "nvidia-modelopt 0.47.0, torch 2.15.0, CPU"
FORMULA = "formula emulation: half-even E2M1 of |x| / s in IEEE arithmetic; scales by modelopt scaled_e4m3"
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e4m3(family):
    for _ in range(20):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), infinite=family.flag(0.4))
        amax = None if family.flag(0.15) else amax_for(family, x)
        bias = family.values((1,) * (x.dim() - 1) + x.shape[-1:], x.dtype, scale=0.1, specials=False) if family.flag(0.2) else None
        through = family.flag(0.2)
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def answer():
            y, grad = gradient(lambda v: tensor_quant.scaled_e4m3(v, amax, bias, 4, 3, None, through), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("scaled_e4m3", {"x": x, "amax": amax, "bias": bias, "grad_y": grad_y}, answer,
                    {"E": 4, "M": 3, "pass_through_bwd": through})
    x = family.values((3,))
    family.case("scaled_e4m3", {"x": x}, lambda: {"y": tensor_quant.scaled_e4m3(x, None, None, 5, 2)}, {"E": 5, "M": 2}, refused=True)


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

        def answer():
            scale = amax.float() / 6.0
            if quantized:
                top = amax.max() if whole is None else whole
                scale = tensor_quant.scaled_e4m3_impl(scale, top.float() * (448.0 / normal) / 6.0)
            safe = torch.where(scale.isfinite(), scale, torch.ones(()))
            y = signed(e2m1(x.float().abs() / safe) * safe, x.float())
            y = torch.where(scale == 0, torch.zeros(()), y).to(x.dtype)
            return {"y": y, "scale": scale.view(-1), "grad_x": torch.where(x.abs() <= amax, grad_y, torch.zeros((), dtype=x.dtype))}

        family.case("static_blockwise_fp4_fake_quant", {"x": x, "amax": amax, "global_amax": whole, "grad_y": grad_y}, answer,
                    {"block_size": length, "quantize_block_scales": quantized, "fp8_max_for_normalization": normal}, source=FORMULA)
    for dtype in FLOATS:
        x = torch.cat([family.ties(E2M1.tolist()), family.values((40,), scale=3.0, infinite=True)]).to(dtype)
        grad_y = family.values(x.shape, dtype, specials=False)
        family.case("fp4_cast_ste", {"x": x, "grad_y": grad_y},
                    lambda: {"y": signed(e2m1(x.float().abs()), x.float()).to(dtype),
                             "grad_x": torch.where(x.abs() <= 6, grad_y, torch.zeros((), dtype=dtype))}, source=FORMULA)


def make(family):
    e4m3(family)
    fp4(family)
