"""save and load: a quantized model in one file."""
import json
import os
import sys
import zipfile

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
pytest.importorskip("transformers", reason="there are no transformers beside torch")
pytest.importorskip("safetensors.torch", reason="there is no safetensors beside torch")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch_files_test import IDS, LEAST_ERROR, float_network, train  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::fakequant.FakequantWarning")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name, config", [("llama_tied", "w4a4"), ("gpt2", "int8"), ("bert", LEAST_ERROR)])
def test_loaded_transformer_continues_with_the_same_bits(name, config, dtype, tmp_path):
    path = tmp_path / "model.fqt"
    model = fqt.quantize(float_network(name).to(dtype), config, {"input_ids": IDS}, filter_fn=lambda module, path: "lm_head" not in path)
    model.get_parameter(next(name for name, _ in model.named_parameters())).requires_grad_(False)
    fqt.calibrate(model, [{"input_ids": IDS}])
    train(model, 2)
    fqt.save(model, path)
    torch.manual_seed(5)
    loaded = fqt.load(path)
    assert type(loaded) is type(model) and torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(5))
    assert_equal_states(model, loaded)
    flags = [[(name, parameter.requires_grad) for name, parameter in each.named_parameters()] for each in (model, loaded)]
    assert flags[0] == flags[1] and [each.training for each in model.modules()] == [each.training for each in loaded.modules()]
    for each in (model, loaded):
        train(each, 2)
    assert_equal_states(model, loaded)
    assert torch.equal(model(input_ids=IDS).logits, loaded(input_ids=IDS).logits)


def assert_equal_states(model, other):
    own, theirs = model.state_dict(), other.state_dict()
    assert list(own) == list(theirs)
    for name, value in own.items():
        assert value.dtype == theirs[name].dtype and value.numpy(force=True).tobytes() == theirs[name].numpy(force=True).tobytes() \
            if value.dtype != torch.bfloat16 else torch.equal(value, theirs[name]), name


class Opaque(nn.Module):
    """torch.fx cannot read its forward. It has several inputs and a buffer that state dicts do not have."""

    def __init__(self):
        super().__init__()
        self.table, self.body = nn.Embedding(8, 16), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
        self.register_buffer("shift", torch.zeros(16), persistent=False)

    def forward(self, batch, scale=1.0):
        x = self.table(batch["ids"]) + batch["x"] + self.shift
        return self.body(x if x.sum() > -1e9 else -x) * scale


def opaque():
    torch.manual_seed(0)
    return Opaque()


EXAMPLE = {"batch": {"ids": torch.tensor([1, 2, 7]), "x": torch.randn(3, 16)}, "scale": 2.0}


def test_loaded_module_of_the_user(tmp_path):
    net = opaque()
    net.shift.fill_(0.25)
    model = fqt.calibrate(fqt.quantize(net, {"preset": "w4a4", "rules": [{"pattern": "*body.0*", "num_bits": 8}]}, EXAMPLE), [EXAMPLE])
    model.eval()
    model.body.train()
    fqt.save(model, tmp_path / "model")
    content = torch.load(tmp_path / "model", weights_only=True)
    assert content["version"] == 1 and content["example"][1][1]["batch"][1]["x"] == ["floats", [3, 16], "float32"]
    loaded = fqt.load(tmp_path / "model", opaque())
    assert torch.equal(loaded(**EXAMPLE), model(**EXAMPLE)) and not loaded.training and loaded.body.training
    with pytest.raises(fq.ArgumentError, match=r"which is not a model of transformers: use the float model, load\(path, model=Opaque\(..\)\)"):
        fqt.load(tmp_path / "model")
    for other, message in ((opaque().bfloat16(), "call model.to\\(torch.float32\\) first"), (nn.Linear(2, 2), "model does not fit .*: 'weight' is missing"),
                           (loaded, "already quantized"), ("net", "model is a str")):
        with pytest.raises(fq.ArgumentError, match=message):
            fqt.load(tmp_path / "model", other)


