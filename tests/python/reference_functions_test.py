"""Functions of the references from Python: every name of docs/numerics.md, kinds of arrays, signatures, bits."""
import inspect
import os
import re
import sys

import fakequant as fq
import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 64)).astype(np.float32)
MODULES = {"ModelOpt": "modelopt", "ModelOpt, or our own": "modelopt", "pytorch-quantization": "pytorch_quantization",
           "torchao": "torchao", "PyTorch": "torch_ref", "TensorRT": "tensorrt"}
#: Names in C++ or in golden files, and the name in Python.
ELSEWHERE = {"TensorQuantizer": "TensorQuantizer", "tensor_quantizer": "TensorQuantizer", "quantizer_attribute_config": "QuantDescriptor",
             "fake_quantize_learnable_per_tensor_affine": "torch_ref.fake_quantize_learnable",
             "fake_quantize_learnable_per_channel_affine": "torch_ref.fake_quantize_learnable",
             "max_calibrator": "make_calibrator", "MaxCalibrator": "make_calibrator", "HistogramCalibrator": "make_calibrator",
             "histogram_collect": "make_calibrator", "histogram_compute_amax": "Calibrator.compute_amax",
             "amax_by_percentile": "Calibrator.compute_amax", "amax_by_entropy": "Calibrator.compute_amax",
             "amax_by_mse": "Calibrator.compute_amax", "export_amax": "TensorQuantizer.amax",
             "ort_dynamic_quantize_matmul": "onnx.dynamic_quantize_matmul", "ort_gqa_int8_kv_codes": "onnx.gqa_int8_kv",
             "ort_matmulnbits_level4": "onnx.matmulnbits_level4"}


def functions_of_documents():
    with open(os.path.join(os.environ["FAKEQUANT_SOURCE_DIR"], "docs", "numerics.md"), encoding="utf-8") as file:
        table = file.read().split("## Every function")[1].split("\n## ")[0]
    for line in table.splitlines():
        cells = line.split(" | ")
        if line.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                yield name, cells[1].strip()


def run_function(path):
    value = fq
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


@pytest.mark.parametrize("name, reference", list(functions_of_documents()))
def test_python_has_every_documented_function(name, reference):
    if name in ELSEWHERE:
        assert run_function(ELSEWHERE[name]) is not None
    elif not name.lower().endswith("observer"):  # C++ only, as docs/coming_from.md says
        assert run_function(name.replace("::", ".") if "::" in name else f"{MODULES[reference]}.{name}") is not None


def test_ggml_blocks_round_trip():
    codes, scale = fq.ggml.quantize_q8_0(X)
    d = np.abs(X.reshape(8, 2, 32)).max(2) / np.float32(127)
    assert codes.dtype == np.int8 and scale.dtype == np.float16 and np.array_equal(scale, d.astype(np.float16))
    for kind, (codes, scale), width in (("q8_0", (codes, scale), 34), ("q4_0", fq.ggml.quantize_q4_0(X), 18)):
        packed = getattr(fq.ggml, f"pack_{kind}")(codes, scale)
        assert packed.shape == (8, 2 * width) and packed.dtype == np.uint8
        for one, other in zip(getattr(fq.ggml, f"unpack_{kind}")(packed), (codes, scale)):
            assert np.array_equal(one, other)
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    weight = fq.ggml.quantize_q4_0(X)
    want = x @ (weight[0].reshape(8, 2, 32) * weight[1].astype(np.float32)[..., None]).reshape(8, 64).T
    for buffer in ("plain", "repack"):
        assert np.abs(fq.ggml.matmul_q4_0_q8_0(x, *weight, buffer=buffer) - want).max() < 0.2
    assert np.abs(fq.ggml.matmul_q8_0(x, *fq.ggml.quantize_q8_0(X)) - x @ X.T).max() < 0.5
    activation = fq.ggml.quantize_q8_0_activation(X)
    assert activation[0].dtype == np.int8 and np.array_equal(activation[1], d.astype(np.float16))
    with pytest.raises(fq.ArgumentError, match="pack_q4_0"):
        fq.ggml.pack_q4_0(np.full((1, 32), 8, np.int8), np.ones((1, 1), np.float16))


