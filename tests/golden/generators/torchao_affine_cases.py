"""torchao's affine quantization with every domain of zero points, and its choice of scales."""

import torch
from torchao.quantization import quant_primitives as primitives

from .family import FLOATS, SHAPES, gradient

SOURCE = "torchao 0.18.0, torch 2.15.0, CPU"
TYPES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint4": (0, 15), "uint2": (0, 3), "uint7": (0, 127)}
DOMAINS = ["INT", "FLOAT", "NONE"]
QUANTIZE = {"INT": primitives.quantize_affine, "FLOAT": primitives._quantize_affine_tinygemm,
            "NONE": primitives._quantize_affine_no_zero_point}
DEQUANTIZE = {"INT": primitives.dequantize_affine, "FLOAT": primitives._dequantize_affine_tinygemm,
              "NONE": primitives._dequantize_affine_no_zero_point}


def parameters(family, x, domain, low, high):
    """A block, and scales and zero points for it."""
    block = family.pick_block(x.shape)
    count = [size // length for size, length in zip(x.shape, block)]
    scale = family.scales(count, family.pick([torch.float32, x.dtype]))
    zero = {"INT": lambda: family.integers(count, low, high), "NONE": lambda: None,
            "FLOAT": lambda: family.values(count, scale.dtype, scale=0.3, specials=False)}[domain]()
    return block, scale, zero


def there_and_back(family):
    for _ in range(24):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS))
        domain, name = family.pick(DOMAINS), family.pick(list(TYPES))
        low, high = TYPES[name]
        given = family.flag()
        if given and name == "int8":
            low, high = family.pick([(-8, 7), (-4, 3), (-127, 127), (0, 100)])
        bounds = {"quant_min": low, "quant_max": high} if given else {}
        block, scale, zero = parameters(family, x, domain, low, high)
        dtype = getattr(torch, name)
        tensors = {"scale": scale, "zero_point": zero}
        codes = QUANTIZE[domain](x, block, scale, zero, dtype, *bounds.values())
        kept = codes.view(torch.uint8) if name.startswith("uint") and name != "uint8" and codes.dtype != torch.uint8 else codes
        shared = {"block_size": block, "zero_point_domain": domain, **bounds}
        family.case("quantize_affine", {"x": x, **tensors}, lambda: {"codes": kept}, {"output_dtype": name, **shared})
        output = family.pick(FLOATS)
        family.case("dequantize_affine", {"codes": kept, **tensors},
                    lambda: {"y": DEQUANTIZE[domain](codes, block, scale, zero, codes.dtype, *bounds.values(), output_dtype=output)},
                    {"input_dtype": codes.dtype, "output_dtype": output, **shared})


def fake(family):
    for _ in range(16):
        x = family.values(family.pick(SHAPES), family.pick(FLOATS))
        domain, name = family.pick(DOMAINS), family.pick(["int8", "uint8", "uint4", "int4", "uint2", "int7"])
        low, high = TYPES.get(name) or (-2 ** (int(name[3:]) - 1), 2 ** (int(name[3:]) - 1) - 1)
        block, scale, zero = parameters(family, x, domain, low, high)
        grad_y = family.values(x.shape, x.dtype, specials=False)
        kind, dtype = getattr(primitives.ZeroPointDomain, domain), getattr(torch, name)
        shared = {"block_size": block, "quant_dtype": name, "zero_point_domain": domain}
        tensors = {"x": x, "scale": scale, "zero_point": zero}

        def compute():
            y, grad = gradient(lambda v: primitives._fake_quantize_affine(v, block, scale, zero, dtype, None, None, kind), x, grad_y)
            return {"y": y, "grad_x": grad}

        def masked():
            y, mask = primitives._fake_quantize_affine_cachemask(x, block, scale, zero, dtype, low, high, kind)
            return {"y": y, "mask": mask}

        family.case("fake_quantize_affine", {**tensors, "grad_y": grad_y}, compute, shared)
        family.case("fake_quantize_affine_cachemask", tensors, masked, {**shared, "quant_min": low, "quant_max": high})


def choice(family):
    variants = {"": primitives.choose_qparams_affine, "_tinygemm": primitives._choose_qparams_affine_tinygemm,
                "_dont_preserve_zero": primitives._choose_qparams_affine_dont_preserve_zero}
    for _ in range(36):
        variant = family.pick(["", "", *variants])
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), specials=family.flag())
        if family.flag(0.3):
            x = x.abs()
        mapping = "ASYMMETRIC" if variant else family.pick(["SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"])
        block = family.pick_block(x.shape)
        options = {"eps": family.pick([None, 1e-6, 2.0 ** -12]), "scale_dtype": family.pick([None, *FLOATS])}
        if not variant:
            options.update(zero_point_dtype=family.pick([torch.int32, torch.float32, torch.int8]), keepdim=family.flag())
        if all(length == 1 for length in block):
            options.pop("keepdim", None)
        name = family.pick(["int8", "uint8", "int4", "uint4", "int2"])
        if options.get("zero_point_dtype") == torch.int8 and name == "uint8":
            options["zero_point_dtype"] = torch.int32

        def compute():
            kind = getattr(primitives.MappingType, mapping)
            scale, zero = variants[variant](x, kind, block, getattr(torch, name), None, None, **options)
            return {"scale": scale, "zero_point": zero}

        family.case(f"choose_qparams_affine{variant}", {"x": x}, compute,
                    {"mapping_type": mapping, "block_size": block, "target_dtype": name, **options})


def vanishing_scales(family):
    """An eps that the type of x does not hold; few rows: the sign of a zero is another in PyTorch's vector loops."""
    rows = [[0.0] * 4, [-0.0] * 4, [1e-7, -1e-7, 2e-7, 0.0], [-1e-7, 0.0, 0.0, 0.0], [3e-6, -1e-6, 0.0, 0.0]]
    for dtype in FLOATS:
        x = torch.tensor(rows, dtype=dtype)
        for mapping in ["SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"]:
            for eps, zero_dtype in [(1e-12, torch.int32), (0.0, torch.int64), (0.0, torch.int8), (1e-12, torch.float32)]:
                def compute():
                    scale, zero = primitives.choose_qparams_affine(x, getattr(primitives.MappingType, mapping), [1, 4], torch.int8,
                                                                   None, None, eps=eps, zero_point_dtype=zero_dtype)
                    return {"scale": scale, "zero_point": zero}

                family.case("choose_qparams_affine", {"x": x}, compute,
                            {"mapping_type": mapping, "block_size": [1, 4], "target_dtype": "int8", "eps": eps, "zero_point_dtype": zero_dtype})


def refusals(family):
    x, scale, zero = family.values((2, 6)), family.scales((2, 2)), family.integers((2, 2), 0, 1)
    for block, dtype, bounds, point in [([1, 4], "int8", {}, zero), ([3], "int8", {}, zero), ([1, 3], "int8", {"quant_min": -200}, zero),
                                        ([1, 3], "uint4", {"quant_max": 17}, zero), ([1, 3], "int8", {}, None), ([2, 2], "int8", {}, zero)]:
        def compute():
            return {"codes": primitives.quantize_affine(x, block, scale, point, getattr(torch, dtype),
                                                        bounds.get("quant_min"), bounds.get("quant_max"))}
        family.case("quantize_affine", {"x": x, "scale": scale, "zero_point": point}, compute,
                    {"block_size": block, "output_dtype": dtype, "zero_point_domain": "INT", **bounds}, rejected=True)


def make(family):
    there_and_back(family)
    fake(family)
    choice(family)
    refusals(family)
    vanishing_scales(family)
