"""ModelOpt's TensorQuantizer with fixed and calibrated ranges, and the configurations it refuses."""

import torch
from modelopt.torch.quantization.config import QuantizerAttributeConfig
from modelopt.torch.quantization.nn import TensorQuantizer

from .family import FLOATS

SOURCE = "nvidia-modelopt 0.47.0, torch 2.15.0, CPU"
SHAPES = [(8, 48), (3, 17), (2, 3, 4, 6), (5, 1, 9), (4, 6, 8), (65,)]


def granularity(family, x):
    """Attributes of a case, and the configuration's fields."""
    way = family.pick(["tensor", "axis", "axes", "last", "grid"])
    if way in ("axis", "axes") and x.dim() > 1:
        axes = sorted(family.random.choice(x.dim(), size=1 if way == "axis" else x.dim() - 1, replace=False).tolist())
        axes = [a - x.dim() for a in axes] if family.flag(0.3) else axes
        return {"axis": axes[0] if len(axes) == 1 else axes}, {"axis": axes[0] if len(axes) == 1 else tuple(axes)}
    if way == "last" or (way == "grid" and x.dim() == 2):
        lengths = {-1: family.pick([4, 8, 16])} if way == "last" else {-2: family.whole(2, 4), -1: family.whole(3, 8)}
        return {"block_axes": list(lengths), "block_lengths": list(lengths.values())}, {"block_sizes": lengths}
    return {}, {}


def runs(family):
    for _ in range(24):
        unsigned, bits = family.flag(0.2), family.pick([8, 8, 4, (4, 3), (4, 3)])
        unsigned = unsigned and bits != (4, 3)
        x = family.values(family.pick(SHAPES), family.pick(FLOATS), positive=unsigned)
        attributes, fields = granularity(family, x)
        narrow, through, calibrate = family.flag(), family.flag(), family.flag(0.6)
        factor = family.scales(x.shape[-1], x.dtype, around=1.0) if family.flag(0.2) else None
        grad_y = family.values(x.shape, x.dtype, specials=False)
        fields.update(num_bits=bits, unsigned=unsigned, narrow_range=narrow, pass_through_bwd=through)

        def compute():
            quantizer = TensorQuantizer(QuantizerAttributeConfig(**fields))
            if factor is not None:
                quantizer.pre_quant_scale = factor
            results = {}
            if calibrate:
                quantizer.disable_quant()
                quantizer.enable_calib()
                quantizer(x)
                quantizer.load_calib_amax()
                quantizer.enable_quant()
                quantizer.disable_calib()
                results["amax"] = quantizer.amax.clone()
                results["export_amax"] = quantizer.export_amax()
            v = x.clone().requires_grad_(True)
            y = quantizer(v)
            y.backward(grad_y)
            return {"y": y.detach(), "grad_x": v.grad, **results}

        family.case("tensor_quantizer", {"x": x, "grad_y": grad_y, "pre_quant_scale": factor}, compute,
                    {**attributes, "num_bits": list(bits) if isinstance(bits, tuple) else bits, "unsigned": unsigned,
                     "narrow_range": narrow, "pass_through_bwd": through, "calibrate": calibrate})


def refusals(family):
    for fields, attributes in [({"axis": 0, "block_sizes": {-1: 4}}, {"axis": 0, "block_axes": [-1], "block_lengths": [4]}),
                               ({"num_bits": (5, 2)}, {}), ({"num_bits": 0}, {})]:
        bits = fields.setdefault("num_bits", 8)
        attributes = {**attributes, "num_bits": list(bits) if isinstance(bits, tuple) else bits}
        family.case("quantizer_attribute_config", {}, lambda: {"y": torch.tensor(bool(QuantizerAttributeConfig(**fields)))},
                    attributes, rejected=True)


def exported(family):
    """Ranges that are none, and the numbers of each type that are used for them."""
    for dtype in FLOATS:
        for bits, unsigned in [(16, True), (16, False), (8, True), (8, False), ((4, 3), False)]:
            for amax in [0.0, 1e-8, 5.0, 65504.0]:
                amax = torch.tensor(amax, dtype=dtype)

                def compute():
                    quantizer = TensorQuantizer(QuantizerAttributeConfig(num_bits=bits, unsigned=unsigned))
                    quantizer.amax = amax
                    return {"export_amax": quantizer.export_amax()}

                family.case("export_amax", {"x": torch.zeros(2), "amax": amax}, compute,
                            {"num_bits": list(bits) if isinstance(bits, tuple) else bits, "unsigned": unsigned})


def make(family):
    runs(family)
    refusals(family)
    exported(family)