def test_supports_xnnpack_and_onnx_layers():
    x, codes = RNG.standard_normal((3, 64)).astype(np.float32), RNG.integers(-127, 128, (8, 64)).astype(np.int8)
    scale, bias = np.full(8, 0.01, np.float32), RNG.standard_normal(8).astype(np.float32)
    want = x @ (codes * scale[:, None]).T + bias
    assert np.abs(fq.xnnpack.linear_qd8_qc8w(x, codes, scale, bias) - want).max() < 0.5
    small = np.clip(codes, -8, 7)
    for y in (fq.xnnpack.linear_qd8_qc4w(x, small, scale, bias),
              fq.xnnpack.linear_qd8_qb4w(x, small, np.full((8, 2), 0.01, np.float32), 32, bias)):
        assert np.abs(y - (x @ (small * scale[:, None]).T + bias)).max() < 0.1
    out, y = fq.xnnpack.linear_qs8(x, 0.03, 0, codes, scale, 0.5, 1, bias)
    assert out.dtype == np.int8 and np.array_equal(y, (out.astype(np.float32) - 1) * np.float32(0.5)) and np.abs(y - want).max() < 1.5
    q, s, z = fq.onnx.dynamic_quantize_linear(x)
    assert q.dtype == np.uint8 and s.shape == () and np.abs((q.astype(np.float32) - z) * s - x).max() <= s
    assert np.abs(fq.onnx.dynamic_quantize_matmul(x, codes.T.copy(), np.float32(0.01).reshape(1), bias) - want).max() < 0.5
    blocks = np.full((8, 2), 0.01, np.float32)
    assert np.abs(fq.onnx.matmulnbits_level4(x, small, blocks, 32) - x @ (small * scale[:, None]).T).max() < 0.1
    q, k, v = (RNG.standard_normal((1, 5, 16)).astype(np.float32) for _ in range(3))
    k_codes, v_codes, y = fq.onnx.gqa_int8_kv(q, k, v, 0.05, 0.05, heads=2, kv_heads=2)
    assert k_codes.shape == v_codes.shape == (1, 2, 5, 8) and k_codes.dtype == np.int8 and y.shape == (1, 5, 16)


@pytest.mark.parametrize("amax", [np.float64(2.5), np.abs(X).max(1, keepdims=True).astype(np.float64),
                                  np.abs(X).max(1, keepdims=True), np.array([[0.0]] + [[1.5]] * 7)])
@pytest.mark.parametrize("unsigned", [False, True])
def test_pytorch_quantization_accepts_doubles(amax, unsigned):
    x = X.astype(np.float64)
    x = np.abs(x) if unsigned else x
    bound = 255.0 if unsigned else 127.0
    ranges = np.asarray(amax) if isinstance(amax, np.ndarray) else np.float32(amax)
    scale = (ranges.dtype.type(bound) / np.where(ranges <= 2.0**-24, 1, ranges)).astype(np.float64)
    codes = np.clip(np.rint(x * np.where(ranges <= 2.0**-24, 0, scale)), 0 if unsigned else -127, bound)
    divisor = np.where(ranges <= 2.0**-24, 1, scale)
    given = float(amax) if not isinstance(amax, np.ndarray) else amax
    own, s = fq.pytorch_quantization.tensor_quant(x, given, unsigned=unsigned)
    assert own.dtype == s.dtype == np.float64 and np.array_equal(own, codes) and np.array_equal(s, divisor)
    y, gradient = fq.pytorch_quantization.legacy_fake_tensor_quant(x, given, unsigned=unsigned, grad_y=np.ones_like(x))
    assert np.array_equal(y, codes / divisor) and np.array_equal(gradient, (np.abs(x) <= ranges).astype(np.float64))
    with pytest.raises(fq.ArgumentError, match="unsigned"):
        fq.pytorch_quantization.tensor_quant(-np.ones((2, 2)), 1.0, unsigned=True)


def test_accepts_a_number_as_bias():
    for name in ("fake_tensor_quant", "scaled_e4m3"):
        f = getattr(fq.modelopt, name)
        assert np.array_equal(f(X, 2.0, 0.25), f(X, 2.0, np.float32(0.25).reshape(())))


