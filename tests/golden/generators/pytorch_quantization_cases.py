"""The functions of pytorch-quantization 2.2.1, whose packages no longer install, by their formulas."""

import torch

from .family import SHAPES, UNORDERED, Value
from .modelopt_int_cases import pick_amax

SOURCE = "formula emulation of pytorch-quantization 2.2.1, torch 2.15.0, CPU"
FORMULA = {"source": "formula emulation: scale = bound / amax, half-even codes, fp32"}


def grid(bits, unsigned, narrow):
    top = 2.0 ** (bits - 1 + int(unsigned)) - 1
    return (0.0 if unsigned else -top if narrow else -top - 1), top


def compute_codes(x, amax, bits, unsigned, narrow):
    low, top = grid(bits, unsigned, narrow)
    scale = torch.tensor(top) / amax.float()  # a number instead of the tensor would be two roundings
    zero = amax.float() <= 2.0 ** -24 if bool(amax.float().min() <= 2.0 ** -24) else torch.zeros_like(scale, dtype=torch.bool)
    codes = torch.clamp(torch.round(x.float() * torch.where(zero, torch.zeros(()), scale)), low, top)
    return codes, torch.where(zero, torch.ones(()), scale)


def quantized(family):
    for i in range(20):
        unsigned = family.flag(0.25)
        half = i >= 10 and family.flag(0.4)
        x = family.values(family.pick(SHAPES), torch.float16 if half else torch.float32, positive=unsigned)
        bits, narrow = family.pick([8, 4, 6]), family.flag()
        amax = pick_amax(family, x)
        if half:
            amax = amax.clamp(min=0.1)
        grad_y = family.values(x.shape, x.dtype, specials=False)
        codes, scale = compute_codes(x, amax, bits, unsigned, narrow)
        passed = torch.where(x.abs() <= amax, grad_y, torch.zeros((), dtype=x.dtype))
        parameters = {"num_bits": bits, "unsigned": unsigned, "narrow_range": narrow}
        tensors = {"x": x, "amax": amax, "grad_y": grad_y}
        if i < 10:
            family.case("tensor_quant", tensors, lambda: {"codes": codes, "scale": scale, "grad_x": passed}, parameters, **FORMULA)
        else:
            family.case("legacy_fake_tensor_quant", tensors, lambda: {"y": (codes / scale).to(x.dtype), "grad_x": passed},
                        parameters, **FORMULA)


def affine(family):
    for _ in range(8):
        x = family.values(family.pick(SHAPES), scale=1.0)
        low, high = -family.scales((), around=1.0), family.scales((), around=1.0)
        bits = family.pick([8, 4])
        grad_y = family.values(x.shape, specials=False)

        def compute():
            step = (high - low) / (2.0 ** bits - 1)
            zero = torch.round(low / step) + 2.0 ** (bits - 1)
            codes = torch.clamp(torch.round(x / step) - zero, -2.0 ** (bits - 1), 2.0 ** (bits - 1) - 1)
            inside = (x >= low) & (x <= high)
            return {"y": (codes + zero) * step, "grad_x": torch.where(inside, grad_y, torch.zeros(()))}

        family.case("fake_affine_tensor_quant", {"x": x, "min_range": low, "max_range": high, "grad_y": grad_y}, compute,
                    {"num_bits": bits}, **FORMULA)


def clip(family):
    for _ in range(5):
        x = family.values(family.pick(SHAPES), scale=1.0)
        low, high = -family.scales((), around=1.0), family.scales((), around=1.0)
        grad_y = family.values(x.shape, specials=False)
        loose = {"compare": "rel:1e-5", "reason": UNORDERED}

        def compute():
            inside = (x > low) & (x < high)
            below, above = (grad_y.double() * (x <= low)).sum().float(), (grad_y.double() * (x >= high)).sum().float()
            return {"y": torch.clamp(x, low, high), "grad_min": Value(below, **loose), "grad_max": Value(above, **loose),
                    "grad_x": Value(torch.where(inside, grad_y, torch.zeros(())), "abs:0", "a product with 0 may keep either sign")}

        family.case("clip", {"x": x, "clip_value_min": low, "clip_value_max": high, "grad_y": grad_y}, compute, {}, **FORMULA)


def make(family):
    quantized(family)
    affine(family)
    clip(family)
