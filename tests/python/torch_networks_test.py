"""fakequant.torch.quantize in training scripts. FAKEQUANT_TORCH_SITE names a folder of packages that has torch, for the same Python."""
import copy
import gc
import os
import pickle
import sys
import threading

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Residual(nn.Module):
    """As people write them: functions, methods, a shared input, sizes of tensors."""

    def __init__(self, width=8):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.squeeze, self.gain = nn.Conv2d(width, width, 1), nn.Parameter(torch.full((width, 1, 1), 0.5))
        self.head = nn.Linear(4 * width, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(x)) * torch.sigmoid(self.squeeze(F.adaptive_avg_pool2d(x, 1)))
        x = F.max_pool2d(F.relu(x + self.gain * y), 2)
        a, b = torch.cat([x, x], dim=1).chunk(2, dim=1)
        x = F.adaptive_avg_pool2d(F.dropout(a + b, 0.0, training=self.training), 2)
        return self.head(x.view(x.size(0), -1))


class Block(nn.Module):
    """A block of a transformer with something between that the library has not, which stays with torch."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (t.reshape(n, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(torch.cumsum(y, 1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Attention as a module, which the library has."""

    def __init__(self, width=32):
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(width, 4, batch_first=True), nn.LayerNorm(width)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 9, width))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.head(x[:, 0])


CASES = [(small, (8, 1, 12, 12), 1), (Residual, (6, 3, 8, 8), 1), (Block, (2, 6, 32), 3), (Encoder, (4, 8, 32), 1)]


@pytest.mark.parametrize("make, shape, parts", CASES)
def test_matches_the_model_without_quantizers(make, shape, parts):
    """Values, gradients and running statistics, to the rounding of sums in another order."""
    torch.manual_seed(1)
    model, x = make(), torch.randn(shape)
    twin = copy.deepcopy(model)
    quantized = fqt.quantize(model, "int8", x)
    assert len(quantized.lowered_modules()) == parts
    for part in quantized.lowered_modules().values():
        part.network.disable_quantizer("*")
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    y, wanted = quantized(inputs[0]), twin(inputs[1])
    seed = torch.randn_like(wanted)
    y.backward(seed)
    wanted.backward(seed)
    torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-3, atol=1e-5)
    for (name, own), other in zip(model.named_parameters(), twin.parameters()):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")
    for own, other in zip(model.buffers(), twin.buffers()):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("layer, length", [(nn.ConvTranspose1d, (9,)), (nn.ConvTranspose2d, (5, 5))])
def test_quantizes_transposed_convolutions(layer, length):
    torch.manual_seed(4)
    model, x = nn.Sequential(layer(3, 4, 3, stride=2, padding=1, output_padding=1), nn.ReLU()), torch.randn(2, 3, *length)
    quantized = fqt.calibrate(fqt.quantize(model, "int8", x), [x])
    assert not quantized.floats
    y, wanted = quantized(x), model(x)
    assert y.shape == wanted.shape and 0 < (y - wanted).abs().max() < 0.05 * wanted.max()
    y.sum().backward()
    assert model[0].weight.grad.abs().sum() > 0


def trained(model, x, y, steps=12, rate=1e-2):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def digits():
    torch.manual_seed(2)
    x, y = torch.randn(64, 1, 12, 12), torch.randint(0, 10, (64,))
    return x + y.view(-1, 1, 1, 1) * 0.2, y


@pytest.fixture
def model(digits):
    return fqt.calibrate(fqt.quantize(small(), "int8", digits[0][:1]), [digits], samples=32)


def test_training_changes_every_parameter(model, digits):
    before = [p.detach().clone() for p in model.parameters()]
    assert np.isfinite(trained(model, *digits)).all()
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_library_loop_gives_the_same_codes(digits):
    """One batch, SGD: the same steps in torch and in the library's own loop."""
    x, y = digits
    model = fqt.quantize(small().eval(), "int8", x)
    model = fqt.calibrate(model.train(), [x], samples=len(x))
    own = fq.model_of_nodes(model.codes_0.nodes, list(x.shape[1:]), 10)
    own.load_state_dict({name: ref.get().detach() for name, ref in model.codes_0.refs.items()
                         if ref.name != "num_batches_tracked"})
    own.quantize("int8")
    own.load_quantizer_state(*model.codes_0.network.quantizer_state())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    own.fit((x.numpy(), y.numpy()), epochs=3, batch_size=len(x), learning_rate=0.05, optimizer="sgd")
    own.eval()
    model.eval()
    np.testing.assert_allclose(own(x.numpy()), model(x).detach().numpy(), rtol=0, atol=2e-2)


def test_exported_file_matches_the_model(model, digits, tmp_path):
    pytest.importorskip("onnxruntime")
    trained(model, *digits)
    model.eval()
    fqt.export(model, str(tmp_path / "model.onnx"))
    found = fqt.verify(model, str(tmp_path / "model.onnx"), digits[0])
    assert found == {"outputs": 640, "different": 0, "flips": 0, "max": 0.0, "codes": 65536, "different_codes": 0}
    fqt.save(model, str(tmp_path / "model.h5"))
    again = fq.load(str(tmp_path / "model.h5"))
    again.eval()
    assert np.array_equal(again(digits[0].numpy()), model(digits[0]).detach().numpy())


def test_supports_copies_and_state_dicts(model, digits):
    x, _ = digits
    model.eval()
    y = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), y)
        other[0].weight.data.zero_() if isinstance(other, nn.Sequential) else getattr(other, "0").weight.data.zero_()
        assert not torch.equal(other(x), y) and torch.equal(model(x), y)
    fresh = fqt.quantize(small(), "int8", x).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), y)
    floats = small()
    missing = model.load_state_dict(floats.state_dict())
    assert not missing.missing_keys and not missing.unexpected_keys
    assert list(floats.state_dict()) == [name for name in model.state_dict() if "_quantizer." not in name]


def test_shares_parameters_with_torch(model, digits):
    x, y = digits
    original = dict(small().named_parameters())
    assert [name for name, _ in model.named_parameters()] == list(original)
    with torch.no_grad():
        before = model.eval()(x)
        getattr(model, "8").bias.add_(1.0)
        assert torch.allclose(model(x), before + 1.0, atol=0.05)
        getattr(model, "8").bias.data.sub_(1.0)  # which torch counts as no change
        assert torch.allclose(model(x), before, atol=1e-5)
    getattr(model, "0").weight.requires_grad_(False)
    F.cross_entropy(model.train()(x), y).backward()
    assert getattr(model, "0").weight.grad is None and getattr(model, "8").weight.grad is not None


def test_modified_parameters_stop_a_backward_pass(model, digits):
    loss = F.cross_entropy(model(digits[0]), digits[1])
    with torch.no_grad():
        getattr(model, "8").weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_supports_several_passes_before_one_backward(model, digits):
    x, y = digits
    model.eval()
    (F.cross_entropy(model(x[:32]), y[:32]) + F.cross_entropy(model(x[32:]), y[32:])).backward()
    both = getattr(model, "8").weight.grad.clone()
    model.zero_grad()
    for half in (slice(0, 32), slice(32, 64)):
        F.cross_entropy(model(x[half]), y[half]).backward()
    torch.testing.assert_close(getattr(model, "8").weight.grad, both)


def test_supports_autocast_compile_and_channels_last(model, digits):
    x, _ = digits
    model.eval()
    y = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(x), y.bfloat16())
    assert torch.equal(model(x.contiguous(memory_format=torch.channels_last)), y)
    assert torch.equal(model.to(memory_format=torch.channels_last)(x), y)


def test_learned_ranges_are_parameters(digits):
    x, y = digits
    rules = {"rules": [{"pattern": "*input_quantizer", "num_bits": 4, "learn_amax": True},
                       {"pattern": "*weight_quantizer", "num_bits": 4, "axis": 0}]}
    model = fqt.calibrate(fqt.quantize(small(), rules, x), [x])
    ranges = {name: value for name, value in model.named_parameters() if name.endswith(".input_quantizer.amax")}
    assert list(ranges) == [f"{layer}.input_quantizer.amax" for layer in (0, 4, 6, 8)]
    before = {name: value.detach().clone() for name, value in ranges.items()}
    trained(model, x, y, steps=3)
    assert any(not torch.equal(value, before[name]) for name, value in ranges.items())
    other = fqt.quantize(small(), rules, x)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(x), model.eval()(x))


def test_low_bit_presets_match_the_command(digits):
    """8 bits at the edges, ranges of least error that are parameters, and a step at most doubles one."""
    x, y = digits
    model = fqt.calibrate(fqt.quantize(small(), "w2a2", x), [digits])
    codes = model.codes_0
    described = {row["name"]: row["description"] for row in codes.network.quantizers() if row["enabled"]}
    assert [d.split()[0].strip(",") for name, d in described.items() if "weight" in name] == ["int8", "int2", "int8"]
    groups = fqt.parameter_groups(model, steps=300)
    assert [group["lr"] for group in groups] == [0.004, 0.004, 0.012] and len(groups[2]["params"]) == 7
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    before = [value.detach().clone() for value in codes.ranges()]
    optimizer = torch.optim.AdamW(groups)
    for _ in range(20):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, codes.ranges()))
    held = [value.detach().clone() for value in codes.ranges()]
    with torch.no_grad():
        model(x)
        held = [value.detach().clone() for value in codes.ranges()]
        for value in codes.ranges():
            value.fill_(-1.0)
        model(x)
    assert all(torch.equal(a / 2, b) for a, b in zip(held, codes.ranges()))
    again = pickle.loads(pickle.dumps(model)).eval()
    assert torch.equal(again(x), model.eval()(x))


def test_edges_are_the_ends_of_a_network_in_parts():
    model = fqt.quantize(Block(), "w4a4", torch.zeros(2, 6, 32))
    bits = {row["name"]: row["format"].split()[0] for row in fqt.quantizers(model) if row["weight"]}
    assert bits == {"qkv.weight_quantizer": "int8", "out.weight_quantizer": "int4", "up.weight_quantizer": "int4", "down.weight_quantizer": "int8"}
    with pytest.raises(fq.ArgumentError, match="no part of the model is quantized"):
        fqt.parameter_groups(small())