def test_torchao_mask_is_boolean():
    arguments = ((8, 64), np.float32([0.01]), np.int32([0]), "int8", -128, 127)
    x = X.copy()
    x[1, 3] = np.nan  # the only mask of 0: torchao compares codes after the clamp
    y, mask = fq.torchao.fake_quantize_affine_cachemask(x, *arguments)
    assert mask.dtype == bool and np.array_equal(mask, ~np.isnan(x))
    own = fq.Tensor.from_array(X)
    assert isinstance(fq.torchao.fake_quantize_affine_cachemask(own, *arguments)[1], fq.Tensor)
    torch = pytest.importorskip("torch")
    theirs = fq.torchao.fake_quantize_affine_cachemask(torch.from_numpy(x), *arguments[:3], torch.int8, -128, 127)
    assert theirs[1].dtype is torch.bool and np.array_equal(theirs[1].numpy(), mask)
    assert np.array_equal(theirs[0].numpy(), y, equal_nan=True)


def test_float8_round_trips_with_torch():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        codes = torch.from_numpy(X).to(dtype)
        assert torch.equal(fq.onnx.dequantize_linear(codes, 0.5), codes.float() * 0.5)
        x, scale = torch.from_numpy(300 * X), torch.rand(8, 1) + 0.5
        own = fq.torchao.quantize_affine_float8(x, scale, dtype)
        bound = torch.finfo(dtype).max
        assert own.dtype is dtype and torch.equal(own.float(), (x / scale).clamp(-bound, bound).to(dtype).float())
        assert torch.equal(fq.torchao.dequantize_affine_float8(own, scale), own.float() * scale)
        dy = torch.randn(8, 64)
        leaf = x.clone().requires_grad_()
        (leaf / scale).clamp(-bound, bound).backward(dy)
        assert torch.equal(fq.torchao.quantize_affine_float8(x, scale, dtype, grad_y=dy)[1], leaf.grad)
        _, backward = fq.torchao.quantize_affine_float8(x, scale, dtype, grad_y=True)
        assert torch.equal(backward(dy), leaf.grad)


# fakequant.torch under ModelOpt's names.

#: Parameters of ModelOpt 0.47, in their order.
SIGNATURES = {
    "fake_tensor_quant": "inputs amax bias num_bits unsigned narrow_range trt_high_precision_dtype pass_through_bwd block_size axis",
    "scaled_e4m3": "inputs amax bias E M trt_high_precision_dtype pass_through_bwd",
    "dynamic_block_quant": "inputs block_size amax bias num_bits scale_bits trt_high_precision_dtype onnx_quantizer_type "
                           "pass_through_bwd",
    "int_cast_ste": "x num_bits unsigned narrow_range",
    "MaxCalibrator": "num_bits axis unsigned track_amax",
    "HistogramCalibrator": "num_bits axis unsigned num_bins grow_method skip_zeros torch_hist"}


@pytest.fixture
def fqt():
    pytest.importorskip("torch")
    import fakequant.torch
    return fakequant.torch


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_match_modelopt(fqt, name):
    assert list(inspect.signature(getattr(fqt, name)).parameters) == SIGNATURES[name].split()


def test_functions_accept_positional_arguments(fqt):
    import torch
    x = torch.from_numpy(X).requires_grad_()
    for y in (fqt.fake_tensor_quant(x, 2.0, None, 8, False, True, None, True), fqt.scaled_e4m3(x, 2.0, 0.5, 4, 3, "Half", True),
              fqt.dynamic_block_quant(x, 16, torch.tensor(4.0), None, (2, 1), (4, 3), None, "dynamic", True)):
        x.grad = None
        y.sum().backward()
        assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(fqt.dynamic_block_quant(x, 16, torch.tensor([1.0, 4.0]), None, (2, 1), (4, 3)),
                       torch.from_numpy(fq.modelopt.dynamic_block_quantize(X, (2, 1), (4, 3), 16, 4.0)))
    with pytest.raises(fq.ArgumentError, match="bias"):
        fqt.dynamic_block_quant(x, 16, None, 1.0, (4, 3), (8, 0))


