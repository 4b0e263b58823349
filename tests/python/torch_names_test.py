"""Names of quantizers: paths of modules, in models of one part and of many; rules, warnings and reports have them."""
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


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Net(nn.Module):
    """Two layers and a head. `parts`: with a function between them that the library has not; `opaque`: torch.fx cannot read it."""

    def __init__(self, kind, width=16):
        super().__init__()
        self.kind, self.stem = kind, nn.Linear(8, width)
        self.layers, self.lm_head = nn.ModuleList([Layer(width), Layer(width)]), nn.Linear(width, 3)

    def forward(self, x):
        if self.kind == "opaque" and x.sum() > 1e9:
            return x
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
            if self.kind == "parts":
                x = torch.cumsum(x, 1)
        return self.lm_head(x)


KINDS = ["whole", "parts", "opaque"]
X = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0))
LAYERS = ["stem", "layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down", "lm_head"]


def quantized(kind, rules=(), preset="int8"):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if kind != "whole" else "ignore", fq.FakequantWarning)
        return fqt.quantize(Net(kind), {"preset": preset, "rules": list(rules)}, X)


def weights(model):
    """{layer: (format, whether it is on)} of the quantizers of weights."""
    rows = [row for row in fqt.quantizers(model) if row["weight"]]
    return {row["name"].removesuffix(".weight_quantizer"): (row["format"], row["enabled"]) for row in rows}


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_paths(kind):
    model = quantized(kind)
    assert list(weights(model)) == LAYERS
    names = [row["name"] for row in fqt.quantizers(model)]
    assert len(set(names)) == len(names) and {"stem.input_quantizer", "layers.1.down.input_quantizer"} <= set(names)
    sums = {"layers.0.add.input_quantizer", "layers.1.add.input_quantizer"}  # functions of a module's forward
    assert sums <= {name for row in fqt.quantizers(model) for name in (row["name"], *row["aliases"])}
    modules = dict(model.named_modules())
    assert all(modules[row["name"]].amax is not None for row in fqt.quantizers(model) if row["enabled"])
    fqt.calibrate(model, [X])
    for row in fqt.quantizers(model):
        if row["enabled"]:
            assert row["amax"] == (modules[row["name"]].amax.min().item(), modules[row["name"]].amax.max().item())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern, off", [
    ("*lm_head*", ["lm_head"]), ("layers.0.*", ["layers.0.up", "layers.0.down"]), ("layers.1.down.weight_quantizer", ["layers.1.down"]),
    ("*.up.*", ["layers.0.up", "layers.1.up"]), ("@first*", ["stem"]), ("@last*", ["lm_head"]), ("@first.weight_quantizer", ["stem"])])
def test_rules_select_layers(kind, pattern, off):
    found = weights(quantized(kind, [{"pattern": pattern, "enable": False}]))
    assert [name for name in LAYERS if not found.get(name, ("", False))[1]] == off


@pytest.mark.parametrize("kind", KINDS)
def test_low_bit_edges_are_the_model_edges(kind):
    assert [name for name, (format_, _) in weights(quantized(kind, preset="w4a4")).items() if format_.startswith("int8")] == ["stem", "lm_head"]


@pytest.mark.parametrize("kind", KINDS)
def test_reports_an_unmatched_pattern_once(kind):
    with pytest.warns(fq.FakequantWarning) as report:
        fqt.quantize(Net(kind), {"preset": "int8", "rules": [{"pattern": "*lm_haed*", "enable": False}]}, X)
    (message,) = [str(entry.message) for entry in report if "matches no quantizer" in str(entry.message)]
    assert message.startswith("the pattern '*lm_haed*' matches no quantizer: the nearest are lm_head.")


#: Rules as in the constants of ModelOpt (0.47).
MODELOPT = {"quant_cfg": [
    {"quantizer_name": "*", "enable": False}, {"quantizer_name": "*weight_quantizer", "cfg": {"num_bits": 8, "axis": 0}},
    {"quantizer_name": "*input_quantizer", "cfg": {"num_bits": 8, "axis": None}},
    *({"quantizer_name": pattern, "enable": False} for pattern in (
        "*block_sparse_moe.gate*", "*lm_head*", "*mlp.gate.*", "*output_layer*", "*proj_out.*", "*router*", "output.*", "*visual*")),
    {"quantizer_name": "*", "parent_class": "nn.BatchNorm1d", "enable": False}], "algorithm": "max"}


