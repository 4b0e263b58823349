"""Operations of PyTorch scripts on quantized models: they work as on torch's own, or are rejected by name."""
import copy
import io
import os
import sys

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

torch.manual_seed(0)
X, Y = torch.randn(64, 16), torch.randint(0, 4, (64,))


def plain(between=None):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), between or nn.Identity(), nn.ReLU(), nn.Linear(32, 4))


def make_model(net=None, config="int8"):
    return fqt.calibrate(fqt.quantize(plain() if net is None else net, config, X), [X])


def gradients(model, call=None):
    model.zero_grad()
    F.cross_entropy((call or model)(X), Y).backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def trained(model, optimizer, steps=10):
    losses = []
    for _ in range(steps):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward()
            return loss
        losses.append(float(optimizer.step(closure)))
    return losses


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Module(nn.Module):
    """Children by name, and a forward of one line."""

    def __init__(self, forward, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)
        self.line = forward

    def forward(self, x):
        return self.line(self, x)


def tied():
    a, b = nn.Linear(16, 16), nn.Linear(16, 16)
    b.weight = a.weight
    return Module(lambda m, x: m.h(F.relu(m.b(F.relu(m.a(x))))), a=a, b=b, h=nn.Linear(16, 4))


def lora(m, x):
    return m.base(x) + 2.0 * m.up(m.down(x)) / 3 - 1 + (1 - x[:, :1])


