"""PyTorch's fake quantization and casts to 8-bit floats."""

import torch

from .family import FLOATS, SHAPES, UNORDERED, Value, gradient

SOURCE = "torch 2.15.0, CPU"
RANGES = [(-128, 127), (0, 255), (-127, 127), (0, 15), (-8, 7), (0, 127), (-32768, 32767), (0, 3)]


def per_tensor(family):
    for _ in range(14):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), infinite=family.flag())
        low, high = family.pick(RANGES)
        scale, zero = float(family.scales(())), family.whole(low, high)
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def compute():
            y, grad = gradient(lambda v: torch.fake_quantize_per_tensor_affine(v, scale, zero, low, high), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("fake_quantize_per_tensor_affine", {"x": x, "grad_y": grad_y}, compute,
                    {"scale": scale, "zero_point": zero, "quant_min": low, "quant_max": high})
    for zero, low, high in [(128, -128, 127), (5, 10, 0)]:
        x = family.values((3,))
        family.case("fake_quantize_per_tensor_affine", {"x": x},
                    lambda: {"y": torch.fake_quantize_per_tensor_affine(x, 0.5, zero, low, high)},
                    {"scale": 0.5, "zero_point": zero, "quant_min": low, "quant_max": high}, rejected=True)


def per_channel(family):
    for _ in range(10):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), infinite=family.flag(0.3))
        axis = family.whole(0, x.dim() - 1)
        low, high = family.pick(RANGES)
        scale, zero = family.scales(x.shape[axis]), family.integers(x.shape[axis], low, high)
        grad_y = family.values(x.shape, x.dtype, specials=False)

        def compute():
            y, grad = gradient(lambda v: torch.fake_quantize_per_channel_affine(v, scale, zero, axis, low, high), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("fake_quantize_per_channel_affine", {"x": x, "scale": scale, "zero_point": zero, "grad_y": grad_y},
                    compute, {"axis": axis, "quant_min": low, "quant_max": high})


def learnable(family, channels):
    for _ in range(8):
        # The reference's backward per channel fails for an input of one axis.
        x = family.values(family.pick([shape for shape in SHAPES if len(shape) > 1 or not channels]), specials=False)
        low, high = family.pick(RANGES[:5])
        axis = family.whole(0, x.dim() - 1) if channels else None
        count = x.shape[axis] if channels else 1
        scale = family.scales(count).requires_grad_(True)
        zero = (family.integers(count, low, high).float() + family.pick([0.0, 0.25, 0.5, -0.3])).requires_grad_(True)
        factor = family.pick([1.0, 0.1, float(x.numel()) ** -0.5])
        grad_y = family.values(x.shape, specials=False)
        run = torch._fake_quantize_learnable_per_channel_affine if channels else torch._fake_quantize_learnable_per_tensor_affine
        where = (axis, low, high, factor) if channels else (low, high, factor)

        def compute():
            y, grad, grad_scale, grad_zero = gradient(lambda v: run(v, scale, zero, *where), x, grad_y, scale, zero)
            terms = float(grad_y.abs().sum()) * factor * 1e-6
            loose = [{"compare": f"abs:{terms * size:.3g}", "reason": UNORDERED} for size in (max(abs(low), high), float(scale.max()))]
            return {"y": y, "grad_x": grad, "grad_scale": Value(grad_scale, **loose[0]), "grad_zero_point": Value(grad_zero, **loose[1])}

        family.case(f"fake_quantize_learnable_per_{'channel' if channels else 'tensor'}_affine",
                    {"x": x, "scale": scale, "zero_point": zero, "grad_y": grad_y}, compute,
                    {"axis": axis, "quant_min": low, "quant_max": high, "grad_factor": factor})


def casts(family):
    infinities = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0])
    for dtype in [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu]:
        codes = torch.arange(256, dtype=torch.uint8).view(dtype)
        for output in FLOATS:
            family.case("decode_float8", {"codes": codes}, lambda: {"y": codes.to(output)},
                        {"float8_dtype": dtype, "output_dtype": output})
        grid = codes.float()
        near = family.ties(grid[grid.isfinite() & (grid >= 0)].tolist())
        limit = torch.finfo(dtype).max
        for source in FLOATS:
            x = torch.cat([near[near.abs() < 3e38], infinities, family.values((200,), scale=float(limit) ** 0.5)]).to(source)
            if dtype == torch.float8_e8m0fnu:
                x = x if source == torch.float32 else x[x.float().abs() != 0]
            family.case("cast_float8", {"x": x}, lambda: {"codes": saturated(x, dtype)}, {"float8_dtype": dtype, "saturate": 1})
    overflow = {torch.float8_e5m2: lambda x: x.to(torch.float8_e5m2), torch.float8_e4m3fn: overflowing_e4m3}
    for dtype, cast in overflow.items():
        x = torch.cat([infinities, family.values((300,), scale=torch.finfo(dtype).max / 2),
                       torch.tensor([464.0, 464.1, -465.0, 480.0, 61439.0, 61440.0, -65536.0])])
        family.case("cast_float8", {"x": x}, lambda: {"codes": cast(x)}, {"float8_dtype": dtype, "saturate": 0})
    for output in [torch.float16, torch.bfloat16]:
        x = torch.cat([infinities, family.values((300,), scale=1e4), family.values((200,), scale=1e-6), torch.tensor([65519.9, 65520.0])])
        family.case("cast_float", {"x": x}, lambda: {"y": x.to(output)}, {"output_dtype": output})


