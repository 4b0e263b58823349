"""Adapters of peft, added before and after quantize: training, calibration, files, merging."""
import copy
import os
import pickle
import sys

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
peft = pytest.importorskip("peft", reason="there is no peft beside torch")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_loops_test import PRESETS, llama, losses, quantized, trainer  # noqa: E402


def mlp(preset):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Sequential(nn.Linear(32, 32), nn.GELU()), nn.Linear(32, 4))
    x = torch.randn(64, 32)
    return fqt.calibrate(fqt.quantize(net, preset, x), [x]), x, (x[:, 0] > 0).long()


def with_adapters(model, *targets):
    torch.manual_seed(1)
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=list(targets), r=4))


def fit(model, x, y, steps=10):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    found = []
    for _ in range(steps):
        loss = F.cross_entropy(model.train()(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("preset", ["int8", "w4a4", "q4_0", "nvfp4"])
def test_adapters_of_a_quantized_model_train_alone(preset, tmp_path):
    model, x, y = mlp(preset)
    expected, names = model.eval()(x), list(model.state_dict())
    adapted = with_adapters(model, "0", "2.0")
    # q4_0 takes the range of each input. GELU of torch and of the library differ in the last bit, which may change a code
    torch.testing.assert_close(adapted.eval()(x), expected, rtol=0, atol=2e-2 if preset == "q4_0" else 0)
    with torch.no_grad():
        expected = adapted(x)
    frozen = {name: value.detach().clone() for name, value in adapted.named_parameters() if "lora" not in name}
    found = fit(adapted, x, y)
    assert found[-1] < 0.8 * found[0]
    assert all(torch.equal(value, frozen[name]) for name, value in adapted.named_parameters() if name in frozen)
    adapted.eval()
    with adapted.disable_adapter():
        assert torch.equal(adapted(x), expected)
    for twin in (copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted))):
        assert torch.equal(twin(x), adapted(x))
    adapted.save_pretrained(str(tmp_path / "adapter"))
    loaded = peft.PeftModel.from_pretrained(mlp(preset)[0], str(tmp_path / "adapter")).eval()
    assert torch.equal(loaded(x), adapted(x))
    assert [row["runs"] for row in fqt.summary(adapted).rows if row["weights"]] == ["codes"] * 3
    merged = adapted.merge_and_unload()
    assert not torch.equal(merged(x), expected)
    assert merged is model and type(merged[0]) is nn.Linear and list(merged.state_dict()) == names
    fqt.calibrate(merged, [x])
    assert F.cross_entropy(merged(x), y) < 0.9 * found[0]
    if preset == "int8":
        fqt.export(merged, str(tmp_path / "merged.onnx"))


def test_adapters_train_with_calibration_between():
    """A model with adapters is calibrated and inspected layer by layer, and afterwards as one part."""
    model, x, y = mlp("w4a4")
    adapted = with_adapters(model, "3")
    fqt.calibrate(adapted, [x])
    names = [row["name"] for row in fqt.quantizers(adapted) if row["enabled"]]
    with fqt.quantizers_off(adapted):
        torch.testing.assert_close(adapted.eval()(x), model.run_float(x))
    fit(adapted, x, y, steps=2)
    merged = adapted.unload()
    assert [row["name"] for row in fqt.quantizers(merged) if row["enabled"]] == names
    assert torch.isfinite(merged(x)).all()


def test_quantized_layers_are_layers_of_torch():
    model = quantized("int8")
    layer = model.model.layers[0].self_attn.q_proj
    assert isinstance(layer, nn.Linear) and isinstance(layer, fqt.Quantized) and (layer.in_features, layer.out_features) == (32, 32)
    assert layer.weight.shape == (32, 32) and layer.bias is None and "in_features=32" in repr(layer)
    assert type(pickle.loads(pickle.dumps(layer))) is type(layer)


def test_rejects_a_replaced_layer():
    model, x, _ = mlp("int8")
    model.add_module("0", nn.Linear(32, 32))
    with pytest.raises(fq.ArgumentError, match="'0' of Quantized.* is another module .* wrap the layer"):
        model(x)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("preset", [*PRESETS, "nvfp4"])
def test_trainer_trains_adapters(preset, order, tmp_path):
    targets = "q_proj", "v_proj", "up_proj", "down_proj"
    model = quantized(preset, with_adapters(llama(), *targets)) if order == "before" else with_adapters(quantized(preset), *targets)
    frozen = {name: value.detach().clone() for name, value in model.named_parameters() if not value.requires_grad}
    run = trainer(tmp_path, model, learning_rate=1e-2, gradient_checkpointing=True)
    before = run.evaluate()["eval_loss"]
    run.train()
    assert run.evaluate()["eval_loss"] < before - 0.1
    assert frozen and all(torch.equal(value, frozen[name]) for name, value in model.named_parameters() if name in frozen)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("preset", [*PRESETS, "nvfp4"])
def test_adapters_resume_to_the_bit(preset, order, tmp_path):
    """The checkpoints of peft have the adapters only. Ranges of other layers are frozen."""
    targets = "q_proj", "up_proj"

    def start():
        model = quantized(preset, with_adapters(llama(), *targets)) if order == "before" else with_adapters(quantized(preset), *targets)
        assert all("lora" in name for name, value in model.named_parameters() if value.requires_grad)
        return trainer(tmp_path, model, learning_rate=1e-2, save_strategy="steps", save_steps=3, max_steps=6)
    unbroken, resumed = start(), start()
    unbroken.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert losses(resumed) == losses(unbroken)
    with unbroken.model.eval().disable_adapter(), torch.no_grad():
        ids = torch.arange(20)[None]
        assert torch.equal(unbroken.model(input_ids=ids).logits, quantized(preset).eval()(input_ids=ids).logits)


def test_loaded_ranges_are_not_limited():
    """A training step at most doubles a range. A load is no step."""
    model, x, _ = mlp("w4a4")
    model(x)
    state = {name: 3 * value if name.endswith("amax") else value for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    model(x)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
