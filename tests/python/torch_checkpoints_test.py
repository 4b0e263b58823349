"""State dicts of ModelOpt and torchao, as these write them, in models of fakequant.torch."""
import copy
import os
import sys

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402

SIGNED = {"preset": "int8", "target": "tensorrt"}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.fixture(scope="module")
def x():
    torch.manual_seed(1)
    return torch.randn(16, 1, 8, 8)


@pytest.fixture(scope="module")
def modelopt(x):
    mtq = pytest.importorskip("modelopt.torch.quantization", reason="there is no ModelOpt")
    return mtq.quantize(net().eval(), mtq.INT8_DEFAULT_CFG, lambda model: model(x))


def test_imports_modelopt_ranges(modelopt, x, tmp_path):
    import modelopt.torch.opt as mto
    mto.save(modelopt, str(tmp_path / "theirs.pth"))
    file = torch.load(str(tmp_path / "theirs.pth"), weights_only=False)
    own = fqt.quantize(net(), SIGNED, x).eval()
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.zero_()
    for state in (modelopt.state_dict(), file):
        assert len(fqt.load_quantized(own, state)) == 6
    theirs = {name: quantizer for name, quantizer in modelopt.named_modules() if name.endswith("_quantizer")}
    rows = {row["name"]: row for row in own.codes_0.network.quantizers()}
    for layer in ("0", "3", "5"):
        assert rows[f"{layer}.input_quantizer"]["amax"][1] == theirs[f"{layer}.input_quantizer"].amax.item()
        amax = theirs[f"{layer}.weight_quantizer"].amax
        assert rows[f"{layer}.weight_quantizer"]["amax"] == (amax.min().item(), amax.max().item())
        grid = torch.as_tensor(own.codes_0.network.weights_on_grid([layer])[layer])
        weight = dict(modelopt.named_modules())[layer].weight
        # ModelOpt multiplies by 127 / amax, we divide by amax / 127: equal codes except for ties, equal values up to one rounding.
        torch.testing.assert_close(grid, theirs[f"{layer}.weight_quantizer"](weight).detach(), rtol=1e-6, atol=0)
    with torch.no_grad():
        wanted, found = modelopt(x), own(x)
        float_output = own.run_float(x)
    off, quantization = (found - wanted).abs(), (float_output - wanted).abs()
    # Except for images with a value at a tie: biases are on the accumulator's grid, here of 1e-6.
    assert (off < 1e-5).float().mean() > 0.8 and off.mean() < 0.2 * quantization.mean() and off.max() < quantization.max()


def test_rejects_unsupported_modelopt_features_by_name(x):
    mtq = pytest.importorskip("modelopt.torch.quantization", reason="there is no ModelOpt")
    state = mtq.quantize(net().eval(), mtq.INT8_DEFAULT_CFG, lambda model: model(x)).state_dict()
    own = fqt.calibrate(fqt.quantize(net(), "int8", x).eval(), [x])
    before = own(x)
    with pytest.raises(fq.ArgumentError, match="'3.input_quantizer._amax': it is unsigned here") as caught:
        fqt.load_quantized(own, state)
    assert "nothing was changed" in str(caught.value) and torch.equal(own(x), before)
    own = fqt.calibrate(fqt.quantize(net(), SIGNED, x).eval(), [x])
    for change, words in [({"3.input_quantizer._pre_quant_scale": torch.ones(512)}, "multiplies the input"),
                          ({"7.weight": torch.ones(1)}, "'7.weight': the model has no such parameter"),
                          ({"4.input_quantizer._amax": torch.ones(())}, "'4.input_quantizer._amax': the library does not run its layer"),
                          ({"3.output_quantizer._amax": torch.ones(())}, "no such quantizer here"),
                          ({"3.weight_quantizer._amax": 0.5 * state["3.weight_quantizer._amax"]}, "below -amax")]:
        before = own(x)
        with pytest.raises(fq.ArgumentError, match=words):
            fqt.load_quantized(own, {**state, **change})
        assert torch.equal(own(x), before)
    smooth = mtq.quantize(net().eval(), mtq.INT8_SMOOTHQUANT_CFG, lambda model: model(x)).state_dict()
    with pytest.raises(fq.ArgumentError, match="_pre_quant_scale"):
        fqt.load_quantized(own, smooth)


