"""How forwards are read: in-place writes, buffers, sizes, flags, wrapped functions, and modules that are read by parts."""
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

torch.manual_seed(0)
ROWS, SEQUENCES, IMAGES = torch.randn(4, 8), torch.randn(3, 6, 8), torch.randn(2, 8, 6, 6)


class Net(nn.Module):
    """Children by name, and a forward of one function; `opaque` is one that torch.fx cannot read."""

    def __init__(self, function, opaque=False, **children):
        super().__init__()
        for name, child in children.items():
            self.register_buffer(name, child) if type(child) is torch.Tensor else setattr(self, name, child)
        self.function, self.opaque = function, opaque

    def forward(self, x):
        if self.opaque and x.abs().sum() > 1e9:
            x = 2 * x
        return self.function(self, x)


def quantized(net, x, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        return fqt.calibrate(fqt.quantize(net, "int8", x, **options), [x])


def assert_equal_floats(model, net, x):
    with torch.no_grad(), fqt.quantizers_off(model):
        torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)


def layers(*names, width=8):
    return {name: nn.Linear(width, width) for name in names}


def written_statement(m, x):
    y = m.a(x)
    y.relu_()
    F.hardtanh(y, -1, 1, True)
    m.act(y)
    return m.b(y)


def read_after_write(m, x):
    y = m.a(x)
    z = F.relu_(y)
    return m.b(y + z)


@pytest.mark.parametrize("function", [written_statement, read_after_write])
def test_in_place_writes_have_an_effect(function):
    """Also without a use of their result."""
    net = Net(function, **layers("a", "b"), act=nn.LeakyReLU(0.1, inplace=True))
    model = quantized(net, ROWS)
    assert len(model.lowered_modules()) == 1
    assert_equal_floats(model, net, ROWS)


def test_writes_through_views_are_left_to_torch():
    def function(m, x):
        y = m.a(x)
        y[:, :4].mul_(2)
        return m.b(y)
    net = Net(function, **layers("a", "b"))
    model = quantized(net, ROWS)
    assert_equal_floats(model, net, ROWS)
    assert [row["runs"] for row in fqt.layers(model)] == ["codes", "codes"]


def test_writes_to_buffers_are_left_to_torch():
    def function(m, x):
        m.total.add_(x.detach().sum())
        return m.b(m.a(x))
    net = Net(function, **layers("a", "b"), total=torch.zeros(()))
    model = quantized(net, ROWS)
    before = model.total.clone()
    model(ROWS)
    torch.testing.assert_close(model.total - before, ROWS.sum())
    assert type(model) is Net  # read by modules


def test_quantize_changes_no_statistics():
    net = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)).train()
    before = copy.deepcopy(net.state_dict())
    fqt.quantize(net, "int8", IMAGES)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


class NormAct(nn.BatchNorm2d):
    """A batch norm with its own forward, as timm's BatchNormAct2d."""

    def forward(self, x):
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return F.relu(F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps))


def test_functional_batch_norm_follows_its_module():
    """Statistics and counter change in training, and not in a module in evaluation."""
    net = nn.Sequential(nn.Conv2d(8, 8, 1), NormAct(8), nn.Conv2d(8, 8, 1), NormAct(8))
    twin = copy.deepcopy(net)
    model = quantized(net, IMAGES).train()
    assert len(model.lowered_modules()) == 1 and not model.floats
    getattr(model, "3").eval()
    twin.train()[3].eval()
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(IMAGES), twin(IMAGES), rtol=1e-4, atol=1e-5)
    for (name, own), other in zip(net.named_buffers(), twin.buffers()):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")
    assert int(net[1].num_batches_tracked) == 1 and int(net[3].num_batches_tracked) == 0


def test_embeddings_keep_the_padding_row():
    net = Net(lambda m, x: m.fc(m.words(x)), words=nn.Embedding(10, 8, padding_idx=3), fc=nn.Linear(8, 8))
    model = quantized(net, torch.tensor([[1, 3, 2]]))
    assert len(model.lowered_modules()) == 1
    model.train()(torch.tensor([[1, 3, 2]])).square().sum().backward()
    assert net.words.weight.grad[3].abs().sum() == 0 and net.words.weight.grad[1].abs().sum() > 0


@pytest.mark.parametrize("function, is_general", [
    (lambda m, x: m.b(m.a(x).flip(1)), False), (lambda m, x: m.b(m.a(x) / x.shape[1]), False), (lambda m, x: m.b(m.a(x).chunk(2, 1)[0]), False),
    (lambda m, x: m.b(m.a(x)[:, -1]), True), (lambda m, x: m.b(m.a(x).unflatten(-1, (2, 4)).flatten(2)), True),
    (lambda m, x: m.b(m.a(x) + m.p(torch.arange(x.shape[1]))), False)])
