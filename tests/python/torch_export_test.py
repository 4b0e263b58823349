"""Files of models of several parts: fakequant.torch.export and verify with torch.onnx.export. Parts in torch.export and torch.compile."""
import copy
import dataclasses
import gc
import os
import pickle
import sys
import warnings

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
pytest.importorskip("onnxscript", reason="there is no onnxscript beside torch, which torch.onnx.export requires")
onnx = pytest.importorskip("onnx", reason="there is no onnx beside torch")
pytest.importorskip("onnxruntime", reason="there is no onnxruntime beside torch")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from fakequant import splicing  # noqa: E402
from fakequant.torch import graphs  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

SAME = {"different": 0, "flips": 0, "max": 0.0, "different_codes": 0}
CODES = {"preset": "int8", "rules": [{"pattern": "*bmm_quantizer", "num_bits": 8}, {"pattern": "*softmax_quantizer", "num_bits": 8}]}


@dataclasses.dataclass
class Maps:
    small: torch.Tensor
    large: torch.Tensor


class Detector(nn.Module):
    """A detector with a neck and three outputs, in the form that `pack` makes of a list."""

    def __init__(self, pack=list):
        super().__init__()
        conv = lambda a, b, stride: nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())  # noqa: E731
        self.stem, self.down, self.deep = conv(3, 8, 2), conv(8, 16, 2), conv(16, 24, 2)
        self.up, self.neck, self.pack = nn.Upsample(scale_factor=2), conv(40, 16, 1), pack
        self.heads = nn.ModuleList([nn.Conv2d(width, 5, 1) for width in (8, 16, 24)])

    def forward(self, x):
        small = self.stem(x)
        middle = self.down(small)
        deep = self.deep(middle)
        middle = self.neck(torch.cat([self.up(deep), middle], 1))
        return self.pack([head(value) for head, value in zip(self.heads, (small, middle, deep))])


class Rows(nn.Module):
    """Layers on rows, and a function that the library does not have."""

    def __init__(self):
        super().__init__()
        self.words, self.first, self.second, self.head = nn.Embedding(20, 16), nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 4)

    def forward(self, ids, scale=None, *, bias=None):
        h = self.words(ids)
        h = h + torch.cumsum(self.second(torch.relu(self.first(h))), 1)
        y = self.head(h if scale is None else h * scale[:, None, None])
        return y if bias is None else y + bias


class Cell(nn.Module):
    """Attention with keys of its own and two masks, which the library runs as a part by itself."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(16, 3)

    def forward(self, x, memory, hidden):
        mask = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).triu(2)
        return self.head(self.attention(x, memory, memory, key_padding_mask=hidden, attn_mask=mask, need_weights=False)[0])


torch.manual_seed(0)
IMAGES, IDS = torch.randn(4, 3, 16, 16), torch.randint(0, 20, (3, 6))


def quantized(model, *batch, config="int8", **named):
    batch = named or (batch[0] if len(batch) == 1 else batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        model = fqt.quantize(model, config, batch)
    return fqt.calibrate(model, [batch if isinstance(batch, (dict, torch.Tensor)) else (batch,)]).eval()


def values(path):
    """Returns ({input: shape}, {output: shape}) of a file."""
    graph = onnx.load(path).graph
    shape = lambda value: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]  # noqa: E731
    return {value.name: shape(value) for value in graph.input}, {value.name: shape(value) for value in graph.output}


def agrees(found):
    return {key: found[key] for key in SAME} == SAME and found["codes"] > 0 < found["outputs"]


@pytest.mark.parametrize("pack, names", [
    (list, ["output_0", "output_1", "output_2"]),
    (lambda maps: {"p3": maps[0], "more": {"p4": maps[1], "p5": (maps[2],)}}, ["p3", "more_p4", "more_p5_0"]),
    (lambda maps: Maps(maps[0], maps[2]), ["small", "large"]),
    (lambda maps: maps[0].topk(2, 1)[0], ["output"]),
])
def test_exports_all_outputs(pack, names, tmp_path):
    model, path = quantized(Detector(pack), IMAGES), tmp_path / "x.onnx"
    fqt.export(model, path)
    inputs, outputs = values(path)
    assert inputs == {"x": ["N", 3, 16, 16]} and list(outputs) == names
    assert all(shape[0] == "N" and 0 not in shape for shape in outputs.values())
    assert agrees(fqt.verify(model, path, torch.randn(5, 3, 16, 16), batch=2))


def test_file_has_integer_weights_and_the_names_of_the_model(tmp_path):
    model, path = quantized(Detector(), IMAGES), tmp_path / "x.onnx"
    fqt.export(model, path)
    graph = onnx.load(path).graph
    weights = {value.name: value for value in graph.initializer if value.name.endswith(".weight")}
    assert len(weights) == 7 and all(value.data_type == onnx.TensorProto.INT8 for value in weights.values())
    assert not {name for name in weights if not hasattr(model, name.split(".")[0])}
    read = {name for node in graph.node for name in node.input}
    assert not [value.name for value in graph.initializer if value.name not in read]
    assert len({node.name for node in graph.node}) == len(graph.node)


@pytest.mark.parametrize("given, names", [
    ({"ids": IDS}, ["ids"]), ({"ids": IDS, "scale": torch.rand(3)}, ["ids", "scale"]), ({"ids": IDS, "bias": torch.rand(4)}, ["ids", "bias"])])
def test_inputs_have_the_names_of_arguments(given, names, tmp_path):
    model, path = quantized(Rows(), **given), tmp_path / "x.onnx"
    fqt.export(model, path)
    inputs, outputs = values(path)
    assert list(inputs) == names and inputs["ids"] == ["N", 6] and list(outputs) == ["output"]
    assert agrees(fqt.verify(model, path, given))


def test_lengths_may_change(tmp_path):
    model, path = quantized(Rows(), IDS), tmp_path / "x.onnx"
    fqt.export(model, path, dynamic_shapes={"ids": {0: "N", 1: "T"}})
    assert values(path)[0] == {"ids": ["N", "T"]}
    for shape in (1, 1), (5, 11):
        assert agrees(fqt.verify(model, path, torch.randint(0, 20, shape)))


def test_exports_outputs_that_are_inputs_or_equal(tmp_path):
    class Same(Detector):
        def forward(self, x):
            maps = super().forward(x)
            return {"x": x, "a": maps[0], "b": maps[0], "kernel": self.stem[0].weight}
    model, path = quantized(Same(), IMAGES), tmp_path / "x.onnx"
    fqt.export(model, path)
    assert list(values(path)[1]) == ["output_x", "a", "b", "kernel"] and agrees(fqt.verify(model, path, IMAGES))


def test_other_example_and_batches_of_one(tmp_path):
    model, path = quantized(Detector(), IMAGES[:1]), tmp_path / "x.onnx"
    fqt.export(model, path)
    assert agrees(fqt.verify(model, path, IMAGES))
    fqt.export(model, path, example_input=torch.randn(2, 3, 32, 24))
    assert values(path)[0] == {"x": ["N", 3, 32, 24]}
    assert agrees(fqt.verify(model, path, torch.randn(3, 3, 32, 24)))


@pytest.mark.parametrize("config", ["int8", CODES])
def test_exports_attention_parts(config, tmp_path):
    hidden = torch.zeros(3, 9, dtype=torch.bool)
    hidden[1, 4:] = True
    batch = torch.randn(3, 6, 16), torch.randn(3, 9, 16), hidden
    model, path = quantized(Cell(), *batch, config=config), tmp_path / "x.onnx"
    fqt.export(model, path)
    assert values(path)[0] == {"x": ["N", 6, 16], "memory": ["N", 9, 16], "hidden": ["N", 9]}
    assert agrees(fqt.verify(model, path, batch))
    with pytest.raises(fq.ArgumentError, match="dynamic_shapes: axis 1 of 'x' cannot change, because the part of 'attention' has a fixed size"):
        fqt.export(model, path, dynamic_shapes=({0: "N", 1: "T"}, {0: "N"}, {0: "N"}))


@pytest.mark.parametrize("hidden", [False, -np.inf])
def test_queries_without_keys_are_zeros(hidden, tmp_path):
    class Attends(Rows):
        def forward(self, ids, mask):
            h = self.words(ids)[:, None]
            return self.head(self.second(self.first(torch.cumsum(F.scaled_dot_product_attention(h, h, h, mask), 1))))
    mask = torch.ones(3, 1, 6, 6, dtype=torch.bool) if hidden is False else torch.zeros(3, 1, 6, 6)
    mask[1, :, 2] = hidden
    model, path = quantized(Attends(), IDS, mask), tmp_path / "x.onnx"
    fqt.export(model, path)
    assert agrees(fqt.verify(model, path, (IDS, mask)))


def test_exports_models_with_a_quantized_module(tmp_path):
    class Around(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, y):
            return self.inner(x, y).softmax(-1)

    class Two(Rows):
        def forward(self, x, y):
            return self.head(self.second(torch.relu(self.first(x)) + self.first(y)))
    batch = torch.randn(3, 16), torch.randn(3, 16)
    model, path = Around(quantized(Two(), *batch)).eval(), tmp_path / "x.onnx"
    fqt.export(model, path, example_input=batch)
    assert fqt.verify(model, path, batch)["different_codes"] == 0
    with pytest.raises(fq.ArgumentError, match="example_input is None, and this model is not the result of quantize"):
        fqt.export(model, path)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_exports_copies_in_training_mode(copied, tmp_path):
    model, path = copied(quantized(Detector(), IMAGES).train()), tmp_path / "x.onnx"
    model.heads[0].eval()
    means = [norm.running_mean.clone() for norm in model.modules() if isinstance(norm, nn.BatchNorm2d)]
    fqt.export(model, path)
    assert model.training and not model.heads[0].training
    assert all(map(torch.equal, means, (norm.running_mean for norm in model.modules() if isinstance(norm, nn.BatchNorm2d))))
    assert agrees(fqt.verify(model, path, IMAGES)) and model.training


@pytest.mark.parametrize("config, opset", [("w4a8", 0), ("w2a2", 0), ("int4_blockwise", 0), ("fp8", 0), ("int8", 23)])
def test_supports_formats_and_opsets(config, opset, tmp_path):
    model, path = quantized(Rows(), IDS, config=config), tmp_path / "x.onnx"
    fqt.export(model, path, opset=opset)
    (version,) = [entry.version for entry in onnx.load(path).opset_import if entry.domain == ""]
    assert version == opset or (not opset and version >= 20)
    found = fqt.verify(model, path, IDS)
    assert found["flips"] == found["different_codes"] == 0 and found["max"] < 1e-6  # the engine adds up floats in its own order


def test_large_tensors_are_in_a_file_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(splicing, "MOST_BYTES", 1000)
    model, path = quantized(Rows(), IDS), tmp_path / "x.onnx"
    fqt.export(model, path)
    assert sorted(os.listdir(tmp_path)) == ["x.onnx", "x.onnx.data"]
    assert agrees(fqt.verify(model, path, IDS))


@pytest.mark.parametrize("samples", [3, 1])
def test_warns_of_a_fixed_batch(samples, tmp_path):
    class Mean(Rows):
        def forward(self, ids):
            return self.head(self.second(self.first(torch.cumsum(self.words(ids), 1)))) / float(len(ids))
    ids, path = IDS[:samples], tmp_path / "x.onnx"
    model = quantized(Mean(), ids)
    with pytest.warns(fq.FakequantWarning, match="'ids': the batch or another size is fixed to the size of the example"):
        fqt.export(model, path)
    assert values(path) == ({"ids": [samples, 6]}, {"output": [samples, 6, 4]})
    assert agrees(fqt.verify(model, path, torch.cat([ids, ids])))
    if samples == 3:
        with pytest.raises(fq.ArgumentError, match="it has 4 samples, and the batch of the file is fixed to 3. Use a multiple of it"):
            fqt.verify(model, path, torch.randint(0, 20, (4, 6)))


def test_exports_repeated_calls(tmp_path):
    class Repeated(Rows):
        def forward(self, ids):
            h = self.words(ids)
            for _ in range(3):
                h = torch.cumsum(self.second(torch.relu(self.first(h))), 1)
            return self.head(h)
    model, path = quantized(Repeated(), IDS), tmp_path / "x.onnx"
    fqt.export(model, path)
    assert agrees(fqt.verify(model, path, IDS))


def test_verify_finds_differences(tmp_path):
    model, path = quantized(Rows(), IDS), tmp_path / "x.onnx"
    fqt.export(model, path)
    with torch.no_grad():
        model.head.weight.mul_(-1)
    found = fqt.verify(model, path, IDS)
    assert found["different"] > 0 and found["flips"] > 0 and found["different_codes"] == 0  # the file differs, not its parts
    with pytest.raises(fq.FileError, match="has the inputs ids, and x ids, scale"):
        fqt.verify(model, path, (IDS, torch.rand(3)))
    with pytest.raises(fq.FileError, match="has the inputs ids, and x x"):
        fqt.verify(quantized(Detector(), IMAGES), path, IMAGES)


# transformers

BERT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 64, "pad_token_id": 0}
NETWORKS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**BERT, "num_key_value_heads": 2}, {"input_ids": (0, 1), "attention_mask": (0, 1)}),
    "bert": ("BertForSequenceClassification", "BertConfig", BERT, {"input_ids": (0, 1)}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**BERT, "num_key_value_heads": 2, "num_local_experts": 4}, {"input_ids": (0, 1)}),
    # Biases, weights [in, out] and another order of the gate; a router with a parameter of its own.
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", {**BERT, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4,
                                                      "num_experts_per_tok": 2}, {"input_ids": (0, 1)}),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig", {**BERT, "num_key_value_heads": 2, "num_local_experts": 4}, {"input_ids": (0, 1)}),
    "vit": ("ViTForImageClassification", "ViTConfig", {**BERT, "image_size": 16, "patch_size": 4}, {"pixel_values": (0,)}),
}


FLOAT_EXPERTS = {"preset": "int8", "rules": [{"pattern": "*experts*", "enable": False}]}


@pytest.mark.parametrize("name, config", [*((name, "int8") for name in NETWORKS), ("mixtral", FLOAT_EXPERTS)])
def test_exports_transformers(name, config, tmp_path):
    transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")
    torch.manual_seed(0)
    kind, own_config, fields, dynamic = NETWORKS[name]

    def batch(size, length):
        mask = torch.ones(size, length, dtype=torch.int64)
        mask[0, :3] = 0
        made = {"input_ids": torch.randint(2, 64, (size, length)), "attention_mask": mask, "pixel_values": torch.randn(size, 3, 16, 16)}
        return {key: made[key] for key in dynamic}
    model = quantized(getattr(transformers, kind)(getattr(transformers, own_config)(**fields)), config=config, **batch(3, 12))
    path, axes = tmp_path / "x.onnx", ("N", "T")
    fqt.export(model, path, dynamic_shapes={key: {axis: axes[axis] for axis in own} for key, own in dynamic.items()})
    inputs, outputs = values(path)
    assert all(shape[:len(dynamic[key])] == list(axes[:len(dynamic[key])]) for key, shape in inputs.items()) and list(outputs) == ["logits"]
    assert getattr(model.config, "use_cache", True)
    for shape in (3, 12), (2, 7):
        found = fqt.verify(model, path, batch(*shape))
        assert found["flips"] == found["different_codes"] == 0 and found["max"] < 1e-6  # torch's layers add up floats in their own order


# Bad input

class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = self.first(x)
        return self.second(h * 2 if h.abs().sum() > 1e9 else h)


@pytest.mark.parametrize("call, error, words", [
    (lambda model, path: fqt.export(model, path.parent / "no" / "x.onnx"), fq.FileError, r"there is no folder .*/no\. Create it"),
    (lambda model, path: fqt.export(model, path, target="npu"), fq.ArgumentError, "npu"),
    (lambda model, path: fqt.export(model, path, torch.randn(2, 8)), fq.ArgumentError, "target is a Tensor.*example_input"),
    (lambda model, path: fqt.export(model.bfloat16(), path), fq.ArgumentError, r"is torch.bfloat16, .*model\.float\(\)"),
    (lambda model, path: fqt.export(model, path, opset=13), fq.ArgumentError, "opset is 13: layers that torch writes require opset 18"),
    (lambda model, path: fqt.export(model, path, dynamic_shapes={"x": {0: "N"}}), fq.ArgumentError,
     "dynamic_shapes: 'x' is not an argument of the example, which has ids"),
    (lambda model, path: fqt.export(model, path, dynamic_shapes={"ids": {2: "N"}}), fq.ArgumentError, "'ids' has the axes 0 to 1, and not 2"),
    (lambda model, path: fqt.export(Rows(), path), fq.ArgumentError, "no part of the model is quantized"),
    (lambda model, path: fqt.export(fqt.quantize(Rows(), "int8", IDS), path), fq.ArgumentError, "no range: call fakequant.torch.calibrate"),
    (lambda model, path: fqt.export(nn.Sequential(nn.Identity(), quantized(nn.Sequential(Branch()), torch.randn(3, 8))), path,
                                    example_input=torch.randn(3, 8)), fq.ArgumentError,
     r"torch.export cannot read '1\.0': GuardOnDataDependentSymNode: .*\. Compute branches on values with torch.where"),
    (lambda model, path: fqt.save(model, path.with_suffix(".h5")), fq.ArgumentError, "it is in parts. export writes an ONNX file"),
    (lambda model, path: torch.onnx.export(model, (IDS,), path, dynamo=True, verbose=False), Exception, "fakequant.torch.export writes"),
])
def test_rejects_invalid_input(call, error, words, tmp_path, capfd):
    model = quantized(Rows(), IDS)
    capfd.readouterr()
    with pytest.raises(error, match=words):
        call(model, tmp_path / "x.onnx")
    assert error is Exception or not capfd.readouterr().err
    assert os.listdir(tmp_path) == []


def test_names_a_missing_package(tmp_path, monkeypatch):
    model = quantized(Rows(), IDS)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(fq.ArgumentError, match="pip install onnxscript"):
        fqt.export(model, tmp_path / "x.onnx")


# Graphs of torch

def test_torch_export_has_parts_as_operators():
    model = quantized(Rows(), IDS)
    with torch.no_grad():
        program = torch.export.export(model, (IDS,), dynamic_shapes=({0: torch.export.Dim("N"), 1: torch.export.Dim("T", min=2)},))
        ids = torch.randint(0, 20, (5, 9))
        assert torch.equal(program.module()(ids), model(ids))
    assert torch.ops.fakequant.part.default in [node.target for node in program.graph.nodes]
    run = program.module()
    del model
    gc.collect()
    with pytest.raises(fq.ArgumentError, match="the quantized model of this graph does not exist"):
        run(IDS)


@pytest.mark.parametrize("config", ["int8", "w4a4"])
@pytest.mark.parametrize("training", [False, True])
def test_torch_compile_has_no_graph_break(config, training):
    """Outputs and statistics have the bits of the model. Gradients of torch's own layers may differ in rounding."""
    model = quantized(Detector(lambda maps: maps), IMAGES, config=config).train(training)
    twin = copy.deepcopy(model)
    torch._dynamo.reset()
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    for images in IMAGES, IMAGES[:3]:
        outputs = model(images), compiled(images)
        assert all(map(torch.equal, *outputs))
        for maps in outputs:
            sum(value.square().sum() for value in maps).backward()
    for (name, own), other in zip(model.named_parameters(), twin.parameters()):
        if own.grad is not None:
            torch.testing.assert_close(other.grad, own.grad, rtol=1e-5, atol=1e-6, msg=name)
    assert all(map(torch.equal, model.buffers(), twin.buffers()))
    assert not graphs._recordings


def test_compiled_forward_without_backward_keeps_nothing():
    model = quantized(Rows(), IDS).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    y = compiled(IDS)
    assert graphs._recordings
    del y
    gc.collect()
    assert not graphs._recordings