def test_rejects_other_modelopt_formats(x):
    mtq = pytest.importorskip("modelopt.torch.quantization", reason="there is no ModelOpt")
    import modelopt.torch.opt as mto
    theirs = mtq.quantize(net().eval(), mtq.FP8_DEFAULT_CFG, lambda model: model(x))
    file = {"modelopt_state": mto.modelopt_state(theirs), "model_state_dict": theirs.state_dict()}
    with pytest.raises(fq.ArgumentError, match=r"it has \(4, 3\) bits, and ours 8"):
        fqt.load_quantized(fqt.quantize(net(), SIGNED, x), file)
    own = fqt.quantize(net(), {"preset": "fp8", "target": "tensorrt"}, x).eval()
    assert len(fqt.load_quantized(own, file)) == 6
    grid = torch.as_tensor(own.codes_0.network.weights_on_grid(["3"])["3"])
    quantizer, weight = dict(theirs.named_modules())["3.weight_quantizer"], dict(theirs.named_modules())["3"].weight
    torch.testing.assert_close(grid, quantizer(weight).detach(), rtol=1e-6, atol=0)


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64)).eval()


WIDE = {"rules": [{"pattern": "*weight_quantizer", "num_bits": 8, "axis": 0}, {"pattern": "*input_quantizer", "enable": False}],
        "target": "none"}
GROUPS = {"rules": [{"pattern": "*weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 32}},
                    {"pattern": "*input_quantizer", "enable": False}], "target": "none"}


def torchao_state(config):
    quantization = pytest.importorskip("torchao.quantization", reason="there is no torchao")
    model = linear()
    quantization.quantize_(model, config(quantization))
    return model, model.state_dict()


CONFIGS = [(lambda q: q.Int8WeightOnlyConfig(), WIDE),
           (lambda q: q.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=q.PerAxis(0)), WIDE),
           (lambda q: q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32)), GROUPS),
           (lambda q: q.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=q.PerGroup(32)), GROUPS)]


@pytest.mark.parametrize("config, rules", CONFIGS)
def test_codes_match_torchao(config, rules):
    model, state = torchao_state(config)
    own = fqt.quantize(linear(), rules, torch.zeros(2, 64)).eval()
    assert len(fqt.load_quantized(own, state)) == 2
    for name in ("0", "2"):
        theirs, grid = state[f"{name}.weight"], torch.as_tensor(own.codes_0.network.weights_on_grid([name])[name])
        wide = theirs.block_size[-1]
        assert torch.equal((grid / theirs.scale.repeat_interleave(wide, 1)).round().to(torch.int8), theirs.qdata)
        torch.testing.assert_close(grid, theirs.dequantize(), rtol=2**-22, atol=0)  # a quotient of floats is not every float
    x = torch.randn(4, 64)
    with torch.no_grad():
        twin = copy.deepcopy(linear())
        twin.load_state_dict({name: value.dequantize() if name.endswith("weight") else value for name, value in state.items()})
        torch.testing.assert_close(own(x), twin(x), rtol=1e-5, atol=1e-5)


def test_rejects_unsupported_torchao_features_by_name():
    _, state = torchao_state(CONFIGS[0][0])
    narrow = fqt.quantize(linear(), {"preset": "int8_weight_only", "target": "none"}, torch.zeros(2, 64)).eval()
    weight = narrow.run_float(torch.ones(1, 64))
    with pytest.raises(fq.ArgumentError, match="'0.weight': .* of its codes are outside of -127 .. 127"):
        fqt.load_quantized(narrow, state)
    assert torch.equal(narrow.run_float(torch.ones(1, 64)), weight)
    with pytest.raises(fq.ArgumentError, match=r"its blocks are \[1, 64\], and ours \[1, 32\]"):
        fqt.load_quantized(fqt.quantize(linear(), GROUPS, torch.zeros(2, 64)), state)
    asymmetric = copy.deepcopy(state)
    asymmetric["0.weight"].zero_point[0] = 3
    with pytest.raises(fq.ArgumentError, match="'0.weight': it has a zero point"):
        fqt.load_quantized(fqt.quantize(linear(), WIDE, torch.zeros(2, 64)), asymmetric)


def test_checkpoint_round_trips_through_torch(tmp_path, x):
    model = fq.model("mlp", [64], 10, options={"hidden": [32]})
    model.quantize("int8")
    model.calibrate(x.reshape(16, 64).numpy())
    model.save(str(tmp_path / "own.h5"))
    state = {name: torch.from_numpy(value) for name, value in fq.load(str(tmp_path / "own.h5")).state_dict().items()}
    twin = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    names = dict(zip(state, twin.state_dict()))
    twin.load_state_dict({names[name]: value for name, value in state.items()})
    again = fq.load(str(tmp_path / "own.h5"))
    again.load_state_dict({name: twin.state_dict()[names[name]] for name in state})
    assert np.array_equal(again.eval() or again(x.reshape(16, 64).numpy()), model.eval() or model(x.reshape(16, 64).numpy()))