def saturated(x, dtype):
    if dtype == torch.float8_e5m2:
        x = x.float().clamp(-57344.0, 57344.0)
    return x.to(dtype)


def overflowing_e4m3(x):
    import ml_dtypes

    return torch.from_numpy(x.numpy().astype(ml_dtypes.float8_e4m3fn).view("uint8").copy()).view(torch.float8_e4m3fn)


def float_zero_points(family):
    """Zero points of channels, also outside of the range, and inputs at ties or next to them."""
    for i in range(16):
        dtype, kind = [*FLOATS, torch.float64][i % 4], family.pick([torch.float32, torch.float16])
        low, high = family.pick(RANGES[:5])
        scale = family.scales(7)
        zero = torch.from_numpy(family.random.uniform(low - 5, high + 5, 7).astype("float32"))
        zero = (torch.round(zero * 4) / 4 if family.flag() else zero).to(kind)
        codes = family.integers((40, 7), low - 9, high + 9) + 0.5
        x = ((codes - zero.float()) * scale).to(dtype)
        x[0] = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e4, -1e4], dtype=dtype)
        grad_y = family.values(x.shape, specials=False).to(dtype)

        def compute():
            y, grad = gradient(lambda v: torch.fake_quantize_per_channel_affine(v, scale, zero, 1, low, high), x, grad_y)
            return {"y": y, "grad_x": grad}

        family.case("fake_quantize_per_channel_affine", {"x": x, "scale": scale, "zero_point": zero, "grad_y": grad_y},
                    compute, {"axis": 1, "quant_min": low, "quant_max": high})
    x, scale = family.values((2, 3)), family.scales(3)
    for kind in (torch.bfloat16, torch.float64):
        zero = torch.zeros(3, dtype=kind)
        family.case("fake_quantize_per_channel_affine", {"x": x, "scale": scale, "zero_point": zero},
                    lambda: {"y": torch.fake_quantize_per_channel_affine(x, scale, zero, 1, 0, 255)},
                    {"axis": 1, "quant_min": 0, "quant_max": 255}, rejected=True)


def make(family):
    per_tensor(family)
    per_channel(family)
    learnable(family, channels=False)
    learnable(family, channels=True)
    casts(family)
    float_zero_points(family)
