"""ModelOpt's integer fake quantization on the CPU."""

import torch
from modelopt.torch.quantization import tensor_quant

from .family import FLOATS, SHAPES, gradient

SOURCE = "nvidia-modelopt 0.47.0, torch 2.15.0, CPU"


def amax_for(family, x, dtype=torch.float32):
    """Per tensor, a list, or kept axes; now and then what counts as zero, the next above, infinity or NaN."""
    shape = family.pick([(), (1,), tuple(n if family.flag() else 1 for n in x.shape)])
    peak = float(x.float().nan_to_num(0, 0, 0).abs().max()) or 1.0
    amax = family.scales(shape, around=peak / 2)
    if amax.numel() > 2 and family.flag(0.4):
        amax.view(-1)[0] = family.pick([0.0, 2.0 ** -24, 2.0 ** -25, 2.0 ** -23, float("inf"), float("nan")])
    return amax.to(dtype)


def fake(family):
    for _ in range(26):
        unsigned = family.flag(0.25)
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), infinite=family.flag(0.3), positive=unsigned)
        bits, narrow, through = family.pick([8, 8, 4, 2, 6, 16]), family.flag(), family.flag(0.2)
        amax = amax_for(family, x, family.pick([torch.float32, torch.float32, x.dtype]))
        bias = family.values((1,) * (x.dim() - 1) + x.shape[-1:], x.dtype, scale=0.1, specials=False) if family.flag(0.2) and not unsigned else None
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def answer():
            y, grad = gradient(lambda v: tensor_quant.fake_tensor_quant(v, amax, bias, bits, unsigned, narrow, None, through), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("fake_tensor_quant", {"x": x, "amax": amax, "bias": bias, "grad_y": grad_y}, answer,
                    {"num_bits": bits, "unsigned": unsigned, "narrow_range": narrow, "pass_through_bwd": through})
    x = family.values((2, 3), specials=False)
    for amax, unsigned in [(torch.tensor(-1.0), False), (torch.tensor([1.0, 2.0]), False), (torch.tensor(1.0), True)]:
        family.case("fake_tensor_quant", {"x": -x.abs(), "amax": amax},
                    lambda: {"y": tensor_quant.fake_tensor_quant(-x.abs(), amax, None, 8, unsigned)},
                    {"num_bits": 8, "unsigned": unsigned}, refused=True)


def cast(family):
    for _ in range(8):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), scale=20.0, infinite=True)
        bits, unsigned, narrow = family.whole(2, 8), family.flag(), family.flag()
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def answer():
            y, grad = gradient(lambda v: tensor_quant.int_cast_ste(v, bits, unsigned, narrow), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("int_cast_ste", {"x": x, "grad_y": grad_y}, answer,
                    {"num_bits": bits, "unsigned": unsigned, "narrow_range": narrow})


def make(family):
    fake(family)
    cast(family)
