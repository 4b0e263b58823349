"""State of quantizers as tensors: safetensors, transformers, torch.distributed.checkpoint, copies, state dicts of 0.1."""
import copy
import os
import pickle
import sys
import warnings

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
safetensors = pytest.importorskip("safetensors.torch", reason="there is no safetensors beside torch")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

DATA = os.path.join(os.environ.get("FAKEQUANT_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "..", "..")), "tests", "data")
PRESETS = ["int8", "int8_weight_only", "w4a8", "w4a4", "w2a2", "ternary", "binary", "int4_blockwise", "fp8", "fp8_2d_blockwise", "nvfp4",
           "mxfp8", "mxint8", "8da8w", "8da4w", "q4_0", "q8_0", {"preset": "int8", "arithmetic": "reference"},
           {"preset": "int8", "scale": "pow2"}]


class Mixed(nn.Module):
    """Two parts with a function of torch between them, a sum, a convolution and a module that is called twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.up, self.twice, self.head = nn.Linear(128, 64), nn.Linear(64, 64), nn.Linear(64, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = F.max_pool2d(x + self.branch(x), 2).flatten(1)
        x = torch.cumsum(self.up(x), 1)
        return self.head(F.relu(self.twice(F.relu(self.twice(x)))))


X = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def mixed(config="int8"):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        return fqt.quantize(Mixed(), config, X)


def trained(config="int8", steps=2):
    model = fqt.calibrate(mixed(config), [X])
    optimizer = torch.optim.AdamW(fqt.parameter_groups(model, lr=1e-3))
    for _ in range(steps):
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_state_round_trips_through_safetensors(preset, tmp_path):
    """Into models before and after calibration, strictly and not: the same outputs to the bit."""
    model = trained(preset)
    state, wanted = model.state_dict(), model(X)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    safetensors.save_file(state, str(tmp_path / "model.safetensors"))
    loaded = safetensors.load_file(str(tmp_path / "model.safetensors"))
    other = fqt.calibrate(mixed(preset), [2 * X])
    for target, strict in ((mixed(preset), True), (mixed(preset), False), (other, True)):
        target.load_state_dict(loaded, strict=strict)
        assert torch.equal(target.eval()(X), wanted)


def test_names_are_paths_of_modules():
    state = trained("w4a4").state_dict()
    assert not [name for name in state if "codes" in name or "_extra_state" in name]
    for name in ("conv.weight_quantizer.amax", "branch.0.input_quantizer.amax", "add.input_quantizer_1.amax", "up.weight_quantizer.settings",
                 "twice.call_2.weight_quantizer.amax"):
        assert name in state
    assert state["conv.weight_quantizer.amax"].shape == (8,) and state["up.input_quantizer.amax"].numel() == 1
    learned = [name for name, _ in mixed("w4a4").named_parameters() if name.endswith("amax")]
    assert "branch.0.weight_quantizer.amax" in learned and "head.input_quantizer.amax" in learned


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_loads_a_float_state_dict_strictly(preset):
    floats = Mixed().state_dict()
    for model in (mixed(preset), trained(preset)):
        model.load_state_dict(floats)
        assert torch.equal(model.up.weight, floats["up.weight"])


def test_float_model_is_unchanged():
    net = Mixed()
    names, modules = list(net.state_dict()), [type(module) for module in net.modules()]
    model = fqt.calibrate(fqt.quantize(net, "w4a4", X), [X])
    assert list(net.state_dict()) == names and [type(module) for module in net.modules()] == modules
    assert [name for name in model.state_dict() if "_quantizer" not in name] == names
    assert all(a is b for a, b in zip(net.parameters(), [p for name, p in model.named_parameters() if "_quantizer" not in name]))


@pytest.mark.parametrize("given, own, words", [
    ("w4a8", "int8", "int4, axis 0, narrow_range.*model int8"), ("int8", "fp8", "int8.*and the model e4m3"),
    ("int8", {"preset": "int8", "scale": "pow2"}, "pow2"),
    ("int8", {"preset": "int8", "rules": [{"pattern": "*weight_quantizer", "axis": None}]}, "axis 0")])
def test_rejects_another_format(given, own, words):
    model, state = fqt.calibrate(mixed(own), [X]).eval(), trained(given).state_dict()
    before = {row["name"]: row["format"] for row in fqt.quantizers(model)}
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=f"(?s)'(up|branch.0).weight_quantizer': the state dict has .*{words}"):
            model.load_state_dict(state, strict=strict)
    assert before == {row["name"]: row["format"] for row in fqt.quantizers(model)}


def test_reports_missing_quantizers():
    rules = {"preset": "int8", "rules": [{"pattern": "head.*", "enable": False}]}
    state = trained(rules).state_dict()
    model = fqt.calibrate(mixed(), [X])
    with pytest.raises(RuntimeError, match="(?s)Missing.*head.input_quantizer.amax"):
        model.load_state_dict(state)
    with pytest.raises(RuntimeError, match="(?s)Unexpected.*head.input_quantizer.amax"):
        mixed(rules).load_state_dict(trained().state_dict())


@pytest.mark.parametrize("damage", [lambda text: text[:20], lambda text: torch.zeros_like(text), lambda text: text[torch.randperm(len(text))]])
def test_rejects_damaged_settings(damage):
    state = trained().state_dict()
    state["up.weight_quantizer.settings"] = damage(state["up.weight_quantizer.settings"])
    with pytest.raises(RuntimeError, match="'up.weight_quantizer'"):
        mixed().load_state_dict(state)


class Block(nn.Module):
    """The network of the recorded state. Its attention has quantizers and is a part of its own."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (t.reshape(n, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(torch.cumsum(q, 1), k, v).transpose(1, 2).reshape(n, length, width)
        return x + self.out(torch.cumsum(y, 1))


def recorded_network(name):
    if name == "attention":
        return Block()
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1),
                         nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


@pytest.mark.parametrize("name", ["int8", "w4a4", "attention"])
def test_loads_state_dicts_of_0_1(name):
    """tests/data/torch_state_0.1.pt has state dicts with dicts in them, written by 0.1, and what their models gave."""
    recorded = torch.load(os.path.join(DATA, "torch_state_0.1.pt"), weights_only=True)[name]
    config = recorded["config"]
    if name == "w4a4":  # 4 bits in pools too, the preset of that time
        config = {"preset": config, "rules": [{"pattern": "@sums.*", "num_bits": 4}]}
        with pytest.raises(RuntimeError, match="'6.input_quantizer': the state dict has int4, and the model int8"):
            fqt.quantize(recorded_network(name), recorded["config"], recorded["x"]).load_state_dict(recorded["state"])
    model = fqt.quantize(recorded_network(name), config, recorded["x"]).eval()
    model.load_state_dict(recorded["state"])
    assert torch.equal(model(recorded["x"]), recorded["y"])
    if name == "int8":
        with pytest.raises(RuntimeError, match="'8.weight_quantizer': the state dict has int8"):
            fqt.quantize(recorded_network(name), "fp8", recorded["x"]).load_state_dict(recorded["state"])


@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_copies_have_independent_states(preset):
    model = trained(preset)
    wanted = model(X)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(pickle.loads(pickle.dumps(model)))):
        assert torch.equal(other(X), wanted)
        with torch.no_grad():
            other.up.input_quantizer.amax.mul_(0.5)
        assert not torch.equal(other(X), wanted) and torch.equal(model(X), wanted)
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(X), wanted)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
    for _ in range(3):
        average.update_parameters(model)
    torch.testing.assert_close(average.eval()(X), wanted, rtol=1e-4, atol=1e-4)
    assert average.module.up.input_quantizer.settings.equal(model.up.input_quantizer.settings)


