"""ModelOpt's integer fake quantization on the CPU."""

import torch
from modelopt.torch.quantization import tensor_quant

from .family import FLOATS, SHAPES, UNORDERED, Value, gradient

SOURCE = "nvidia-modelopt 0.47.0, torch 2.15.0, CPU"


def summed(grad_x, grad_y):
    """A gradient summed over repeated elements."""
    terms = 2.0 ** -22 * float(grad_y.abs().sum())
    return Value(grad_x, f"abs:{terms:.3g}" if grad_y.dtype == torch.float32 else "ulp:1", UNORDERED)


def pick_amax(family, x, dtype=torch.float32):
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
        amax = pick_amax(family, x, family.pick([torch.float32, torch.float32, x.dtype]))
        bias = family.values((1,) * (x.dim() - 1) + x.shape[-1:], x.dtype, scale=0.1, specials=False) if family.flag(0.2) and not unsigned else None
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def compute():
            y, grad = gradient(lambda v: tensor_quant.fake_tensor_quant(v, amax, bias, bits, unsigned, narrow, None, through), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("fake_tensor_quant", {"x": x, "amax": amax, "bias": bias, "grad_y": grad_y}, compute,
                    {"num_bits": bits, "unsigned": unsigned, "narrow_range": narrow, "pass_through_bwd": through})
    x = family.values((2, 3), specials=False)
    for amax, unsigned in [(torch.tensor(-1.0), False), (torch.tensor([1.0, 2.0]), False), (torch.tensor(1.0), True)]:
        family.case("fake_tensor_quant", {"x": -x.abs(), "amax": amax},
                    lambda: {"y": tensor_quant.fake_tensor_quant(-x.abs(), amax, None, 8, unsigned)},
                    {"num_bits": 8, "unsigned": unsigned}, rejected=True)


def cast(family):
    for _ in range(8):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), scale=20.0, infinite=True)
        bits, unsigned, narrow = family.whole(2, 8), family.flag(), family.flag()
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def compute():
            y, grad = gradient(lambda v: tensor_quant.int_cast_ste(v, bits, unsigned, narrow), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("int_cast_ste", {"x": x, "grad_y": grad_y}, compute,
                    {"num_bits": bits, "unsigned": unsigned, "narrow_range": narrow})


def repeated(family):
    """Ranges, and a bias, that repeat the input; and codes of one bit."""
    for shape, ranges in [((3,), (2, 3)), ((1, 5), (4, 1)), ((), (3,)), ((2, 1, 3), (2, 4, 1)), ((1,), (7,))]:
        x, amax = family.values(shape, family.pick(FLOATS), scale=1.0, specials=False), family.scales(ranges, around=1.0)
        bias = family.values(ranges, x.dtype, scale=0.1, specials=False) if family.flag(0.4) else None
        grad_y = family.values(torch.broadcast_shapes(shape, ranges), x.dtype, specials=False)

        def compute():
            y, grad = gradient(lambda v: tensor_quant.fake_tensor_quant(v, amax, bias), x, grad_y)
            return {"y": y, "grad_x": summed(grad, grad_y)}

        family.case("fake_tensor_quant", {"x": x, "amax": amax, "bias": bias, "grad_y": grad_y}, compute)
    for unsigned, narrow in [(False, False), (False, True), (True, False)]:
        x = family.values((4, 3), scale=1.0, positive=unsigned)
        amax, grad_y = torch.tensor([0.5, 0.0, 2.0]), family.values((4, 3), specials=False)
        for function, call in {"fake_tensor_quant": lambda v: tensor_quant.fake_tensor_quant(v, amax, None, 1, unsigned, narrow),
                               "int_cast_ste": lambda v: tensor_quant.int_cast_ste(v, 1, unsigned, narrow)}.items():
            def compute():
                y, grad = gradient(call, x, grad_y)
                return {"y": y, "grad_x": grad}

            family.case(function, {"x": x, "amax": amax if function == "fake_tensor_quant" else None, "grad_y": grad_y}, compute,
                        {"num_bits": 1, "unsigned": unsigned, "narrow_range": narrow})


def cast_bounds(family):
    """Values at the bounds of codes and next to them, in types that cannot represent every bound."""
    for dtype, bits in [(torch.float32, 16), (torch.float64, 12), (torch.float16, 12), (torch.float16, 13), (torch.float16, 16),
                        (torch.bfloat16, 8), (torch.bfloat16, 9), (torch.bfloat16, 10), (torch.bfloat16, 16)]:
        for unsigned, narrow in [(False, False), (False, True), (True, False)]:
            bound = 2.0 ** (bits - 1 + int(unsigned)) - 1
            near = torch.tensor([0.5, 1.5, bound - 0.5, bound, bound + 0.5, bound + 1, bound + 2, 2 * bound], dtype=torch.float64).to(dtype)
            x = torch.cat([near, -near, torch.nextafter(near, torch.zeros_like(near)), torch.nextafter(near, near * 2)])
            grad_y = family.values(x.shape, specials=False).to(dtype)

            def compute():
                y, grad = gradient(lambda v: tensor_quant.int_cast_ste(v, bits, unsigned, narrow), x, grad_y)
                return {"y": y, "grad_x": grad}

            family.case("int_cast_ste", {"x": x, "grad_y": grad_y}, compute, {"num_bits": bits, "unsigned": unsigned, "narrow_range": narrow},
                        rejected=dtype == torch.float16 and bits == 16 and unsigned)


def make(family):
    fake(family)
    cast(family)
    repeated(family)
    cast_bounds(family)