def test_other_sizes_than_in_the_example(function, is_general):
    """Are computed as torch does, or are an error. whole=False always computes them."""
    net = Net(function, **layers("a", "b"), p=nn.Embedding(20, 8))
    longer = torch.randn(5, 10, 8)
    model = quantized(net, SEQUENCES)
    assert len(model.lowered_modules()) == 1
    if is_general:
        assert_equal_floats(model, net, longer)
        model(longer)
    else:
        with pytest.raises(fq.ArgumentError, match=r"'x' is \[5, 10, 8\], and \['N', 6, 8\] in example_input: layers have sizes"):
            model(longer)
    parts = quantized(net, SEQUENCES, whole=False)
    assert_equal_floats(parts, net, longer)


def padded(m, x):
    """As a convolution with padding "same" and a stride, whose forward depends on the size of the image."""
    height, width = x.shape[-2:]
    more = max((-(-height // 2) - 1) * 2 + 3 - height, 0), max((-(-width // 2) - 1) * 2 + 3 - width, 0)
    if any(more):
        x = F.pad(x, [more[1] // 2, more[1] - more[1] // 2, more[0] // 2, more[0] - more[0] // 2])
    return m.out(m.conv(x))


def test_forwards_of_images_may_depend_on_sizes():
    net = Net(padded, conv=nn.Conv2d(8, 8, 3, 2), out=nn.Conv2d(8, 4, 1))
    model = quantized(net, IMAGES)
    assert len(model.lowered_modules()) == 1 and not model.floats
    assert_equal_floats(model, net, IMAGES)
    assert_equal_floats(model, net, torch.randn(5, 8, 6, 6))
    with pytest.raises(fq.ArgumentError, match=r"'x' is \[2, 8, 7, 7\]: the forward depends on the sizes"):
        model(torch.randn(2, 8, 7, 7))
    assert_equal_floats(quantized(net, IMAGES, whole=False), net, torch.randn(2, 8, 7, 7))


def test_windows_of_images_are_one_part():
    def function(m, x):
        n, height, width, channels = x.shape
        y = m.a(x).view(n, height // 3, 3, width // 3, 3, channels).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 9, channels)
        y = y + m.b(torch.softmax(y @ y.transpose(1, 2), -1) @ y)
        y = y.view(n, height // 3, width // 3, 3, 3, channels).permute(0, 1, 3, 2, 4, 5).reshape(n, height, width, channels)
        return m.c(y.mean((1, 2)))
    net, x = Net(function, **layers("a", "b", "c")), torch.randn(2, 6, 6, 8)
    model = quantized(net, x)
    assert len(model.lowered_modules()) == 1 and not model.floats
    assert_equal_floats(model, net, x)
    assert_equal_floats(model, net, torch.randn(3, 6, 6, 8))


class Experts(nn.Module):
    """Matrices of experts in one parameter, whose calls depend on the data, as in transformers."""

    def __init__(self, grouped):
        """`grouped` is "loop", "grouped_mm" or "bmm" (all rows by all experts)."""
        super().__init__()
        self.grouped, self.up, self.down = grouped, nn.Parameter(torch.randn(4, 16, 8) / 3), nn.Parameter(torch.randn(4, 8, 16) / 4)

    def forward(self, x, chosen):
        if self.grouped == "bmm":
            y = torch.bmm(F.relu(torch.bmm(x.expand(4, -1, -1), self.up.transpose(1, 2))), self.down.mT)
            return (y * F.one_hot(chosen, 4).T[:, :, None]).sum(0)
        if self.grouped == "grouped_mm":
            order = chosen.argsort()
            ends = torch.cumsum(torch.bincount(chosen, minlength=4), 0).int()
            y = F.relu(F.grouped_mm(x[order], self.up.transpose(1, 2), offs=ends))
            return F.grouped_mm(y, self.down.transpose(1, 2), offs=ends)[order.argsort()]
        out = torch.zeros_like(x)
        for i in chosen.unique():
            rows = torch.where(chosen == i)[0]
            out = out.index_add(0, rows, F.linear(F.relu(F.linear(x[rows], self.up[i])), self.down[i]))
        return out


@pytest.mark.parametrize("grouped", ["loop", "grouped_mm", "bmm"])
def test_matrices_of_experts_run_on_codes(grouped):
    if grouped == "grouped_mm" and not hasattr(F, "grouped_mm"):
        pytest.skip("this torch has no grouped_mm")
    net = Net(lambda m, x: m.head(m.experts(x, (x[:, 0] > 0).long())), opaque=True, experts=Experts(grouped), head=nn.Linear(8, 2))
    x, other = torch.randn(32, 8), torch.randn(16, 8)
    model = quantized(net, x)
    assert {row["layer"]: row["runs"] for row in fqt.layers(model)} == {"experts": "codes", "head": "codes"}
    names = [row["name"] for row in fqt.quantizers(model) if row["weight"]]
    if grouped == "bmm":  # torch.fx reads this forward
        assert len(names) == 9
    else:
        assert names == [f"experts.{name}_{i}.weight_quantizer" for name in ("up", "down") for i in range(4)] + ["head.weight_quantizer"]
    assert_equal_floats(model, net, other)
    wanted = net(x)
    assert 0 < (model(x) - wanted).abs().max() < 0.1 * wanted.abs().max()
    model.train()(x).square().sum().backward()
    assert net.experts.up.grad[:2].abs().sum() > 0 and net.experts.up.grad[2:].abs().sum() == 0
    model.experts(torch.randn(4, 8), torch.tensor([3, 3, 2, 0]))  # experts that the data did not reach


def test_a_forward_that_calls_autocast_is_read_by_modules():
    def forward(m, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = m.a(x)
        return m.b(y.float()), y
    net = Net(forward, **layers("a", "b"))
    model = quantized(net, ROWS)
    assert [row["runs"] for row in fqt.layers(model)] == ["codes", "codes"]
    assert [y.dtype for y in model(ROWS)] == [y.dtype for y in net(ROWS)] == [torch.float32, torch.bfloat16]
    with torch.autocast("cpu", torch.bfloat16):  # of the caller
        assert "codes_0" in quantized(Net(lambda m, x: m.b(m.a(x)), **layers("a", "b")), ROWS)._modules


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_weights_that_torch_computes_run_on_codes(name, opaque, tmp_path):
    parametrization = getattr(torch.nn.utils.parametrizations, name)
    conv = nn.Conv1d(6, 8, 3, padding=1)
    net = Net(lambda m, x: m.head(F.relu(m.conv(x)).mean(2)), opaque, conv=conv if name == "orthogonal" else parametrization(conv),
              head=parametrization(nn.Linear(8, 4)))
    x, own = SEQUENCES, copy.deepcopy(net)
    model = quantized(net, x)  # spectral_norm would change its vectors if it were read in training mode
    assert {row["layer"]: row["runs"] for row in fqt.layers(model)} == {"conv": "codes", "head": "codes"}
    for mode in False, True:
        with fqt.quantizers_off(model):
            y, wanted = model.train(mode)(x), own.train(mode)(x)
            torch.testing.assert_close(y, wanted)
    y.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close([p.grad for p in net.parameters()], [p.grad for p in own.parameters()])
    torch.testing.assert_close(dict(net.named_buffers()), dict(own.named_buffers()))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    before = model.eval()(x)
    model.train()(x).square().sum().backward()
    optimizer.step()
    after = model.eval()(x)
    assert not torch.equal(before, after)  # the codes follow the parameters
    fqt.save(model, tmp_path / "model.pt")
    assert torch.equal(fqt.load(tmp_path / "model.pt", own).eval()(x), after)
    assert torch.equal(copy.deepcopy(model)(x), after)


def test_old_hooks_that_compute_weights_name_the_remedy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        net = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(8, 8)), nn.Linear(8, 2))
    rows = {row["layer"]: row for row in fqt.layers(quantized(net, ROWS))}
    assert rows["0"]["runs"] == "torch" and "use torch.nn.utils.parametrizations.weight_norm" in rows["0"]["why"]


@pytest.mark.parametrize("function, reason", [
    (lambda m, x: m.b(m.a(x).transpose(0, 1).transpose(0, 1)), "a transpose that moves the axis of samples"),
    (lambda m, x: m.b(torch.softmax(m.a(x), 0)), "softmax along the axis of samples"), (lambda m, x: m.b(m.a(x) - m.a(x).mean()), "mean over all axes"),
    (lambda m, x: m.b(m.a(x)[[1, 0, 2]]), "an index of the axis of samples"), (lambda m, x: m.b(F.dropout(m.a(x), 0.0, True)), "active in evaluation too"),
    (lambda m, x: m.b(torch.cat([m.a(x), x], 0)[:3]), "a concat along the axis of samples"), (lambda m, x: m.b(m.a(x).cumsum(1)), "cumsum has no layer here"),
    (lambda m, x: m.b(torch.add(m.a(x), x, alpha=2)), "add with these arguments"), (lambda m, x: m.b(m.a(x).detach()), "detach has no layer here"),
    (lambda m, x: m.b(m.a(x).roll(1, 0)), "a roll of the samples"), (lambda m, x: m.b(m.a(x).masked_fill(~(m.a(x) > 0).cumsum(1).bool(), 0)), "cumsum"),
    (lambda m, x: m.b(m.a(x).double().float()), "to torch.float64"), (lambda m, x: m.b(x[:, :, :8]) * (m.a(x) > 0), None), (lambda m, x: m.b(m.a(x).flatten(0, 1)), None),
    (lambda m, x: m.b(F.max_pool1d(m.a(x), 2, return_indices=True)[0].repeat(1, 1, 2)), "its value is not a tensor")])
def test_what_has_no_layer_is_left_to_torch_with_a_reason(function, reason):
    net = Net(function, **layers("a", "b"))
    model = quantized(net, SEQUENCES)
    if reason is not None:
        assert any(reason in why for why in model.floats.values()), model.floats
    assert_equal_floats(model, net, SEQUENCES)


def assigned_buffer(m, x):
    y = m.a(x)
    if m.training:
        m.average = 0.9 * m.average + 0.1 * y.detach().mean(0)
    return m.b(y - m.average)


def kept_attribute(m, x):
    m.state = torch.tanh(m.a(x) + m.state)
    return m.b(m.state)


def other_value_in_evaluation(m, x):
    y = m.a(x)
    z = m.b(y)
    return [y, z] if m.training else z


STATEFUL = [(assigned_buffer, {"average": torch.zeros(8)}), (kept_attribute, {"state": 0.0}), (other_value_in_evaluation, {})]


@pytest.mark.parametrize("function, state", STATEFUL, ids=lambda value: getattr(value, "__name__", ""))
def test_a_forward_that_keeps_values_computes_as_torch(function, state):
    """Three calls in training, then one in evaluation. The float model does not change in quantize."""
    net = Net(function, **layers("a", "b"), **state)
    twin, before = copy.deepcopy(net), copy.deepcopy(net.state_dict())
    model = quantized(net, ROWS)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    model.load_state_dict(before, strict=False)
    vars(model).update({name: value for name, value in state.items() if isinstance(value, float)})
    with torch.no_grad(), fqt.quantizers_off(model):
        for mode in (True, True, True, False):
            torch.testing.assert_close(model.train(mode)(ROWS), twin.train(mode)(ROWS), rtol=1e-4, atol=1e-5)


SCALARS = {"sum": lambda a, b: a.sum() + b.mean(), "loss": F.mse_loss, "product": lambda a, b: (a * b).sum() * 2, "dot": lambda a, b: (a.max() - b.min()).exp(),
           "compare": lambda a, b: torch.where(a.sum() > b.sum(), a.sum(), b.sum())}


@pytest.mark.parametrize("name", SCALARS)
def test_values_without_axes_stay_with_torch(name):
    net = Net(lambda m, x: (m.a(x), SCALARS[name](m.a(x), m.b(x))), **layers("a", "b"))
    assert_equal_floats(quantized(net, ROWS), net, ROWS)


def test_attention_without_samples_stays_with_torch():
    net = Net(lambda m, x: m.attention(m.a(x), x, x)[0], attention=nn.MultiheadAttention(8, 2), **layers("a"))
    assert_equal_floats(quantized(net, ROWS), net, ROWS)


@pytest.mark.parametrize("compare", [torch.eq, torch.gt, torch.ne], ids=lambda function: function.__name__)
def test_compares_the_integers_of_an_embedding(compare, tmp_path):
    """The mask of padding as users compute it."""
    ids = torch.tensor([[3, 1, 0, 0], [2, 4, 1, 0]])
    net = Net(lambda m, x: m.a(m.words(x)) * compare(x, 1).unsqueeze(-1), words=nn.Embedding(6, 8), **layers("a"))
    model = quantized(net, ids).eval()
    assert_equal_floats(model, net, ids)
    fqt.export(model, tmp_path / "model.onnx")
    assert fqt.verify(model, tmp_path / "model.onnx", ids)["different"] == 0


def test_keeps_the_modules_that_train_leaves_in_evaluation():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self
    net = Frozen(nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    model, mean = quantized(net, IMAGES).train(), net[1].running_mean.clone()
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(IMAGES), net.train()(IMAGES), rtol=1e-4, atol=1e-5)
    assert torch.equal(net[1].running_mean, mean) and model.training and not model[1].training
    assert not copy.deepcopy(model).train()[1].training


def test_calibrates_a_head_with_several_sizes():
    """A head that detectors call on each level of a pyramid. Its range has the values of all sizes."""
    net = Net(lambda m, x: [m.head(level) for level in (x, 4 * x[..., ::2, ::2], x[..., :1, :1])], opaque=True, head=nn.Conv2d(8, 4, 3, padding=1))
    model = quantized(net, IMAGES)
    with torch.no_grad(), fqt.quantizers_off(model):
        for y, wanted in zip(model(IMAGES), net(IMAGES)):
            torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)
    amax, = (row["amax"] for row in fqt.quantizers(model) if row["name"].endswith("input_quantizer"))
    assert float(torch.as_tensor(amax).max()) > float(IMAGES.abs().max())