def test_sets_ranges_through_tensors():
    model = trained()
    with torch.no_grad():
        model.head.input_quantizer.amax.fill_(3.0)
    (row,) = [row for row in fqt.quantizers(model) if row["name"] == "head.input_quantizer"]
    assert row["amax"] == (3.0, 3.0) and row["enabled"]


def test_ranges_are_parameters_from_the_start():
    """An optimizer made before calibrate trains them, and calibrating again keeps them."""
    model = mixed("w4a4")
    optimizer = torch.optim.SGD(fqt.parameter_groups(model, lr=0.1))
    before = {name: parameter for name, parameter in model.named_parameters() if name.endswith("amax")}
    assert before and all(parameter.isnan().all() for parameter in before.values())
    for _ in range(2):
        fqt.calibrate(model, [X])
        assert all(parameter is before[name] for name, parameter in model.named_parameters() if name in before)
    known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert all(id(parameter) in known for parameter in model.parameters())
    calibrated = {name: parameter.detach().clone() for name, parameter in before.items()}
    model.train()(X).square().mean().backward()
    optimizer.step()
    assert any(not torch.equal(parameter, calibrated[name]) for name, parameter in before.items())
    assert all(parameter.grad is not None and parameter.grad.shape == parameter.shape for parameter in before.values())