@pytest.mark.parametrize("kind", KINDS)
def test_modelopt_constants_keep_the_head_in_float(kind):
    with warnings.catch_warnings(record=True) as report:
        warnings.simplefilter("always")
        model = fqt.quantize(Net(kind), MODELOPT, X)
    assert [name for name, (_, on) in weights(model).items() if on] == LAYERS[:-1]
    assert not [entry for entry in report if "matches no quantizer" in str(entry.message)]
    with pytest.warns(fq.FakequantWarning, match="'\\*other\\*' matches no quantizer"):
        fqt.quantize(Net(kind), MODELOPT | {"quant_cfg": [*MODELOPT["quant_cfg"], {"quantizer_name": "*other*", "enable": False}]}, X)


@pytest.mark.parametrize("kind", KINDS)
def test_disables_quantizers_by_path(kind):
    model = fqt.calibrate(quantized(kind), [X]).eval()
    on = model(X)
    with fqt.quantizers_off(model, "layers.0.*"):
        off = {row["name"] for row in fqt.quantizers(model) if not row["enabled"]}
        assert off and {"layers.0.up.weight_quantizer", "layers.0.down.weight_quantizer"} <= off and not torch.equal(model(X), on)
    assert torch.equal(model(X), on)
    with pytest.raises(fq.ArgumentError, match="'\\*lm_haed\\*' matches no quantizer: the nearest are lm_head"):
        with fqt.quantizers_off(model, "*lm_haed*"):
            pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_messages_use_the_names_of_the_model(kind, preset):
    model = quantized(kind, preset=preset)
    with pytest.raises(fq.ArgumentError, match=r"'[a-z0-9_.]+_quantizer' has no range: call fakequant.torch.calibrate\(model, loader\)") as report:
        model(X)
    assert any(name in str(report.value) for name in LAYERS)
    with pytest.raises(fq.Error, match="stem.input_quantizer"):
        fqt.calibrate(model, [X * float("nan")])


def test_supports_repeated_modules_and_functions():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.add, self.fc = nn.Identity(), nn.Linear(8, 8)
            self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

        def forward(self, x):
            y = self.fc(x)
            y = self.add(x + y) + self.fc(y) + self.layers(x)
            return torch.cat([y, x], 2)
    model = fqt.calibrate(fqt.quantize(Shared(), "int8", X), [X])
    assert list(weights(model)) == ["fc", "fc.call_2", "layers.0"]
    every = [name for row in fqt.quantizers(model) for name in (row["name"], *row["aliases"])]
    assert {"add_1.input_quantizer", "add_2.input_quantizer"} <= set(every) and len(set(every)) == len(every)
    off = weights(fqt.quantize(Shared(), {"preset": "int8", "rules": [{"pattern": "fc.*", "enable": False}]}, X))
    assert not any(on for name, (_, on) in off.items() if name.startswith("fc"))
    assert list(model.layers) == [model.layers[0], model.layers[1]]


def test_attention_uses_modelopt_names():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            q, k, v = (p(x).unflatten(-1, (2, 4)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
            return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    class Model(nn.Module):
        def __init__(self, opaque):
            super().__init__()
            self.self_attn, self.opaque = Attention(), opaque

        def forward(self, x):
            return self.self_attn(x) if not self.opaque or x.sum() < 1e9 else x
    rules = [{"pattern": "self_attn.[qkv]_bmm_quantizer", "num_bits": 8}]
    for opaque in (False, True):
        model = fqt.quantize(Model(opaque), {"preset": "int8", "rules": rules}, X)
        on = {row["name"] for row in fqt.quantizers(model) if row["enabled"]}
        assert {"self_attn.q_bmm_quantizer", "self_attn.k_bmm_quantizer", "self_attn.v_bmm_quantizer"} <= on
        assert "self_attn.softmax_quantizer" not in on
