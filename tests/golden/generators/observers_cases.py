"""PyTorch's observers and torchao's min/max observer."""

import torch
from torch.ao.quantization import observer
from torchao.quantization import granularity
from torchao.quantization.observer import AffineQuantizedMinMaxObserver
from torchao.quantization.quant_primitives import MappingType

from .calibrators_cases import named
from .family import Value

SOURCE = "torch 2.15.0 and torchao 0.18.0, CPU"
SHAPES = [(3, 17), (8, 48), (2, 3, 4, 5), (5, 4, 5), (1, 7, 2), (6, 2, 9)]
SIGN = {"compare": "abs:0", "reason": "the sign of a zero extreme depends on the order"}
SEARCH = "fp32 histogram search"


def make_batches(family, shape):
    shift = family.pick([0, 0, 1.5, -2.0])
    return [family.values(shape, scale=family.pick([0.1, 1.0, 4.0])) + shift for _ in range(family.whole(1, 4))]


def extremes(observed):
    return {"min_val": Value(observed.min_val, **SIGN), "max_val": Value(observed.max_val, **SIGN)}


def classic(family):
    kinds = {"minmax_observer": observer.MinMaxObserver, "moving_average_minmax_observer": observer.MovingAverageMinMaxObserver,
             "per_channel_minmax_observer": observer.PerChannelMinMaxObserver,
             "moving_average_per_channel_minmax_observer": observer.MovingAveragePerChannelMinMaxObserver}
    for function, kind in kinds.items():
        for _ in range(6):
            shape = family.pick(SHAPES)
            batches = make_batches(family, shape)
            dtype, symmetric = family.pick(["qint8", "quint8"]), family.flag()
            channels = "channel" in function
            scheme = f"per_{'channel' if channels else 'tensor'}_{'symmetric' if symmetric else 'affine'}"
            options = {}
            if channels:
                options["ch_axis"] = family.whole(0, len(shape) - 1)
            if "moving" in function:
                options["averaging_constant"] = family.pick([0.01, 0.1, 0.5])
            if family.flag(0.4):
                options["quant_min"], options["quant_max"] = (0, 127) if dtype == "quint8" else (-64, 63)

            def compute():
                observed = kind(dtype=getattr(torch, dtype), qscheme=getattr(torch, scheme), **options)
                for batch in batches:
                    observed(batch)
                scale, zero = observed.calculate_qparams()
                return {"scale": scale, "zero_point": zero, **extremes(observed)}

            family.case(function, named(batches), compute,
                        {"batches": len(batches), "dtype": dtype, "qscheme": scheme, **options})


def histogram(family):
    for _ in range(3):
        batches = [family.values((500,), scale=family.pick([1.0, 2.0]), specials=False) for _ in range(family.whole(1, 3))]
        dtype = family.pick(["qint8", "quint8"])

        def compute():
            observed = observer.HistogramObserver(bins=256, dtype=getattr(torch, dtype), qscheme=torch.per_tensor_affine)
            for batch in batches:
                observed(batch)
            scale, zero = observed.calculate_qparams()
            return {"scale": Value(scale, "rel:1e-4", SEARCH), "zero_point": zero}

        family.case("histogram_observer", named(batches), compute,
                    {"batches": len(batches), "bins": 256, "dtype": dtype, "qscheme": "per_tensor_affine"})


def affine(family):
    for _ in range(10):
        shape = family.pick(SHAPES)
        batches = make_batches(family, shape)
        axis = family.pick([None, 0, len(shape) - 1])
        mapping, name = family.pick(["SYMMETRIC", "ASYMMETRIC"]), family.pick(["int8", "uint8", "int4", "uint4"])
        eps = family.pick([1.1920928955078125e-07, 1e-6])
        grain = granularity.PerTensor() if axis is None else granularity.PerAxis(axis)

        def compute():
            observed = AffineQuantizedMinMaxObserver(getattr(MappingType, mapping), getattr(torch, name), grain, eps=eps,
                                                    scale_dtype=torch.float32, zero_point_dtype=torch.int32)
            for batch in batches:
                observed(batch)
            scale, zero = observed.calculate_qparams()
            return {"scale": scale, "zero_point": zero, **extremes(observed)}

        family.case("affine_quantized_minmax_observer", named(batches), compute,
                    {"batches": len(batches), "mapping_type": mapping, "target_dtype": name, "eps": eps, "axis": axis})


def make(family):
    classic(family)
    histogram(family)
    affine(family)
