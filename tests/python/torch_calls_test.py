"""How models are written and called: arguments of forwards, attributes of layers, forms of configs and of calibration data."""
import copy
import functools
import os
import sys

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from fakequant import _fakequant  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

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


def make_model(net, config="int8", x=X):
    return fqt.calibrate(fqt.quantize(net, config, x), [x])


def learned(model):
    return {name: value.detach() for name, value in model.named_parameters() if name.endswith("_quantizer.amax")}


def function_named(name):
    return next(f for space in (F, torch) for f in vars(space).values() if callable(f) and getattr(f, "__name__", "") == name)


def test_a_slice_may_have_a_computed_end():
    net = Net(lambda self, x: self.fc(x[:, :x.shape[1] // 2]), fc=nn.Linear(4, 3))
    model = make_model(net).eval()
    assert len(model.lowered_modules()) == 1
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X), net(X))


@pytest.mark.parametrize("row", [row for row in _fakequant.operators() if row["inputs"] == 1 and (row["torch"] or row["torch_module"])],
                         ids=lambda row: row["name"])
def test_torch_functions_become_layers(row):
    """As functions and as modules, with other numbers than the defaults. The model stays one part."""
    options = {option["torch"]: option["default"] + 0.7 if isinstance(option["default"], float) else option["default"]
               for option in row["options"]}
    forms = [functools.partial(function_named(name), **options) for name in row["torch"]]
    forms += [getattr(nn, row["torch_module"])(**options)] if row["torch_module"] else []
    for form in forms:
        net = Net(lambda m, x: m.b(form(torch.sigmoid(m.a(x)) + 0.1)), a=nn.Linear(8, 8), b=nn.Linear(8, 4))
        if isinstance(form, nn.Module):
            net.form = form
        model = make_model(net)
        assert len(model.lowered_modules()) == 1, form
        with fqt.quantizers_off(model):
            torch.testing.assert_close(model(X), net(X))


def test_functions_with_other_arguments_stay_in_torch():
    net = Net(lambda m, x: m.b(torch.exp(m.a(x), out=None)), a=nn.Linear(8, 8), b=nn.Linear(8, 4))
    assert len(make_model(net).lowered_modules()) == 2


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.mark.parametrize("preset", fq.presets())
def test_preset_name_equals_its_config(preset):
    """As text, as a dict and as JSON, with the same ranges to learn; the user's keys and rules come on top."""
    net = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    x = torch.randn(16, 128)
    models = [make_model(net, config, x) for config in (preset, {"preset": preset}, f'{{"preset": "{preset}"}}')]
    configs = [model.codes_0.network.config for model in models]
    assert configs[0] == configs[1] == configs[2] == fq.preset_config(preset)
    for other in models[1:]:
        assert learned(models[0]).keys() == learned(other).keys()
        assert torch.equal(models[0].eval()(x), other.eval()(x))


def test_rules_follow_the_preset_rules():
    rule = {"pattern": "@first.*", "num_bits": 4}
    for rules in ([rule], {"@first.*": {"num_bits": 4}}):
        model = make_model(plain(), {"preset": "w4a4", "algorithm": "max", "rules": rules})
        bits = {row["name"]: row["description"].split()[0] for row in model.codes_0.network.quantizers() if row["weight"]}
        assert list(bits.values()) == ["int4", "int4", "int8"] and learned(model)
        assert model.codes_0.network.config["algorithm"] == "max"


@pytest.mark.parametrize("opaque", [False, True])
def test_layers_have_the_torch_attributes(opaque):
    """Parameters, buffers and children that are None, and buffers that no state dict holds."""
    layer = Net(lambda m, x: m.norm(m.up(x)), opaque, up=nn.Linear(8, 8, bias=False), norm=nn.BatchNorm1d(8))
    layer.register_module("extra", None)
    layer.register_buffer("places", torch.arange(3), persistent=False)
    layer.register_buffer("mask", None)
    layer.register_parameter("gain", None)
    net = Net(lambda m, x: m.body(x), opaque, body=layer)
    net.register_module("head", None)
    model = make_model(net)
    for name, module in net.named_modules():
        own = model.get_submodule(name)
        for kind in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
            assert getattr(own, kind) == getattr(module, kind), name
        assert module._modules.keys() <= own._modules.keys(), name
        assert all(getattr(own, child) is None for child, value in module._modules.items() if value is None)
    assert model.body.up.bias is None and model.head is None and model.body.extra is None
    assert {name for name in model.state_dict() if "_quantizer." not in name} == net.state_dict().keys()


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


def test_supports_variadic_arguments():
    model = make_model(WithKeywords())
    assert torch.equal(model(X), model(x=X)) and torch.equal(model(X), model(X, mask=None, flag=3))
    with pytest.raises(TypeError, match="WithKeywords takes x, .*: it was given 2 inputs"):
        model(X, X)
    with pytest.raises(TypeError, match="WithKeywords takes x"):
        model(X, x=X)
    model = make_model(WithMore())
    assert torch.equal(model(X), model(X, 1, 2, flag=3))
    model = fqt.quantize(WithOther(), "int8", (X, X))
    model = fqt.calibrate(model, [((X, X),)])
    assert torch.equal(model(X, X), model(X, X, 3)) and not torch.equal(model(X, X), model(X, 2 * X))


def test_a_layer_may_read_a_parameter():
    """As DeBERTa's keys of relative positions. The parameter gets its gradient."""
    net = Net(lambda m, x: m.q(x) @ m.k(m.e.weight).t(), True, q=nn.Linear(8, 8), k=nn.Linear(8, 8), e=nn.Embedding(5, 8))
    for preset in ("int8", "w4a4"):
        model = make_model(net, preset)
        model.zero_grad()
        model(X).square().sum().backward()
        assert model.e.weight.grad.abs().sum() > 0 and model.k.weight.grad.abs().sum() > 0
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X), net(X))
    with fqt.calibrating(model):  # without torch.no_grad
        model(X)


def test_calibration_reads_values_before_in_place_writes():
    """An activation in place at the beginning of a part."""
    seen = []
    for inplace in (False, True):
        torch.manual_seed(1)
        net = Net(lambda m, x: m.out(m.act(torch.cumsum(m.up(x), 1))), up=nn.Linear(8, 8), act=nn.SiLU(inplace), out=nn.Linear(8, 4))
        seen.append([row["amax"] for codes in make_model(net).lowered_modules().values() for row in codes.network.quantizers()])
    assert seen[0] == seen[1]


def test_parametrized_modules_of_the_user_stay_in_torch():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)
    net = Net(lambda m, x: m.b(F.relu(m.a(x))), True, a=parametrizations.weight_norm(Scaled(8, 8)), b=nn.Linear(8, 4))
    model = make_model(net)
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X), net(X))
    model(X).sum().backward()
    assert net.a.parametrizations.weight.original0.grad is not None
    rows = {row["layer"]: row for row in fqt.layers(model)}
    assert rows["b"]["runs"] == "codes" and rows["a"]["runs"] == "torch" and "parametrize" in rows["a"]["why"]


def test_rejects_parameter_types_immediately(dtype=torch.float64):
    """By the module's path, in models that torch.fx reads and in others, of one layer and of all."""
    for opaque in (False, True):
        net = Net(lambda m, x: m.body(x), opaque, body=plain()).to(dtype)
        for x in (X, X.to(dtype)):
            with pytest.raises(fq.ArgumentError, match=rf"'body.0.weight' is {dtype}: .*model.float\(\)"):
                fqt.quantize(net, "int8", x)
        net.float().body[2].to(dtype)
        with pytest.raises(fq.ArgumentError, match="'body.2.weight'"):
            fqt.quantize(net, "int8", X)
    net = Net(lambda m, x: m.body(x) @ m.w.to(torch.float32), body=plain(), w=nn.Parameter(torch.randn(4, 4, dtype=dtype)))
    assert fqt.quantize(net, "int8", X).lowered_modules()  # torch computes with it
    make_model(net.float())


def test_rejects_parameters_without_values():
    with pytest.raises(fq.ArgumentError, match="'0.weight' is on the meta device"):
        fqt.quantize(plain().to("meta"), "int8", X.to("meta"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("preset", ["int8", "w4a4", "nvfp4"])
def test_computes_with_the_float32_values_of_other_parameters(preset, dtype):
    """A float32 model with the same values has the same codes. Outputs, gradients and statistics have the type of the parameters."""
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5)).to(dtype)
    x = torch.randn(16, 3, 8, 8).to(dtype)
    model = fqt.calibrate(fqt.quantize(network(), preset, x), [x])
    float32 = fqt.calibrate(fqt.quantize(network().float(), preset, x.float()), [x.float()])
    y = model.eval()(x)
    assert y.dtype == dtype and torch.equal(y, float32.eval()(x.float()).to(dtype))
    model.train()(x).sum().backward()
    float32.train()(x.float()).sum().backward()
    for (name, own), (_, other) in zip(model.named_parameters(), float32.named_parameters(), strict=True):
        assert own.dtype == (torch.float32 if name.endswith("amax") else dtype)
        assert torch.equal(own.grad, other.grad.to(own.dtype)), name
    assert torch.equal(model[1].running_mean, float32[1].running_mean.to(dtype))


def test_converts_a_quantized_model_to_another_type():
    model = make_model(plain()).eval()
    ranges = [row["amax"] for row in fqt.quantizers(model)]
    with torch.no_grad():
        model.bfloat16().get_parameter("0.weight").mul_(2)  # the next call reads the new values
        assert model(X).dtype == torch.bfloat16 and [row["amax"] for row in fqt.quantizers(model)] == ranges
        assert torch.equal(model.float()(X).bfloat16(), model.bfloat16()(X))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_of_torch_compute_the_same_bits(dtype):
    """Attention without quantizers is torch's own in graphs. In eager float32 it is the library's, which adds up in another order."""
    net = Net(lambda m, x: m.out(nn.functional.scaled_dot_product_attention(*m.qkv(x)[:, None].chunk(3, -1))[:, 0]), True,
              qkv=nn.Linear(8, 24), out=nn.Linear(8, 4)).to(dtype)
    x = torch.randn(4, 6, 8).to(dtype)
    model = make_model(net, x=x).eval()
    with torch.no_grad():
        graph = torch.compile(model, backend="eager")(x)
    torch.testing.assert_close(graph, model(x), rtol=0, atol=0 if dtype == torch.bfloat16 else 1e-6)


def test_autocast_decides_the_type_of_outputs():
    model = make_model(plain())
    for module in (model, model.bfloat16()):
        with torch.autocast("cpu", torch.float16):
            y = module(X)
        assert y.dtype == torch.float16
        module.zero_grad()
        y.float().sum().backward()
        assert all(p.grad is not None and p.grad.dtype == p.dtype for p in module.parameters())
        assert torch.equal(y, copy.deepcopy(module).float()(X).half())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_calibrates_with_batches_of_other_types(dtype):
    batch = X.to(dtype)
    nets = [plain(), Net(lambda m, x: m.body(x), True, body=plain()),
            Net(lambda m, x: m.out(torch.cumsum(m.body(x).float(), 1)), body=plain(), out=nn.Linear(4, 4))]
    for net in nets:
        model = fqt.calibrate(fqt.quantize(net, "int8", X), [batch])
        assert torch.equal(model(batch), make_model(net, x=batch.float())(batch))
    attention = Net(lambda m, x: m.a(*[x[:, None]] * 3, need_weights=False)[0][:, 0], True, a=nn.MultiheadAttention(8, 2, batch_first=True))
    model = fqt.calibrate(fqt.quantize(attention, "int8", X), [batch])
    assert torch.equal(model(batch), make_model(attention, x=batch.float())(batch))


def text_net():
    return Net(lambda m, x: m.head(m.lstm(m.words(x))[0]), words=nn.Embedding(16, 32), lstm=nn.LSTM(32, 32), head=nn.Linear(32, 4))


def test_names_float_layers_with_a_reason():
    """Recurrent layers and rows that are no whole blocks, by their share of the multiply-adds."""
    ids = torch.randint(0, 16, (2, 10))
    with pytest.warns(fq.FakequantWarning) as report:
        model = fqt.quantize(text_net(), "int8", ids)
    assert [str(w.message) for w in report] == [
        "[quantize] 98 % of the multiply-adds with parameters stay in floats: 'lstm' (98 %: LSTM that is not batch_first). "
        "fakequant.torch.summary(model) lists all layers"]
    rows = {row["layer"]: (row["runs"], row["why"]) for row in fqt.layers(model)}
    assert rows == {"words": ("torch", "Embedding is not quantized"), "lstm": ("torch", "LSTM that is not batch_first"), "head": ("codes", "")}
    net = nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 32))
    with pytest.warns(fq.FakequantWarning, match=r"46 % of .*: '2' \(46 %: its rows of 48 are no whole blocks of 32 as ggml has them\)") as report:
        model = fqt.quantize(net, "q4_0", torch.randn(2, 32))
    assert len(report) == 1
    rows = {row["layer"]: (row["runs"], row["why"]) for row in fqt.layers(model)}
    assert rows["2"] == ("float", "its rows of 48 are no whole blocks of 32 as ggml has them")
    assert rows["1"] == ("float", "LayerNorm is not quantized") and rows["0"] == rows["4"] == ("codes", "")


def test_does_not_warn_about_layers_disabled_by_a_rule(recwarn):
    model = fqt.quantize(plain(), {"preset": "int8", "rules": [{"pattern": "2.*", "enable": False}]}, X)
    assert [(row["runs"], row["why"]) for row in fqt.layers(model)] == [("codes", ""), ("float", "its quantizers are off"), ("codes", "")]
    assert not any("stay in floats" in str(w.message) for w in recwarn)


def test_reports_the_reason_of_a_norm_between_parts():
    net = Net(lambda m, x: m.b(torch.cumsum(m.n(torch.cumsum(m.a(x), 1)), 1)), a=nn.Linear(8, 8), n=nn.LayerNorm(8), b=nn.Linear(8, 8))
    rows = {row["layer"]: (row["runs"], row["why"]) for row in fqt.layers(make_model(net))}
    assert rows == {"a": ("codes", ""), "n": ("torch", "LayerNorm is not quantized"), "b": ("codes", "")}


