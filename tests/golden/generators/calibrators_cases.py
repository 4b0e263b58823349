"""ModelOpt's calibrators on the CPU, and the scales of TensorRT's calibration cache."""

import struct

import numpy as np
import torch
from modelopt.torch.quantization import calib

from .family import FLOATS, SHAPES, Value

SOURCE = "nvidia-modelopt 0.47.0, torch 2.15.0, CPU"
EDGES = {"compare": "rel:3e-7", "reason": "the reference's linspace/arange depend on its SIMD width"}


def named(batches):
    return {f"batch_{i:03}": batch for i, batch in enumerate(batches)}


def largest(family):
    for _ in range(10):
        shape, dtype = family.pick(SHAPES), family.pick(FLOATS)
        batches = [family.values(shape, dtype) for _ in range(family.whole(1, 4))]
        axis = family.pick([None, 0, -1, len(shape) - 1])

        def compute():
            calibrator = calib.MaxCalibrator(axis=axis)
            for batch in batches:
                calibrator.collect(batch)
            return {"amax": calibrator.compute_amax()}

        family.case("max_calibrator", named(batches), compute, {"batches": len(batches), "axis": axis})
    for bad in [float("nan"), float("inf")]:
        x = torch.tensor([1.0, bad])
        family.case("max_calibrator", named([x]), lambda: {"amax": calib.MaxCalibrator().collect(x)}, {"batches": 1}, rejected=True)


def clear_of_edges(x, edges):
    """Without the values so near to an edge that the bin depends on its last bits."""
    nearest = (x.abs().flatten()[:, None] - edges[None, :]).abs().min(1).values
    return x.flatten()[nearest > 1e-5 * edges[-1]]


def collected(family, batches, bins, skip):
    calibrator = calib.HistogramCalibrator(num_bins=bins, skip_zeros=skip)
    for batch in batches:
        calibrator.collect(batch)
    return calibrator


def histograms(family):
    for _ in range(6):
        bins, skip = family.pick([128, 512, 2048]), family.flag()
        raw = [family.values((800,), scale=1.0 + i, specials=False) for i in range(family.whole(1, 3))]
        batches = []
        for x in raw:
            # The largest value decides the edges, so it stays.
            trial = collected(family, [*batches, x], bins, False)
            kept = clear_of_edges(x, trial._calib_bin_edges)
            batches.append(torch.cat([kept, x.abs().max().view(1), torch.zeros(3)]))

        def compute():
            calibrator = collected(family, batches, bins, skip)
            return {"hist": calibrator._calib_hist.to(torch.int64), "bin_edges": Value(calibrator._calib_bin_edges, **EDGES)}

        family.case("histogram_collect", named(batches), compute,
                    {"batches": len(batches), "num_bins": bins, "skip_zeros": skip, "torch_hist": 1, "num_bits": 8, "unsigned": 0})


def values_next_to_edges(family, edges, count, most):
    """Floats on edges and next to them, up to the largest value."""
    at = edges[family.random.integers(len(edges), size=count)].astype(np.float32)
    near = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))])
    return near[(near >= 0) & (near <= most)]


def numpy_histograms(family):
    """Batches whose largest values grow, full of values on the edges that they make."""
    def made(batches, bins, skip):
        calibrator = calib.HistogramCalibrator(num_bins=bins, skip_zeros=skip, torch_hist=False)
        for batch in batches:
            calibrator.collect(batch)
        return calibrator

    for _ in range(12):
        bins, skip, signed = family.pick([16, 64, 128, 511]), family.flag(), family.flag()
        scale, growth = 10.0 ** family.random.uniform(-4, 3), family.pick([1.001, 1.3, 2.0])
        batches = []
        for k in range(family.whole(3, 6)):
            x = np.abs(family.random.standard_normal(300) * scale * growth**k).astype(np.float32)
            trial = made([*batches, torch.from_numpy(x)], bins, skip)
            x = np.concatenate([x, values_next_to_edges(family, np.asarray(trial._calib_bin_edges), 100, x.max()), np.zeros(3, np.float32)])
            if signed:
                x = x * np.where(family.random.random(x.size) < 0.5, np.float32(1), np.float32(-1))
            batches.append(torch.from_numpy(x))

        def compute():
            calibrator = made(batches, bins, skip)
            return {"hist": torch.from_numpy(calibrator._calib_hist), "bin_edges": torch.from_numpy(calibrator._calib_bin_edges)}

        family.case("histogram_collect", named(batches), compute,
                    {"batches": len(batches), "num_bins": bins, "skip_zeros": skip, "torch_hist": 0, "num_bits": 8, "unsigned": 0})
    odd = [[torch.zeros(5)], [torch.zeros(5), torch.tensor([0.5, 3.0])], [torch.full((4,), 3.0)], [torch.full((4,), 3.0), torch.tensor([9.0])]]
    for batches in odd:
        for skip in (False, True):
            calibrator = made(batches, 8, skip)
            results = {"hist": torch.from_numpy(calibrator._calib_hist), "bin_edges": torch.from_numpy(calibrator._calib_bin_edges)}
            family.case("histogram_collect", named(batches), lambda: results,
                        {"batches": len(batches), "num_bins": 8, "skip_zeros": skip, "torch_hist": 0, "num_bits": 8, "unsigned": 0})
    narrow = torch.tensor([1.0, 1.00001])
    family.case("histogram_collect", named([narrow]), lambda: {"hist": made([narrow], 2048, False)._calib_hist},
                {"batches": 1, "num_bins": 2048, "skip_zeros": 0, "torch_hist": 0, "num_bits": 8, "unsigned": 0}, rejected=True)


def ranges(family):
    for _ in range(8):
        bins = family.pick([256, 512])
        x = family.values((3000,), specials=False)
        calibrator = collected(family, [x], bins, False)
        tensors = {"hist": calibrator._calib_hist.to(torch.int64), "bin_edges": calibrator._calib_bin_edges}
        share = family.pick([99.9, 99.99, 99.0, 100.0, 50.0])
        family.case("histogram_compute_amax", tensors, lambda: {"amax": calibrator.compute_amax("percentile", percentile=share)},
                    {"method": "percentile", "percentile": share, "num_bits": 8, "unsigned": 0})
        start, stride = family.pick([128, 130]), family.pick([1, 2, 8])
        family.case("histogram_compute_amax", tensors,
                    lambda: {"amax": calibrator.compute_amax("entropy", stride=stride, start_bin=start)},
                    {"method": "entropy", "stride": stride, "start_bin": start, "num_bits": 8, "unsigned": 0})
    family.case("histogram_compute_amax", tensors, lambda: {"amax": calibrator.compute_amax("percentile", percentile=101)},
                {"method": "percentile", "percentile": 101.0, "num_bits": 8, "unsigned": 0}, rejected=True)


def cache(family):
    for _ in range(4):
        amax = family.scales(())
        scale = amax / torch.tensor(127.0)
        family.case("calibration_cache_scale", {"amax": amax}, lambda: {"scale": scale}, {"hex": struct.pack(">f", float(scale)).hex()},
                    source="formula: big-endian hex of fp32 amax/127")


def make(family):
    largest(family)
    histograms(family)
    ranges(family)
    cache(family)
    numpy_histograms(family)
