"""Tensors of torch by the C exchange table: owners, lifetimes, and tensors that do not fit."""
import copy
import gc
import os
import sys
import threading

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")

import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402

quant = fq.modelopt.fake_tensor_quant


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_lives_as_long_as_its_readers():
    x = torch.full((1 << 16,), 3.0)
    tensor = fq.Tensor.from_array(x)
    x.data = torch.zeros(1)
    del x
    gc.collect()
    torch.full((1 << 16,), 7.0)
    assert (tensor.numpy() == 3).all()
    y = quant(torch.ones(1 << 16), 1.0)
    gc.collect()
    y.add_(1)  # ours to write
    assert type(y) is torch.Tensor and (y == 2).all() and not y.requires_grad


@pytest.mark.parametrize("x, words", [
    (torch.ones(4, 4).T[::2], "not contiguous"),
    (torch.ones(4, dtype=torch.complex64), "complex64"),
    (torch.ones(4, dtype=torch.bool), "torch.bool"),
    (torch.ones(4, device="meta"), "x"),
    (torch.ones(4).to_sparse(), "x"),
    (torch.ones(4).requires_grad_(), "requires a gradient"),
    (torch.nn.Parameter(torch.ones(4)), "requires a gradient"),
    (torch.ones(4, dtype=torch.int32), "i32: use f32"),
])
def test_rejects_unsupported_input_by_name(x, words):
    with pytest.raises(fq.ArgumentError, match="fake_tensor_quant") as caught:
        quant(x, 1.0)
    assert words in str(caught.value)


def test_supports_shapes_and_kinds():
    x = torch.randn(2, 3, 4, 5)
    y = quant(x, 2.0)
    assert torch.equal(quant(x.contiguous(memory_format=torch.channels_last), 2.0), y)
    assert torch.equal(quant(torch.nn.Parameter(x, requires_grad=False), torch.tensor(2.0)), y)
    assert quant(torch.empty(0, 3), 1.0).shape == (0, 3) and quant(torch.tensor(0.5), 1.0).shape == ()
    assert torch.equal(quant(x[1:], 2.0), y[1:]) and torch.equal(quant(x.view(-1)[7:], 2.0), y.view(-1)[7:])
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert quant(x.to(dtype), 2.0).dtype == dtype


def test_matches_the_function_without_gradients():
    x, amax = torch.randn(8, 8), torch.tensor(1.5, requires_grad=True)
    y = fqt.fake_tensor_quant(x, amax)
    assert torch.equal(y, quant(x, 1.5)) and not y.requires_grad
    with torch.no_grad():
        assert torch.equal(fqt.fake_tensor_quant(x.clone().requires_grad_(), amax), y)
    assert torch.equal(fqt.fake_tensor_quant(x.T, amax), y.T) and fqt.fake_tensor_quant(x.requires_grad_(), amax).requires_grad
    assert torch.equal(fqt.scaled_e4m3(x.detach(), amax), fq.modelopt.scaled_e4m3(x.detach(), 1.5))


def test_rejects_a_second_gradient():
    x = torch.randn(8, requires_grad=True)
    (gradient,) = torch.autograd.grad(fqt.fake_tensor_quant(x, 1.0).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        gradient.sum().backward()


def test_ten_thousand_calls_do_not_leak():
    x, amax = torch.ones(4096), torch.tensor(1.0)
    recorded = x.clone().requires_grad_()

    def call():
        quant(x, amax)
        with pytest.raises(fq.ArgumentError):
            quant(x[::2], amax)
    for _ in range(500):
        call()
        fqt.fake_tensor_quant(recorded, amax).sum().backward()
    before = resident()
    for _ in range(10_000):
        call()
    for _ in range(1000):
        fqt.fake_tensor_quant(recorded, amax).sum().backward()
    assert resident() - before < 8 << 20  # 10,000 leaked tensors would be 160 MB


def test_supports_threads():
    x, wrong = torch.randn(64, 100), []
    expected = quant(x, 2.0)

    def work():
        for _ in range(50):
            if not torch.equal(quant(copy.copy(x), torch.tensor(2.0)), expected):
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong
