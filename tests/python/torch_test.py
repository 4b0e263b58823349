"""fakequant.torch in a training script. FAKEQUANT_TORCH_SITE names a folder of packages that has torch, for the same Python."""
import copy
import io
import os
import pickle
import sys

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")

import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402


def expected(x, amax, bits=8):
    """ModelOpt's formula, in torch."""
    high = torch.tensor(2.0 ** (bits - 1) - 1)  # a tensor: a number would be multiplied by the inverse of amax
    scale = high / amax
    return torch.clamp((x * scale).round(), -high, high) / scale


def test_matches_bits_and_gradient():
    torch.manual_seed(0)
    x = torch.randn(64, 33, requires_grad=True)
    amax = torch.tensor(1.5)
    y = fqt.fake_tensor_quant(x, amax)
    assert torch.equal(y, expected(x.detach(), amax))
    seed = torch.randn(64, 33)
    y.backward(seed)
    assert torch.equal(x.grad, torch.where(x.detach().abs() <= amax, seed, 0.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_supports_types_and_layouts(dtype):
    x = torch.randn(2, 3, 4, 5).to(dtype)
    y = fqt.fake_tensor_quant(x, 2.0)
    assert y.dtype == dtype and y.shape == x.shape
    last = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    z = fqt.fake_tensor_quant(last, 2.0)
    assert torch.equal(z, y)
    z.float().sum().backward()
    assert torch.equal(last.grad, (x.abs() <= 2).to(dtype))
    assert torch.equal(fqt.fake_tensor_quant(x.transpose(1, 2), 2.0), y.transpose(1, 2))


def test_supports_scaled_e4m3():
    x = torch.randn(1000)
    assert torch.equal(fqt.scaled_e4m3(x), x.to(torch.float8_e4m3fn).float())


def test_does_not_copy():
    x = torch.ones(4)
    tensor = fq.Tensor.from_array(x)
    x[0] = 9
    assert tensor.numpy()[0] == 9
    assert isinstance(fq.modelopt.fake_tensor_quant(x, 1.0), torch.Tensor)
    with pytest.raises(fq.ArgumentError, match="x requires a gradient"):
        fq.modelopt.fake_tensor_quant(x.requires_grad_(), 1.0)


def test_quantizer_supports_calibration_saving_and_copying():
    x = torch.randn(100, 8)
    q = fqt.TensorQuantizer({"num_bits": 8, "axis": -1, "narrow_range": True}, if_quant=False, if_calib=True)
    assert torch.equal(q(x), x)
    q.load_calib_amax()
    assert torch.equal(q.amax.flatten(), x.abs().amax(0))
    q.disable_calib()
    q.enable_quant()
    y = q(x)
    assert torch.equal(y, expected(x, q.amax))
    fresh = fqt.TensorQuantizer({"axis": -1, "narrow_range": True})
    fresh.load_state_dict(q.state_dict())
    for other in (fresh, copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert torch.equal(other(x), y)
    buffer = io.BytesIO()
    torch.save(q.state_dict(), buffer)
    q.disable()
    assert torch.equal(q(x), x)


def test_supports_histograms_and_rejects_invalid_input():
    calibrator = fqt.HistogramCalibrator()
    assert calibrator.compute_amax("entropy") is None
    calibrator.collect(torch.randn(10000))
    for method in ("percentile", "entropy", "mse"):
        assert 0 < calibrator.compute_amax(method) < 6
    with pytest.raises(fq.ArgumentError, match="'num_bitz' is not a field"):
        fqt.TensorQuantizer({"num_bitz": 8})
    with pytest.raises(fq.ArgumentError, match="no calibration data"):
        fqt.TensorQuantizer().load_calib_amax()
    with pytest.raises(fq.ArgumentError, match="negative"):
        fqt.TensorQuantizer(amax=-1.0)


@pytest.mark.parametrize("x, words", [
    (np.zeros(3, np.float32), "inputs is a ndarray: use a tensor of torch"), (None, "inputs is a NoneType"), ([1.0], "inputs is a list"),
    (torch.eye(3).to_sparse(), "sparse_coo: use a dense"), (torch.zeros(3, device="meta"), "on meta: CPU tensors only"), (torch.zeros(3, dtype=torch.int32), "i32|int32"),
    (torch.zeros(3, dtype=torch.complex64), "complex64"),
])
@pytest.mark.parametrize("call", [lambda x: fqt.fake_tensor_quant(x, 2.0), fqt.scaled_e4m3, lambda x: fqt.int_cast_ste(x, 8),
                                  lambda x: fqt.legacy_fake_tensor_quant(x, 2.0), fqt.TensorQuantizer(amax=2.0)])
def test_rejects_other_tensors(call, x, words):
    with pytest.raises(fq.ArgumentError, match=words):
        call(x)


def test_backward_runs_twice():
    """It keeps bits, not the input, which may be written to."""
    x, amax, dy = torch.randn(1000), torch.tensor(1.5), torch.randn(1000)
    leaf = x.clone().requires_grad_()
    y = fqt.fake_tensor_quant(leaf * 1, amax)
    wanted = torch.where(x.abs() <= 1.5, dy, 0)
    for _ in range(2):
        leaf.grad = None
        y.backward(dy, retain_graph=True)
        assert torch.equal(leaf.grad, wanted)


def test_quantized_network_learns():
    torch.manual_seed(0)

    class Layer(torch.nn.Linear):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.input_quantizer = fqt.TensorQuantizer()
            self.weight_quantizer = fqt.TensorQuantizer({"axis": 0})

        def forward(self, x):
            return torch.nn.functional.linear(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias)
    net = torch.nn.Sequential(Layer(4, 16), torch.nn.ReLU(), Layer(16, 2))
    x = torch.randn(256, 4)
    y = (x[:, 0] > 0).long()  # separable: every rounding learns it
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    losses = []
    for _ in range(100):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], losses


def test_weights_round_trip_with_torch():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model = fq.model("mlp", [4], 2, options={"hidden": [8]})
    names = list(model.state_dict())
    model.load_state_dict(dict(zip(names, net.state_dict().values())))
    x = torch.randn(5, 4)
    y = model.eval() or model(x)
    assert isinstance(y, torch.Tensor) and torch.allclose(y, net(x), atol=1e-6)
    again = {k: torch.from_numpy(v) for k, v in zip(net.state_dict(), model.state_dict().values())}
    net.load_state_dict(again)
    assert np.array_equal(again["0.weight"], net[0].weight.detach())