def test_command_and_torch_choose_the_same_settings():
    model = fqt.quantize(small(), "w3a3", torch.zeros(1, 1, 12, 12))
    assert model.codes_0.network.config == fq.preset_config("w3a3")


def test_dropout_uses_the_torch_seed(digits):
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))
    model = fqt.calibrate(fqt.quantize(net, "int8", digits[0]), [digits])
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(model(digits[0]).detach())
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    assert torch.equal(model.eval()(digits[0]), model(digits[0]))


def test_threads_evaluate_concurrently(model, digits):
    x, found = digits[0], []
    model.eval()
    with torch.no_grad():
        wanted = model(x)
        models = [copy.deepcopy(model) for _ in range(3)]
        threads = [threading.Thread(target=lambda m=m: found.append(torch.equal(m(x), wanted))) for m in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [True] * 3


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_steps_do_not_leak(model, digits):
    x, y = digits
    trained(model, x, y, steps=50)
    gc.collect()
    before = resident()
    trained(model, x, y, steps=300)
    gc.collect()
    assert resident() - before < 8 << 20  # a kept step would be 300 times 0.6 MB


@pytest.mark.parametrize("example", [torch.zeros(1, 1, 5), torch.zeros(1, 3, 12, 12), torch.zeros(2, 1, 12, 12, dtype=torch.int64)])
def test_reports_a_mismatched_example_in_one_line(example, capfd):
    with pytest.raises(fq.ArgumentError, match="Sequential does not take example_input, (float32|int64)") as caught:
        fqt.quantize(small(), "int8", example)
    assert "\n" not in str(caught.value)
    assert not capfd.readouterr().err


@pytest.mark.parametrize("call, words", [
    (lambda: fqt.quantize("net", "int8", torch.zeros(1)), "model is a str: use an nn.Module"),
    (lambda: fqt.quantize(small(), "int8"), "example_input is None"),
    (lambda: fqt.quantize(small(), "int7", torch.zeros(1, 1, 12, 12)), "int7"),
    (lambda: fqt.quantize(nn.Sequential(nn.Tanh()), "int8", torch.zeros(1, 4)), "no layer that can be quantized"),
    (lambda: fqt.quantize(small().double(), "int8", torch.zeros(1, 1, 12, 12).double())(torch.zeros(1, 1, 12, 12)), "float64"),
    (lambda: fqt.quantize(small(), "int8", torch.zeros(1, 1, 12, 12))(torch.zeros(1, 1, 12, 12)), "fakequant.torch.calibrate"),
    (lambda: fqt.quantize(torch.jit.script(small()), "int8", torch.zeros(1, 1, 12, 12)), "ScriptModule"),
    (lambda: fqt.quantize(small(), "int8", torch.zeros(1, 1, 12, 12))(np.zeros((1, 1, 12, 12), "f")), "ndarray: use a tensor"),
    (lambda: torch.jit.trace(fqt.quantize(small(), "int8", torch.zeros(1, 1, 12, 12)), torch.zeros(1, 1, 12, 12)),
     "fakequant.torch.export writes"),
    (lambda: fqt.calibrate(small(), [torch.zeros(1, 1, 12, 12)]), "use the result of fakequant.torch.quantize"),
    (lambda: fqt.calibrate(fqt.quantize(small(), "int8", torch.zeros(1, 1, 12, 12)), []), "data has no batch"),
    (lambda: fqt.save(fqt.quantize(Block(), "int8", torch.zeros(1, 6, 32)), "x.h5"), "cumsum"),
])
def test_rejects_invalid_input(call, words):
    with pytest.raises(fq.ArgumentError, match=words):
        call()


class Branches(nn.Module):
    """A module that torch.fx cannot trace: a branch on values, a list of modules, a keyword."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 4)])
        self.conv, self.scale = nn.Conv1d(4, 4, 1), nn.Parameter(torch.ones(1))

    def forward(self, x, twice=False):
        if x.sum() > 1e9:
            return x
        for layer in self.layers:
            x = layer(x)
        x = self.conv(x[:, :, None])[:, :, 0]
        return x * self.scale * (2 if twice else 1)


def test_quantizes_untraceable_forwards_by_module():
    torch.manual_seed(0)
    model, x = Branches(), torch.randn(16, 4)
    quantized = fqt.calibrate(fqt.quantize(model, "int8", x), [x])
    parts = [part for part in quantized.modules() if isinstance(part, fqt.Quantized)]
    assert len(parts) == 3 and [n for n, _ in quantized.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert not any(isinstance(part, fqt.Quantized) for part in model.modules())
    y = quantized(x)
    assert 0 < (y - model(x)).abs().max() < 0.05 * y.abs().max()
    assert torch.equal(quantized(x, twice=True), 2 * y)
    y.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert torch.equal(copy.deepcopy(quantized)(x), y)
    with pytest.raises(fq.ArgumentError, match="torch runs a part of the model"):
        fqt.save(quantized, "x.h5")