def modelopts_histogram(batches, bins=2048):
    """Returns the histogram that ModelOpt's HistogramCalibrator collects with torch_hist."""
    import torch
    counts = edges = None
    for x in batches:
        x = x.abs()
        largest = x.max()
        if counts is None:
            counts, edges = torch.histc(x, bins=bins, min=0, max=largest), torch.linspace(0, largest, bins + 1)
            continue
        if largest > edges[-1]:
            width = edges[1] - edges[0]
            bins = int((largest / width).ceil().item())
            edges = torch.arange(0, largest + width, width)
        added = torch.histc(x, bins=bins, min=0, max=edges[-1])
        added[:counts.numel()] += counts
        counts = added
    return counts.int().numpy(), edges.numpy()


def test_percentiles_of_several_batches_match_modelopt_bitwise(fqt):
    import torch
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # torch.arange rounds by its threads where it has more than 32768 values
    try:
        for seed in range(40):
            generator = torch.Generator().manual_seed(seed)
            batches = [torch.randn(3000, generator=generator) * (1 + 2 * k) for k in range(3)]
            own = fqt.HistogramCalibrator()
            for batch in batches:
                own.collect(batch)
            counts, edges = modelopts_histogram(batches)
            for percentile in (90, 99, 99.9, 99.99):
                want = edges[np.searchsorted(np.cumsum(counts / counts.sum()), percentile / 100)]
                assert float(own.compute_amax("percentile", percentile=percentile)) == float(want), (seed, percentile)
    finally:
        torch.set_num_threads(threads)


def test_calibrators_accept_integers_and_keywords(fqt):
    import torch
    rows = torch.arange(100).reshape(10, 10)
    calibrator = fqt.MaxCalibrator(8, 0, track_amax=True)
    calibrator.collect(rows)
    calibrator.collect(-2 * rows)
    assert torch.equal(calibrator.compute_amax(), 2 * rows[:, 9:]) and len(calibrator.amaxs) == 2
    assert np.array_equal(calibrator.amaxs[0], rows[:, 9:].numpy())
    with pytest.raises(fq.ArgumentError, match="track_amax=True"):
        fqt.MaxCalibrator().amaxs
    with pytest.raises(fq.ArgumentError, match="bool"):
        calibrator.collect(rows > 3)
    for torch_hist in (True, False):
        histogram = fqt.HistogramCalibrator(8, None, False, 100, None, False, torch_hist)
        histogram.collect(torch.arange(1, 101))
        first = 1 if not torch_hist else 0
        want = np.linspace(first, 100, 101, dtype=np.float32)[np.searchsorted(np.arange(1, 101) / 100, 0.5)]
        assert abs(float(histogram.compute_amax("percentile", percentile=50)) - want) <= 1
    with pytest.raises(fq.ArgumentError, match="grow_method is 'append'"):
        fqt.HistogramCalibrator(grow_method="append")


def test_pre_quant_scale_is_applied_and_unknown_attributes_raise(fqt):
    import torch
    x = torch.from_numpy(X)
    quantizer = fqt.TensorQuantizer({"axis": 1}, amax=torch.full((1, 64), 3.0))
    plain = quantizer(2.0 * x)
    assert quantizer.pre_quant_scale is None
    quantizer.pre_quant_scale = 2.0
    assert torch.equal(quantizer(x), plain) and "pre_quant_scale=2" in repr(quantizer)
    again = fqt.TensorQuantizer({"axis": 1})
    again.load_state_dict(quantizer.state_dict())
    assert torch.equal(again(x), plain)
    quantizer.disable()
    assert torch.equal(quantizer(x), 2.0 * x)
    calibrated = fqt.TensorQuantizer(if_quant=False, if_calib=True)
    calibrated.pre_quant_scale = torch.full((64,), 0.5)
    calibrated(x)
    calibrated.load_calib_amax()
    assert float(calibrated.amax) == float((0.5 * x).abs().max())
    for bad in (None, float("inf"), torch.ones(3)):
        with pytest.raises(fq.ArgumentError, match="pre_quant_scale"):
            calibrated.pre_quant_scale = bad
    for name in ("num_bitz", "block_sizes", "pre_quant_scales", "rotate"):
        with pytest.raises(AttributeError, match=name):
            setattr(quantizer, name, 3)
    quantizer.num_bits = 4
    assert not torch.equal(quantizer.train()(x), plain)