def test_model_in_place_and_whole_model_are_saved(tmp_path):
    x = torch.randn(8, 16)
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    fqt.quantize_(model, "int8", x)
    fqt.calibrate(model, [x]).eval()
    fqt.save(model, tmp_path / "model.fqt")
    loaded = fqt.load(tmp_path / "model.fqt", nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))
    assert torch.equal(loaded(x), model(x))
    fqt.save(model, str(tmp_path / "model.h5"))  # the checkpoint of the command
    assert np.array_equal(fq.load(str(tmp_path / "model.h5")).predict(x.numpy()), model(x).detach().numpy())
    with pytest.raises(fq.FileError, match="is a checkpoint of the command: use fakequant.load"):
        fqt.load(tmp_path / "model.h5")


def test_changed_transformer_needs_the_model(tmp_path):
    net = float_network("bert")
    net.classifier = nn.Linear(64, 5)
    model = fqt.calibrate(fqt.quantize(net, "int8", {"input_ids": IDS}), [{"input_ids": IDS}])
    fqt.save(model, tmp_path / "model")
    with pytest.raises(fq.ArgumentError, match=r"'classifier.weight' is \[5, 64\] in the file, and \[2, 64\] in the model.*load\(path, model=..\)"):
        fqt.load(tmp_path / "model")


def changed(path, target, **changes):
    """Writes a file with other values of some keys."""
    content = torch.load(path, weights_only=True)
    description = json.loads(content["description"]) | changes.pop("fields", {})
    torch.save(content | {"description": json.dumps(description)} | changes, target)
    return target


def test_damaged_and_foreign_files_are_errors(tmp_path):
    x, path, bad = torch.randn(8, 16), tmp_path / "model", tmp_path / "bad"
    model = fqt.quantize(nn.Sequential(nn.Linear(16, 8)), "int8", x)
    fqt.save(model, path)
    content = path.read_bytes()
    files = [(content[:100], "is damaged, or not a file of save"), (content[:-300], "is damaged, or not"), (b"", "is damaged, or not"),
             (b"PK\3\4" + bytes(50), "is damaged, or not")]
    for data, message in files:
        bad.write_bytes(data)
        with pytest.raises(fq.FileError, match=message):
            fqt.load(bad, nn.Sequential(nn.Linear(16, 8)))
    for changes, message in [({"version": 2}, "has the version 2, and this fakequant reads version 1: update fakequant"),
                             ({"format": "other"}, "is not a file of save"), ({"more": 1}, "unknown or missing keys: more"),
                             ({"fields": {"recipe": 1}}, "unknown or missing keys: recipe"), ({"example": [["what", 1], ["dict", {}]]}, "example input is invalid"),
                             ({"tensors": [1]}, "its tensors are invalid")]:
        with pytest.raises(fq.FileError, match=message):
            fqt.load(changed(path, bad, **changes), nn.Sequential(nn.Linear(16, 8)))
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("archive/data.pkl", b"cos\nsystem\n(S'true'\ntR.")
        archive.writestr("archive/version", "3")
    with pytest.raises(fq.FileError, match="is damaged, or not a file of save"):
        fqt.load(bad)
    with pytest.raises(fq.FileError, match="is not a file: use a file of save"):
        fqt.load(tmp_path / "none")


def test_bad_arguments_of_save(tmp_path):
    x = torch.randn(8, 16)
    model = fqt.quantize(nn.Sequential(nn.Linear(16, 8)), "int8", x)
    for given, path, error, message in [(model, tmp_path / "m.onnx", fq.ArgumentError, "export writes files for engines"),
                                        (nn.Sequential(model), tmp_path / "m", fq.ArgumentError, "is not the result of quantize: use the model that"),
                                        (nn.Linear(2, 2), tmp_path / "m", fq.ArgumentError, "no part of the model is quantized"),
                                        (model, tmp_path / "none" / "m", fq.FileError, "there is no folder"),
                                        (model, tmp_path, fq.FileError, "is a folder: use the name of a file")]:
        with pytest.raises(error, match=message):
            fqt.save(given, path)
    assert list(tmp_path.iterdir()) == []