def test_supports_distributed_checkpoints(tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    for i, preset in enumerate(["int8", "w4a4", "int4_blockwise"]):
        model, other, third = trained(preset), mixed(preset), mixed(preset)
        dcp.save(get_model_state_dict(model), checkpoint_id=str(tmp_path / str(i)))
        state = get_model_state_dict(other)
        dcp.load(state, checkpoint_id=str(tmp_path / str(i)))
        set_model_state_dict(other, state)
        assert torch.equal(other.eval()(X), model(X))
        state = third.state_dict()
        dcp.load(state, checkpoint_id=str(tmp_path / str(i)))
        third.load_state_dict(state)
        assert torch.equal(third.eval()(X), model(X))


def llama():
    transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))


IDS = torch.arange(64).reshape(4, 16) % 64


def quantized_llama(preset="int8", calibrated=True):
    model = fqt.quantize(llama(), preset, {"input_ids": IDS})
    return fqt.calibrate(model, [{"input_ids": IDS}]) if calibrated else model


@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_supports_save_pretrained(preset, tmp_path):
    model = quantized_llama(preset).eval()
    model.save_pretrained(tmp_path)
    state = safetensors.load_file(str(tmp_path / "model.safetensors"))
    assert "model.layers.0.mlp.down_proj.weight_quantizer.amax" in state
    other = quantized_llama(preset, calibrated=False).eval()
    left = other.load_state_dict(state, strict=False)
    assert not left.missing_keys and not left.unexpected_keys
    assert torch.equal(other(input_ids=IDS).logits, model(input_ids=IDS).logits)


@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_trainer_resumes(preset, tmp_path):
    """A run that stops after two steps and resumes from its checkpoint ends with the bits of one that goes through."""
    transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")
    pytest.importorskip("accelerate", reason="there is no accelerate beside torch, which Trainer needs")

    def run(name, steps, resume=None):
        arguments = transformers.TrainingArguments(str(tmp_path / name), max_steps=steps, per_device_train_batch_size=2, save_steps=2,
                                                   eval_steps=2, eval_strategy="steps", load_best_model_at_end=resume is not None,
                                                   learning_rate=1e-3, lr_scheduler_type="constant", report_to=[], use_cpu=True,
                                                   disable_tqdm=True)
        rows = [{"input_ids": row, "labels": row} for row in IDS]
        model = quantized_llama(preset, calibrated=resume is None)
        trainer = transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
        trainer.train(resume_from_checkpoint=resume)
        return model.eval()(input_ids=IDS).logits
    whole = run("whole", 4)
    run("half", 2)
    assert torch.equal(run("half", 4, str(tmp_path / "half" / "checkpoint-2")), whole)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_loads_the_learned_ranges_of_recurrent_layers(kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = kind(8, 6, bidirectional=True, batch_first=True), nn.Linear(12, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0])
    x, net = torch.randn(4, 5, 8), Net()
    model, other = (fqt.quantize(net, "w4a8", x) for _ in range(2))
    fqt.calibrate(model, [x])
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(x), model.eval()(x))