#: Models that are one part, as people write them.
WHOLE = {
    "tied weights": tied,
    "a module called twice": lambda: Module(lambda m, x: m.h(F.relu(m.a(F.relu(m.a(x))))), a=nn.Linear(16, 16), h=nn.Linear(16, 4)),
    "low-rank adapters, numbers": lambda: Module(lora, base=nn.Linear(16, 4), down=nn.Linear(16, 2, bias=False), up=nn.Linear(2, 4)),
    "raw parameters": lambda: Module(lambda m, x: F.linear(F.relu(F.linear(x, m.w, m.b)), m.v),
                                     w=nn.Parameter(torch.randn(8, 16)), b=nn.Parameter(torch.zeros(8)), v=nn.Parameter(torch.randn(4, 8))),
    "a product with a parameter": lambda: Module(lambda m, x: m.h(F.relu(x @ m.w)), w=nn.Parameter(torch.randn(16, 8)), h=nn.Linear(8, 4)),
    "a batch norm": lambda: plain(nn.BatchNorm1d(32)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_one_part_matches_torch_gradients(name, tmp_path):
    torch.manual_seed(0)
    net = WHOLE[name]()
    twin, model = copy.deepcopy(net), make_model(net)
    assert len(model.lowered_modules()) == 1 and not model.floats and all(row["runs"] == "codes" for row in fqt.layers(model) if row["layer"])
    with fqt.quantizers_off(model):
        for own, wanted in zip(gradients(model), gradients(twin), strict=True):
            torch.testing.assert_close(own, wanted, rtol=1e-3, atol=1e-5)
    before = [p.detach().clone() for p in model.parameters()]
    trained(model, torch.optim.Adam(model.parameters(), 1e-2), 3)
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    pytest.importorskip("onnxruntime")
    fqt.export(model.eval(), str(tmp_path / "model.onnx"))
    assert fqt.verify(model, str(tmp_path / "model.onnx"), X)["different"] == 0


def pruned():
    net = plain()
    prune.l1_unstructured(net[0], "weight", 0.5)
    return net


def hooked():
    net = plain()
    net[0].register_forward_hook(lambda module, given, y: 2 * y)
    return net


def make_weight_norm():
    net = plain()
    nn.utils.weight_norm(net[0])
    return net


@pytest.mark.parametrize("make, words", [(pruned, "Linear has hooks"), (hooked, "Linear has hooks"),
                                         (make_weight_norm, "use torch.nn.utils.parametrizations.weight_norm")])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_keeps_torch_operations_around_a_layer(make, words):
    twin, model = make(), make_model(make())
    first, last = [row for row in fqt.layers(model) if row["type"].endswith("Linear")]
    assert first["runs"] == "torch" and words in first["why"] and last["runs"] == "codes"
    with fqt.quantizers_off(model):
        for own, wanted in zip(gradients(model), gradients(twin), strict=True):
            torch.testing.assert_close(own, wanted, rtol=1e-3, atol=1e-5)


def test_supports_several_outputs():
    def forward(m, x):
        y = F.relu(m.a(x))
        return {"main": m.h(y), "more": [m.g(y), y]}
    net = Module(forward, a=nn.Linear(16, 32), h=nn.Linear(32, 4), g=nn.Linear(32, 4))
    model = make_model(net)
    with fqt.quantizers_off(model):
        own, wanted = model(X), net(X)
    assert type(own) is dict and type(own["more"]) is list
    for a, b in zip((own["main"], *own["more"]), (wanted["main"], *wanted["more"]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_accepts_a_list_as_one_input():
    net = Module(lambda m, xs: m.a(xs[0]) + m.b(xs[1]), a=nn.Linear(16, 4), b=nn.Linear(16, 4))
    model = fqt.calibrate(fqt.quantize(net, "int8", ([X, X],)), [(([X, X],), Y)])
    assert (model([X, X]) - net([X, X])).abs().max() < 0.05
    with pytest.raises(fq.ArgumentError, match="example_input is 2 inputs of Module"):
        fqt.quantize(net, "int8", [X, X])


def test_keeps_modes_of_single_layers():
    """Frozen batch norms in training, statistics that adapt in evaluation, dropout that stays on."""
    net = plain(nn.BatchNorm1d(32))
    twin, model = copy.deepcopy(net), make_model(net)
    model.train()
    net[1].eval()
    twin.train()[1].eval()
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X), twin(X), rtol=1e-5, atol=1e-6)
    before, count = net[1].running_mean.clone(), int(net[1].num_batches_tracked)
    gradients(model)
    assert torch.equal(net[1].running_mean, before) and net[1].num_batches_tracked == count
    model.eval()
    net[1].train()
    with torch.no_grad():
        model(X)
    assert not torch.equal(net[1].running_mean, before) and net[1].num_batches_tracked == count + 1
    net = plain(nn.Dropout(0.5))
    model = make_model(net).eval()
    y = model(X)
    net[1].train()
    with torch.no_grad():
        assert not torch.equal(model(X), model(X))
    net[1].eval()
    assert torch.equal(model(X), y)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_draws_the_same_dropout(reentrant):
    model, x = make_model(plain(nn.Dropout(0.5))), X.clone().requires_grad_()
    torch.manual_seed(3)
    wanted = gradients(model, lambda _: model(x))
    torch.manual_seed(3)
    assert same(gradients(model, lambda _: checkpoint(model, x, use_reentrant=reentrant)), wanted)


def test_supports_autocast_scaler_and_clipping():
    model = make_model()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    before = [p.detach().clone() for p in model.parameters()]
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(X), Y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    plain_gradients = [p.grad.clone() for p in model.parameters()]
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 0
    scaler.step(optimizer)
    scaler.update()
    assert not same(before, model.parameters())
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
    for own, wanted in zip(plain_gradients, gradients(model, lambda x: model(x).half().float()), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("save", [lambda model: model, lambda model: nn.DataParallel(model).module, copy.deepcopy])
def test_saves_the_whole_module(save):
    model, buffer = make_model().eval(), io.BytesIO()
    torch.save(save(model), buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    assert torch.equal(again(X), model(X)) and again[0].weight.shape == (32, 16)
    again[0].weight.data.zero_()
    assert not torch.equal(again(X), model(X))
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    fresh = fqt.quantize(plain(), "int8", X).eval()
    fresh.load_state_dict(torch.load(buffer))
    assert torch.equal(fresh(X), model(X))


def test_supports_weight_averages():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

    model = make_model(plain(nn.BatchNorm1d(32)))
    average, optimizer = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5)), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        trained(model, optimizer, 1)
        average.update_parameters(model)
    update_bn([(X, Y)], average)
    assert 0 < (average.eval()(X) - model.eval()(X)).abs().max() < 1


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=4), lambda p: torch.optim.RMSprop(p, 1e-3),
                                       lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
                                       lambda p: torch.optim.AdamW(p, 1e-2, foreach=True)])
def test_supports_optimizers(optimizer):
    """Each step is the step of torch's optimizer on plain parameters with the same gradients."""
    model, seen = make_model(), []
    own = optimizer(model.parameters())
    twins = [nn.Parameter(p.detach().clone()) for p in model.parameters()]

    def closure():
        loss = F.cross_entropy(model(X), Y)
        own.zero_grad()
        loss.backward()
        seen.append((loss.detach(), [p.grad.clone() for p in own_parameters], [p.detach().clone() for p in own_parameters]))
        return loss
    own_parameters = list(model.parameters())
    for _ in range(3):
        own.step(closure)
    plain, replayed = optimizer(twins), iter(seen)

    def replay():
        loss, found, values = next(replayed)
        assert same(values, twins)
        for twin, gradient in zip(twins, found, strict=True):
            twin.grad = gradient.clone()
        return loss
    for _ in range(3):
        plain.step(replay)
    assert next(replayed, None) is None and same(own_parameters, twins)
    assert not any(torch.equal(a, b) for a, b in zip(seen[0][2], twins, strict=True))


