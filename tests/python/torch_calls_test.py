"""How models are written and called: arguments of forwards, attributes of layers, forms of configs and of calibration data."""
import os
import sys

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402

torch.manual_seed(0)
X = torch.randn(32, 8)


class Net(nn.Module):
    """Children by name, and a forward of one line; `opaque` is one that torch.fx cannot read."""

    def __init__(self, line, opaque=False, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)
        self.line, self.opaque = line, opaque

    def forward(self, x):
        if self.opaque and x.abs().sum() > 1e9:
            x = 2 * x
        return self.line(self, x)


def made(net, config="int8", x=X):
    return fqt.calibrate(fqt.quantize(net, config, x), [x])


def learned(model):
    return {name: value.detach() for name, value in model.named_parameters() if "_ranges" in name}


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.mark.parametrize("preset", fq.presets())
def test_a_preset_by_its_name_is_a_config_of_it(preset):
    """As text, as a dict and as JSON, with the same ranges to learn; the user's keys and rules come on top."""
    net = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    x = torch.randn(16, 128)
    models = [made(net, config, x) for config in (preset, {"preset": preset}, f'{{"preset": "{preset}"}}')]
    configs = [model.codes_0.network.config for model in models]
    assert configs[0] == configs[1] == configs[2] == fq.preset_config(preset)
    for other in models[1:]:
        assert learned(models[0]).keys() == learned(other).keys()
        assert torch.equal(models[0].eval()(x), other.eval()(x))


def test_rules_come_after_those_of_the_preset():
    rule = {"pattern": "@first.*", "num_bits": 4}
    for rules in ([rule], {"@first.*": {"num_bits": 4}}):
        model = made(plain(), {"preset": "w4a4", "algorithm": "max", "rules": rules})
        bits = {row["name"]: row["description"].split()[0] for row in model.codes_0.network.quantizers() if row["weight"]}
        assert list(bits.values()) == ["int4", "int4", "int8"] and learned(model)
        assert model.codes_0.network.config["algorithm"] == "max"


@pytest.mark.parametrize("opaque", [False, True])
def test_layers_have_what_torchs_have(opaque):
    """Parameters, buffers and children that are None, and buffers that no state dict holds."""
    layer = Net(lambda m, x: m.norm(m.up(x)), opaque, up=nn.Linear(8, 8, bias=False), norm=nn.BatchNorm1d(8))
    layer.register_module("extra", None)
    layer.register_buffer("places", torch.arange(3), persistent=False)
    layer.register_buffer("mask", None)
    layer.register_parameter("gain", None)
    net = Net(lambda m, x: m.body(x), opaque, body=layer)
    net.register_module("head", None)
    model = made(net)
    for name, module in net.named_modules():
        own = model.get_submodule(name)
        for kind in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
            assert getattr(own, kind) == getattr(module, kind), name
        assert getattr(module, "_modules").keys() <= getattr(own, "_modules").keys(), name
        assert all(getattr(own, child) is None for child, value in module._modules.items() if value is None)
    assert model.body.up.bias is None and model.head is None and model.body.extra is None
    assert {name for name in model.state_dict() if "codes" not in name} == net.state_dict().keys()


class Arguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)


class WithKeywords(Arguments):
    def forward(self, x, **kwargs):
        return torch.relu(self.a(x))


class WithMore(Arguments):
    def forward(self, x, *args, **kwargs):
        return torch.relu(self.a(x))


class WithOther(Arguments):
    def forward(self, x, *others):
        return torch.relu(self.a(x)) + others[0].sum()


def test_arguments_that_a_forward_collects():
    model = made(WithKeywords())
    assert torch.equal(model(X), model(x=X)) and torch.equal(model(X), model(X, mask=None, flag=3))
    with pytest.raises(TypeError, match="WithKeywords takes x, .*: it was given 2 inputs"):
        model(X, X)
    with pytest.raises(TypeError, match="WithKeywords takes x"):
        model(X, x=X)
    model = made(WithMore())
    assert torch.equal(model(X), model(X, 1, 2, flag=3))
    model = fqt.quantize(WithOther(), "int8", (X, X))
    model = fqt.calibrate(model, [((X, X),)])
    assert torch.equal(model(X, X), model(X, X, 3)) and not torch.equal(model(X, X), model(X, 2 * X))


def test_a_layer_may_read_a_parameter():
    """As DeBERTa's keys of relative positions. The parameter gets its gradient."""
    net = Net(lambda m, x: m.q(x) @ m.k(m.e.weight).t(), True, q=nn.Linear(8, 8), k=nn.Linear(8, 8), e=nn.Embedding(5, 8))
    for preset in ("int8", "w4a4"):
        model = made(net, preset)
        model.zero_grad()
        model(X).square().sum().backward()
        assert model.e.weight.grad.abs().sum() > 0 and model.k.weight.grad.abs().sum() > 0
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X), net(X))
    with fqt.calibrating(model):  # without torch.no_grad
        model(X)


def test_calibration_sees_values_before_torch_writes_to_them():
    """An activation in place at the beginning of a part."""
    seen = []
    for inplace in (False, True):
        torch.manual_seed(1)
        net = Net(lambda m, x: m.out(m.act(torch.cumsum(m.up(x), 1))), up=nn.Linear(8, 8), act=nn.SiLU(inplace), out=nn.Linear(8, 4))
        seen.append([row["amax"] for codes in made(net).codes().values() for row in codes.network.quantizers()])
    assert seen[0] == seen[1]


def test_parametrized_layers_stay_with_torch():
    net = Net(lambda m, x: m.b(F.relu(m.a(x))), True, a=parametrizations.weight_norm(nn.Linear(8, 8)), b=nn.Linear(8, 4))
    model = made(net)
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X), net(X))
    model(X).sum().backward()
    assert net.a.parametrizations.weight.original0.grad is not None
    rows = {row["layer"]: row for row in fqt.layers(model)}
    assert rows["b"]["runs"] == "codes" and rows["a"]["runs"] == "torch" and "parametrize" in rows["a"]["why"]