def test_products_with_a_transposed_parameter_become_linear_layers():
    transposes = [lambda w: w.T, lambda w: w.t(), lambda w: w.mT, lambda w: w.transpose(0, 1), lambda w: w.transpose(-1, -2)]
    for transpose in transposes:
        model = make_model(Net(lambda m, x: F.relu(x @ transpose(m.w)) @ m.v, w=nn.Parameter(torch.randn(4, 8)), v=nn.Parameter(torch.randn(4, 3))))
        assert len(model.lowered_modules()) == 1 and not model.floats
        with fqt.quantizers_off(model):
            torch.testing.assert_close(model(X), F.relu(X @ model.w.t()) @ model.v)
    model = make_model(Net(lambda m, x: x.transpose(1, 1) @ m.w.transpose(0, 0), w=nn.Parameter(torch.randn(8, 8))))
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X), X @ model.w)


def test_keeps_an_ordered_dict():
    from collections import OrderedDict
    net = Net(lambda m, x: OrderedDict(out=m.b(m.a(x)), more=[OrderedDict(z=m.a(x)), {"a": x}]), a=nn.Linear(8, 8), b=nn.Linear(8, 4))
    model = make_model(net)
    y = model(X)
    assert type(y) is OrderedDict and list(y) == ["out", "more"] and type(y["more"][0]) is OrderedDict and type(y["more"][1]) is dict
    with fqt.quantizers_off(model):
        torch.testing.assert_close(model(X)["out"], net(X)["out"])


def test_warns_about_used_attention_weights(recwarn):
    for opaque in (False, True):
        for reads, call in ((True, lambda m, x: m.a(x, x, x)), (False, lambda m, x: m.a(x, x, x, need_weights=False)[0])):
            net = Net(call, opaque, a=nn.MultiheadAttention(8, 2, batch_first=True))
            recwarn.clear()
            fqt.quantize(net, "int8", torch.randn(2, 3, 8))
            report = [str(w.message) for w in recwarn if "attention weights are None" in str(w.message)]
            assert len(report) == reads and all("'a'" in text for text in report)


class Spoken(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = plain()

    def forward(self, batch):
        return self.body(batch["x"])


def quantized():
    return fqt.quantize(plain(), "int8", X)


@pytest.mark.parametrize("call, words", [
    (lambda: fqt.quantize(plain(), X), r"\[quantize\] config is a Tensor: use the name of a preset"),
    (lambda: fqt.quantize(plain(), {"x": X}), r"\[quantize\] config is not JSON .*use the name of a preset"),
    (lambda: fqt.quantize(plain(), nn.Linear(1, 1), X), "config is a Linear"),
    (lambda: fqt.quantize(plain(), "{", X), "config is not valid JSON"),
    (lambda: fqt.quantize(Spoken(), "int8", {"x": X}), r"dict of x, Spoken.forward: .* for one argument that is a dict use \{'batch': batch\}"),
    (lambda: fqt.calibrate(quantized(), X), r"data is one batch, a Tensor: .* \[batch\]"),
    (lambda: fqt.calibrate(quantized(), X.numpy()), r"data is one batch, a ndarray"),
    (lambda: fqt.calibrate(quantized(), {"x": X}), "data is one batch, a dict"),
    (lambda: fqt.calibrate(quantized(), (X, torch.zeros(32, dtype=torch.long))), "data is one batch, a tuple"),
    (lambda: fqt.calibrate(quantized(), [X.numpy()]), "array of numpy: .*torch.as_tensor"),
    (lambda: fqt.calibrate(quantized(), [{"input": X, "labels": X}]), "Sequential takes input.* labels.*a dict of all arguments of forward"),
    (lambda: fqt.calibrate(fqt.quantize(Spoken(), "int8", {"batch": {"x": X}}), [{"x": X}]), "For one argument that is a dict"),
])
def test_errors_name_the_remedy(call, words):
    with pytest.raises(fq.ArgumentError, match=words):
        call()


def test_accepts_a_dict_as_one_argument():
    model = fqt.quantize(Spoken(), "int8", {"batch": {"x": X}})
    fqt.calibrate(model, [{"batch": {"x": X}}])
    assert torch.equal(model({"x": X}), make_model(plain())(X))


def test_predictions_have_the_input_kind():
    model, labels = fq.model("mlp", [8], 4), torch.zeros(32, dtype=torch.long)
    y = model.predict(X.numpy())
    for data in (X, (X, labels)):
        assert isinstance(model.predict(data), torch.Tensor) and torch.equal(model.predict(data), torch.from_numpy(y))
    assert type(y).__module__ == type(model.predict((X.numpy(), labels.numpy()))).__module__ == "numpy"
    assert type(model.predict(fq.TensorDataset(X.numpy()))).__module__ == "numpy"