def test_supports_inference_mode_compile_functional_call_and_halves():
    model = make_model().eval()
    y = model(X)
    with torch.inference_mode():
        assert torch.equal(model(X), y)
        x = X * 1
    assert gradients(model.train(), lambda _: model(x))[0] is not None
    model.eval()
    assert torch.equal(torch.compile(lambda x: model(x) * 2, backend="eager")(X), 2 * y)
    halved = {name: p.detach() / 2 for name, p in model.named_parameters()}
    other = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(halved[name])
    assert torch.equal(torch.func.functional_call(model, halved, (X,)), other(X)) and torch.equal(model(X), y)
    assert torch.equal(model(X.double()), y) and model(X[:0]).shape == (0, 4) and torch.equal(model(X.view(8, 8, 16)).view(64, 4), y)
    assert copy.deepcopy(model).half()(X).dtype == torch.float16
    with pytest.raises(fq.ArgumentError, match="float64"):
        copy.deepcopy(model).double()(X)


def test_zero_weights_learn():
    """As adapters begin: a range of zero would hold them there."""
    net = Module(lora, base=nn.Linear(16, 4).requires_grad_(False), down=nn.Linear(16, 2, bias=False), up=nn.Linear(2, 4))
    nn.init.zeros_(net.up.weight)
    with pytest.warns(UserWarning, match="'up.weight_quantizer' saw only zeros"):
        model = make_model(net)
    trained(model, torch.optim.Adam(model.parameters(), 1e-2))
    assert net.up.weight.abs().max() > 0
    assert all(row["amax"][1] > 0 for row in model.codes_0.network.quantizers() if row["amax"])
    again = copy.deepcopy(model).eval()
    assert torch.equal(again(X), model.eval()(X))


def test_calibrates_in_a_loop():
    model = fqt.quantize(plain(), "int8", X)
    with fqt.calibrating(model):
        for x in X.split(16):
            model(x)
    assert torch.equal(model(X), make_model()(X))
    with pytest.raises(KeyError), fqt.calibrating(model):
        model(100 * X)
        raise KeyError
    assert torch.equal(model(X), make_model()(X)) and model.training
    with pytest.raises(fq.ArgumentError, match="the pattern 'fc' matches no quantizer: the nearest are 3"), fqt.quantizers_off(model, "fc"):
        pass


def test_keeps_attributes_of_the_model():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.labels = plain(), ["a", "b"]

        def forward(self, x):
            return self.body(x)

        def best(self, x):
            return self(x).argmax(1)
    model = make_model(Net())
    assert model.labels == ["a", "b"] and torch.equal(Net.best(model, X), model(X).argmax(1))
    with pytest.raises(AttributeError, match="Net.best"):
        model.best(X)
    model.body[0] = nn.Linear(16, 32)
    with pytest.raises(fq.ArgumentError, match="'0' of Sequential is another module"):
        model(X)


def test_runs_hooks_of_the_model_and_of_parameters():
    net, seen = plain(), []
    net.register_forward_hook(lambda module, given, y: seen.append("before"))
    model = make_model(net)
    seen.clear()
    model.register_full_backward_hook(lambda module, of_inputs, of_outputs: seen.append("backward"))
    next(model.parameters()).register_hook(lambda gradient: seen.append("parameter"))
    gradients(model)
    assert sorted(seen) == ["backward", "before", "parameter"]


@pytest.mark.parametrize("call, words", [
    (lambda: torch.jit.trace(make_model().eval(), X), "fakequant.torch.export writes"),
    (lambda: torch.jit.script(make_model()), "torch.jit cannot compile"),
    (lambda: torch.onnx.export(make_model().eval(), (X,), io.BytesIO(), dynamo=False), "fakequant.torch.export writes"),
    (lambda: torch.vmap(make_model().eval())(X[:, None]), "torch.func"),
    (lambda: torch.func.jvp(make_model().eval(), (X,), (X,)), "torch.func"),
    (lambda: fqt.quantize(make_model(), "int8", X), "already quantized"),
    (lambda: fqt.quantize(plain(), "int8", (X, X)), "example_input is 2 inputs of Sequential"),
    (lambda: make_model(plain(nn.BatchNorm1d(32)))(X[:1]), "one value a channel"),
    (lambda: make_model()(X * float("nan")), "'0.input_quantizer'"),
    (lambda: make_model().to("meta")(X.to("meta")), "meta"),
])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rejects_unsupported_input_by_name(call, words):
    with pytest.raises(fq.Error, match=words):
        call()
