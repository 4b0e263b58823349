"""Branches that start at zero, and learned ranges over split batches, in fakequant.torch."""
import copy
import os
import sys
import warnings

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

torch.manual_seed(3)
X, Y = torch.randn(64, 16), torch.randint(0, 4, (64,))
STATIC = ["int8", "w4a8", "w4a4", "w3a3", "w2a2", "fp8"]


class LowRank(nn.Module):
    """Linear with a branch whose last weight is 0."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, 4, bias=False), nn.Linear(4, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * 2

    def clear(self):
        nn.init.zeros_(self.up.weight)


class Scaled(nn.Module):
    """x + beta * f(x) with beta = 0."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base, self.f, self.beta = nn.Linear(inputs, outputs), nn.Linear(outputs, outputs), nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        x = self.base(x)
        return x + self.beta * torch.tanh(self.f(x))

    def clear(self):
        nn.init.zeros_(self.beta)


class OneChannel(nn.Module):
    """A layer with one output channel of zeros."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.f = nn.Linear(inputs, outputs)
        self.clear()

    def forward(self, x):
        return torch.relu(self.f(x) + 0.5)

    def clear(self):
        with torch.no_grad():
            self.f.weight[1] = 0


def quantized(kind, preset):
    torch.manual_seed(0)
    net = nn.Sequential(kind(16, 32), nn.Tanh(), kind(32, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        return fqt.calibrate(fqt.quantize(net, preset, X), [X]).train()


@pytest.mark.parametrize("preset", STATIC)
@pytest.mark.parametrize("kind", [LowRank, Scaled, OneChannel])
def test_trains_branches_that_start_at_zero(kind, preset):
    model = quantized(kind, preset)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    for _ in range(4):
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        optimizer.zero_grad()
    for codes in model.lowered_modules().values():
        ranges = {row["name"]: row["amax"] for row in codes.network.quantizers() if row["enabled"] and row["amax"]}
        assert all(most > 0 for _, most in ranges.values()), ranges
    again = copy.deepcopy(model).eval()
    y = model.eval()(X)
    assert torch.equal(again(X), y)
    for module in model.modules():
        if isinstance(module, kind):
            module.clear()
    assert not torch.equal(model(X), y)


def test_evaluation_keeps_ranges():
    model = quantized(LowRank, "int8")
    codes = model.codes_0
    before = {row["name"]: row["amax"] for row in codes.network.quantizers()}
    model.eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, LowRank):
                module.up.weight.fill_(0.1)
    model(X).sum().backward()
    assert before == {row["name"]: row["amax"] for row in codes.network.quantizers()}


def test_calibration_on_zeros_warns():
    model = fqt.quantize(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), "int8", torch.zeros(4, 8))
    with pytest.warns(fq.FakequantWarning, match="0.input_quantizer' saw only zeros"):
        fqt.calibrate(model, [torch.zeros(4, 8)])
    x = torch.randn(4, 8)
    assert model.eval()(x).std() > 0


@pytest.mark.parametrize("preset", ["w4a8", "w4a4", "w3a3", "w2a2"])
def test_chunks_match_the_gradients_of_one_batch(preset):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    model = fqt.calibrate(fqt.quantize(net, preset, X), [X]).train()

    def gradients(chunks):
        model.zero_grad()
        for x, y in zip(X.chunk(chunks), Y.chunk(chunks)):
            (F.cross_entropy(model(x), y) / chunks).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    one, four = gradients(1), gradients(4)
    assert any("amax" in name for name in one)
    for name, gradient in one.items():
        assert (gradient - four[name]).abs().max() <= 1e-5 * gradient.abs().max().clamp(min=1e-3), name


def test_rate_depends_on_the_number_of_steps():
    def rate(**options):
        return fqt.parameter_groups(quantized(OneChannel, "w4a4"), **options)[0]["lr"]

    assert rate(steps=300) == rate(steps=10_000) == 0.004 and rate(steps=100) == pytest.approx(0.004 / 9)
    assert rate(steps=1) == 1e-4 and rate() == 0.001 and rate(lr=0.5, steps=1) == 0.5
    assert fqt.parameter_groups(quantized(OneChannel, "int8"), steps=1)[0]["lr"] == 1e-4
    with pytest.raises(fq.ArgumentError, match="steps is 0"):
        rate(steps=0)


class Dead(nn.Module):
    """A ReLU that is always 0, a layer of zero weights, and a residual branch that adds 0."""

    def __init__(self):
        super().__init__()
        self.a, self.dead, self.b, self.c = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        with torch.no_grad():
            self.dead.bias.fill_(-100)
            self.b.weight.zero_()
            self.b.bias.zero_()

    def forward(self, x):
        x = torch.relu(self.a(x))
        return self.c(x + self.b(torch.relu(self.dead(x))))


@pytest.mark.parametrize("config", ["int8", "w4a4", "fp8", {"preset": "int8", "target": "tensorrt"}])
def test_exports_quantizers_without_a_range(config, tmp_path):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        model = fqt.calibrate(fqt.quantize(Dead(), config, X), [X]).eval()
    path = str(tmp_path / "dead.onnx")
    fqt.export(model, path)
    pytest.importorskip("onnxruntime")
    report = fqt.verify(model, path, X)
    assert report["flips"] == 0, report
