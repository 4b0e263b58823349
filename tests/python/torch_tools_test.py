"""Functions around a quantized model: summary, quantize_, filters, ranges by name, calibration by a function."""
import copy
import os
import pickle
import sys

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::fakequant.FakequantWarning")
torch.manual_seed(0)
X = torch.randn(16, 3, 8, 8)


class Opaque(nn.Module):
    """torch.fx cannot read its forward, so its submodules are quantized one by one."""

    def __init__(self):
        super().__init__()
        self.body = network()

    def forward(self, x):
        return self.body(x if x.abs().sum() > 0 else -x)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5))


@pytest.mark.parametrize("make", [network, Opaque])
def test_quantize_in_place_matches_quantize(make):
    model = make()
    parameters = dict(model.named_parameters())
    other = fqt.calibrate(fqt.quantize(make(), "w4a4", X), [X]).eval()
    assert fqt.quantize_(model, "w4a4", X) is None
    assert all(model.get_parameter(name) is value for name, value in parameters.items())
    fqt.calibrate(model, [X]).eval()
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(X), other(X))
    model.load_state_dict(other.state_dict())
    with pytest.raises(fq.ArgumentError, match="already quantized"):
        fqt.quantize_(model, "int8", X)


@pytest.mark.parametrize("make, prefix", [(network, ""), (Opaque, "body.")])
def test_filter_leaves_layers_in_floats(make, prefix):
    seen = []

    def is_convolution(module, path):
        seen.append(path)
        return isinstance(module, nn.Conv2d)
    model = fqt.calibrate(fqt.quantize(make(), "int8", X, filter_fn=is_convolution), [X])
    assert seen == [f"{prefix}0", f"{prefix}4"]
    assert [row["name"] for row in fqt.quantizers(model) if row["enabled"]] == [f"{prefix}0.input_quantizer", f"{prefix}0.weight_quantizer"]


def test_summary_shows_formats_and_coverage():
    model = fqt.calibrate(fqt.quantize(network(), "int8", X, filter_fn=lambda module, path: path != "4"), [X])
    table = fqt.summary(model)
    conv, norm, linear = table.rows
    assert (conv["weights"], conv["inputs"], conv["runs"]) == ("int8 narrow", "int8", "codes") and conv["amax"][1] == X.abs().max()
    assert (linear["weights"], linear["inputs"], linear["runs"]) == ("", "", "float")
    products = 16 * 64 * 8 * 27, 16 * 512 * 5  # of the batch of 16
    assert (conv["multiply_adds"], norm["multiply_adds"], linear["multiply_adds"]) == (products[0], 0, products[1])
    assert table.share == products[0] / sum(products)
    assert "its quantizers are off" in str(table) and "84.4 % of the multiply-adds" in str(table)


@pytest.mark.parametrize("layer, call", [
    (nn.Linear(8, 12), lambda layer, x: layer(x)), (nn.Conv1d(6, 4, 3), lambda layer, x: layer(x)),
    (nn.LSTM(8, 8, batch_first=True), lambda layer, x: layer(x)[0]), (nn.GRU(8, 8, batch_first=True), lambda layer, x: layer(x)[0]),
    (nn.MultiheadAttention(8, 2, batch_first=True), lambda layer, x: layer(x, x, x)[0]),
    (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), lambda layer, x: layer(x))], ids=lambda value: type(value).__name__)
def test_summary_counts_each_matrix(layer, call):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return call(self.layer, x)

    model = fqt.quantize(Model(), "int8", torch.randn(2, 6, 8))
    positions = 2 * 6  # 2 samples of 6 rows; the kernel has 6 positions among 8 columns
    matrices = sum(p.numel() for p in layer.parameters() if p.dim() > 1)
    assert sum(row["multiply_adds"] for row in fqt.summary(model).rows) == matrices * positions


def test_summary_has_the_form_of_modelopt(capsys):
    model = fqt.calibrate(fqt.quantize(network(), "w4a4", X), [X])
    fqt.print_quant_summary(model)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0.input_quantizer ") and "TensorQuantizer(8 bit fake per-tensor amax=" in lines[0]
    assert any("axis=0" in line for line in lines) and lines[-1] == f"{len(lines) - 1} TensorQuantizers found in model"


def test_summary_rejects_float_models():
    for function in (fqt.summary, fqt.print_quant_summary, lambda model: fqt.set_amax(model, {"*": 1.0})):
        with pytest.raises(fq.ArgumentError, match="no part of the model is quantized"):
            function(network())


@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_sets_ranges_by_name(preset):
    model = fqt.calibrate(fqt.quantize(network(), preset, X), [X]).eval()
    weights = torch.linspace(0.5, 1, 8)
    before = model(X)
    fqt.set_amax(model, {"*input_quantizer": 3.0, "0.weight_quantizer": weights})
    rows = {row["name"]: row["amax"] for row in fqt.quantizers(model)}
    assert rows["0.input_quantizer"] == rows["4.input_quantizer"] == (3.0, 3.0) and rows["0.weight_quantizer"] == (0.5, 1.0)
    assert torch.equal(model.state_dict()["0.weight_quantizer.amax"], weights)
    assert not torch.equal(model(X), before)


@pytest.mark.parametrize("ranges, why", [({"fc.*": 1.0}, "matches no enabled quantizer"), ({"0.weight_quantizer": torch.ones(7)}, "7 elements"),
                                         ({"0.input_quantizer": -1.0}, "not negative"), ({"0.input_quantizer": float("nan")}, "finite")])
def test_rejects_invalid_ranges(ranges, why):
    model = fqt.calibrate(fqt.quantize(network(), "int8", X), [X])
    with pytest.raises(fq.ArgumentError, match=why):
        fqt.set_amax(model, ranges)


def test_calibrates_by_a_function():
    batches = [X, 2 * X]
    model = fqt.calibrate(fqt.quantize(network(), "int8", X), lambda called: [called(x) for x in batches])
    other = fqt.calibrate(fqt.quantize(network(), "int8", X), batches)
    assert torch.equal(model.eval()(X), other.eval()(X))
    with pytest.raises(fq.ArgumentError, match="mask needs batches"):
        fqt.calibrate(model, lambda called: called(X), mask=lambda batch: batch)
    with pytest.raises(fq.ArgumentError, match="never called"):
        fqt.calibrate(model, lambda called: None)
