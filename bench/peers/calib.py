"""Peers of the rows calib.*: collecting a histogram, and the searches for a range in one."""

import time

import numpy as np
import torch
from peer import Side, read_array, row

BINS, FIRST = 2048, 128


@row("calib.histogram_collect/modelopt")
def modelopt_collect(_name, settings):
    from modelopt.torch.quantization.calib.histogram import HistogramCalibrator

    torch.set_num_threads(settings.threads)
    x = read_array(settings.exchange, "x")

    def run():
        calibrator = HistogramCalibrator(num_bins=BINS)
        calibrator.collect(x)
        return calibrator._calib_hist

    return Side(run, lambda: {"counts": run()})


@row("calib.histogram_collect/torch_histc")
def torch_histc(_name, settings):
    """Counting alone: magnitudes and their largest are given."""
    torch.set_num_threads(settings.threads)
    magnitudes = read_array(settings.exchange, "x").abs()
    largest = magnitudes.max().item()

    def run():
        return torch.histc(magnitudes, BINS, 0, largest)

    return Side(run, lambda: {"counts": run()})


@row("calib.entropy_2048/modelopt", "calib.entropy_8192/modelopt")
def modelopt_entropy(_name, settings):
    """Seconds a call: timed here, at most three times."""
    from modelopt.torch.quantization.calib.histogram import _compute_amax_entropy

    counts = read_array(settings.exchange, "counts", torch.int64).numpy()
    edges = read_array(settings.exchange, "edges").numpy()
    found = {}

    def value():
        if len(found.setdefault("ms", [])) < 3:
            start = time.process_time()
            found["amax"] = _compute_amax_entropy(counts.astype(np.int32), edges, 8, False, start_bin=FIRST)
            found["ms"].append((time.process_time() - start) * 1e3)
        return min(found["ms"])

    value()
    return Side(None, lambda: {"amax": found["amax"]}, value=value)


@row("calib.mse_2048/numpy")
def numpy_mse(_name, settings):
    """ModelOpt's search with its bug fixed: ModelOpt passes the number of bits as a bias."""
    counts = read_array(settings.exchange, "counts", torch.int64).numpy()
    edges = read_array(settings.exchange, "edges").numpy()
    centres = (edges[1:] + edges[:-1]) * np.float32(0.5)

    def run():
        errors = []
        for amax in centres[FIRST:]:
            scale = np.float32(127) / amax
            error = np.clip(np.rint(centres * scale), -127, 127) / scale - centres.astype(np.float64)
            errors.append(np.mean(error * error * counts))
        return centres[FIRST + np.argmin(errors)]

    return Side(run, lambda: {"amax": torch.tensor(run())})


@row("calib.weight_mse_per_channel/modelopt")
def weight_mse(_name, settings):
    """MseCalibrator as mse_calibrate makes it for an int8 weight whose channels have been calibrated by max."""
    from modelopt.torch.quantization.calib.mse import MseCalibrator
    from modelopt.torch.quantization.tensor_quant import fake_tensor_quant

    torch.set_num_threads(settings.threads)
    x = read_array(settings.exchange, "x").reshape(512, -1)

    def quantize(values, amax):
        return fake_tensor_quant(values, amax, None, 8)

    def run():
        calibrator = MseCalibrator(x.abs().amax(1, keepdim=True), axis=0, quant_func=quantize)
        calibrator.collect(x)
        return calibrator.compute_amax()

    return Side(run, lambda: {"amax": run()})
