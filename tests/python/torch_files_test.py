"""Files of quantized transformers with their own codes: GGUF and safetensors folders."""
import json
import os
import sys

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")
safetensors = pytest.importorskip("safetensors.torch", reason="there is no safetensors beside torch")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from fakequant.torch.modules import lowered_modules  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::fakequant.FakequantWarning")
IDS = torch.arange(64).reshape(4, 16) % 96
SIZES = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
LLAMA = {**SIZES, "intermediate_size": 160, "num_key_value_heads": 2}
NETWORKS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama_tied": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**LLAMA, "sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", LLAMA),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", LLAMA),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "bert": ("BertForSequenceClassification", "BertConfig", {**SIZES, "intermediate_size": 128}),
}
INT8 = {"modelopt": {"preset": "int8", "target": "tensorrt"}, "compressed-tensors": {"preset": "int8", "target": "none"}}


def float_network(name, **fields):
    torch.manual_seed(0)
    model, config, own = NETWORKS[name]
    return getattr(transformers, model)(getattr(transformers, config)(**own | fields)).eval()


def quantized(name, config, steps=3, **fields):
    """A calibrated network after some steps of training, in evaluation mode."""
    model = fqt.quantize(float_network(name, **fields), config, {"input_ids": IDS})
    fqt.calibrate(model, [{"input_ids": IDS}])
    train(model, steps)
    return model.eval()


def train(model, steps):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.05)
    for _ in range(steps):
        model(input_ids=IDS).logits.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits.numpy()


def grid_weights(model):
    """{path of a layer: its weight on the grid} of a model of torch."""
    out = {}
    for lowered in lowered_modules(model):
        out |= lowered.share().weights_on_grid(quantized_layers(lowered.network))
    return {name: np.asarray(value) for name, value in out.items()}


def quantized_layers(network):
    return [row["name"][:-len(".weight_quantizer")] for row in network.quantizers() if row["enabled"] and row["weight"]]


def library_names(path):
    """Names in the library of a layer of transformers."""
    parent, _, last = path.rpartition(".")
    if last == "c_attn":
        return [f"{parent}.{name}" for name in ("q_proj", "k_proj", "v_proj")]
    if last == "o_proj" or path.endswith("attn.c_proj"):
        return [f"{parent}.out_proj"]
    for theirs, ours in (("self.query", "q_proj"), ("self.key", "k_proj"), ("self.value", "v_proj"), ("attention.output.dense", "attention.out_proj")):
        if path.endswith(theirs):
            layer, _, last = (path[:-len(theirs)] + ours).rpartition(".")
            return [f"{layer.replace('.', '_')}.{last}"]
    return [path.replace(".", "_") if path.startswith("bert.") else path]


def assert_same_codes(model, network):
    """The library's model of a file has the grid values of a model of torch, in every quantized layer."""
    own = grid_weights(model)
    theirs = network.weights_on_grid(quantized_layers(network))
    for path, value in own.items():
        found = np.concatenate([np.asarray(theirs.pop(name)) for name in library_names(path)])
        assert (found.reshape(value.shape) != value).sum() == 0, path
    assert own and not theirs


def assert_close_logits(model, theirs, share=0.5):
    """Sums of floats have another order in the library, in attention and norms. A value at a rounding boundary gets the neighbouring code, which
    changes the logits of its token and of later ones. `share` is the largest share of such tokens."""
    own = logits(model)
    difference = np.abs(own - theirs).max(-1) / np.abs(own).max()
    assert difference.max() < 0.02 and (difference > 2e-5).mean() <= share, (difference.max(), (difference > 2e-5).mean())


def predicted(network):
    """Logits [N, T, vocabulary] of a model of the library."""
    return network.predict(IDS.float().numpy()).transpose(0, 2, 1)


def tokenizer():
    tokenizers = pytest.importorskip("tokenizers", reason="there is no tokenizers beside torch")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())[:94]
    table = {letter: i for i, letter in enumerate([*alphabet, "ab", "cd"])}
    out = tokenizers.Tokenizer(tokenizers.models.BPE(table, [("a", "b"), ("c", "d")]))
    out.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    out.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=out)


# GGUF.

LEAST_ERROR = {"preset": "q4_0", "rules": [{"pattern": "*weight_quantizer", "calib_method": "mse"}]}


@pytest.mark.parametrize("config", ["q4_0", "q8_0", LEAST_ERROR], ids=str)
@pytest.mark.parametrize("name", ["llama", "llama_tied", "mistral", "qwen2", "qwen3", "gpt2"])
def test_gguf_has_the_trained_codes(name, config, tmp_path):
    """Calibration may choose steps of blocks by the squared error. The file has these steps."""
    model = quantized(name, config)
    fqt.export(model, tmp_path / "model.gguf")
    network = fq.load(str(tmp_path / "model.gguf"), input_shape=[16])
    assert_same_codes(model, network)
    # llama.cpp computes the GELU of gpt2 by a table of float16, which changes all logits.
    assert_close_logits(model, predicted(network), share=1 if name == "gpt2" else 0.5)


def test_gguf_mixes_formats_and_floats(tmp_path):
    """Rules give layers another format or floats. The table of tokens stays in floats, as in training."""
    rules = [{"pattern": "*down_proj.*", "enable": False}, {"pattern": "*up_proj.weight_quantizer", "enable": False},
             {"pattern": "*q_proj.weight_quantizer", "enable": False}, {"pattern": "*lm_head.weight_quantizer", "num_bits": 8}]
    model = quantized("llama", {"preset": "q4_0", "rules": rules})
    fqt.export(model, tmp_path / "model.gguf", tokenizer=tokenizer())
    network = fq.load(str(tmp_path / "model.gguf"), input_shape=[16])
    assert_same_codes(model, network)
    assert_close_logits(model, predicted(network))
    table = network.state_dict()["model.embed_tokens.weight"]
    assert np.array_equal(table, model.get_parameter("model.embed_tokens.weight").detach().numpy())


def test_gguf_of_bfloat16_parameters(tmp_path):
    """bfloat16 weights have the codes of their float32 values."""
    model = fqt.quantize(float_network("llama").bfloat16(), "q4_0", {"input_ids": IDS})
    fqt.export(fqt.calibrate(model, [{"input_ids": IDS}]), tmp_path / "model.gguf")
    assert_same_codes(model, fq.load(str(tmp_path / "model.gguf"), input_shape=[16]))


@pytest.mark.parametrize("name, config, fields, message", [
    ("llama", "int8", {}, "q_proj.input_quantizer' is int8, .*llama.cpp does not compute: quantize with the preset 'q4_0'"),
    ("bert", "q4_0", {}, "GGUF file of BertForSequenceClassification is not supported"),
    ("llama", "q4_0", {"attention_bias": True}, "llama.cpp has no architecture for the config"),
    ("mistral", "q4_0", {"sliding_window": 8}, "cannot read this MistralForCausalLM: config.json:.*nearest tokens"),
    ("llama", {"preset": "q4_0", "rules": [{"pattern": "*", "enable": False}]}, {}, "all quantizers are off"),
])
def test_unsupported_gguf_is_an_error(name, config, fields, message, tmp_path):
    model = fqt.calibrate(fqt.quantize(float_network(name, **fields), config, {"input_ids": IDS}), [{"input_ids": IDS}])
    with pytest.raises(fq.ArgumentError, match=message):
        fqt.export(model, tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_gguf_pads_the_vocabulary(tmp_path):
    """Networks of transformers often have more rows than their tokenizer has tokens."""
    model = quantized("qwen2", "q8_0", vocab_size=128)
    fqt.export(model, tmp_path / "model.gguf", tokenizer=tokenizer())
    data = (tmp_path / "model.gguf").read_bytes()
    assert b"[PAD96]" in data and b"[PAD127]" in data
    assert_same_codes(model, fq.load(str(tmp_path / "model.gguf"), input_shape=[16]))


@pytest.mark.parametrize("name", ["llama_tied", "qwen2", "qwen3", "gpt2"])
def test_llama_cpp_computes_the_gguf(name, tmp_path):
    """llama.cpp returns the logits of the trained model. Engines are made by fakequant.engines.install."""
    engines = os.environ.get("FAKEQUANT_ENGINES", "")
    if not os.path.exists(os.path.join(engines, "llama.cpp", "engine", "libfakequant_llama.so")):
        pytest.skip("there is no llama.cpp: FAKEQUANT_ENGINES can name a folder that has it")
    from fakequant.engines.llama import Llama

    fields = {"gpt2": {"activation_function": "gelu", "layer_norm_epsilon": 1e-2}, "qwen2": {"vocab_size": 128}}.get(name, {})
    model = quantized(name, "q4_0", **fields)
    optimizer = torch.optim.AdamW(fqt.parameter_groups(model, lr=3e-3))
    for _ in range(20):  # so that the largest logit of a token is not one of many
        model(input_ids=IDS, labels=IDS).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    fqt.export(model, tmp_path / "model.gguf", tokenizer=tokenizer() if name == "qwen2" else None)
    engine = Llama(os.path.join(engines, "llama.cpp"), str(tmp_path / "model.gguf"), 16, 1, "f32")
    theirs = np.stack([engine.logits(ids.numpy(), model.config.vocab_size) for ids in IDS])
    assert_close_logits(model, theirs)
    assert (theirs.argmax(-1) == logits(model).argmax(-1)).all()


# Folders.

@pytest.mark.parametrize("config", [INT8["modelopt"], "fp8", "nvfp4"], ids=str)
@pytest.mark.parametrize("name", ["llama_tied", "qwen2", "gpt2", "bert"])
def test_modelopt_folder_has_the_trained_codes(name, config, tmp_path):
    model = quantized(name, config)
    fqt.export(model, tmp_path / "folder")
    network = fq.load(str(tmp_path / "folder"), **({} if name == "bert" else {"input_shape": [16]}))
    assert_same_codes(model, network)
    if name != "bert":  # rows of BERT have three inputs
        assert_close_logits(model, predicted(network))
    own = {path.name for path in (tmp_path / "folder").iterdir()}
    assert own - {"generation_config.json"} == {"config.json", "hf_quant_config.json", "model.safetensors"}


def test_modelopt_folder_lists_formats_and_float_layers(tmp_path):
    rules = [{"pattern": "*lm_head.*", "enable": False}, {"pattern": "*down_proj.input_quantizer", "enable": False}]
    model = quantized("llama", {**INT8["modelopt"], "rules": rules})
    fqt.export(model, tmp_path, tokenizer=tokenizer())
    found = json.loads((tmp_path / "hf_quant_config.json").read_text())["quantization"]
    assert found["exclude_modules"] == ["lm_head"] and found["quant_algo"] == "MIXED_PRECISION"
    assert found["quantized_layers"]["model.layers.0.mlp.down_proj"] == {"quant_algo": "W8A16"}
    assert found["quantized_layers"]["model.layers.1.mlp.up_proj"] == {"quant_algo": "W8A8_SQ_PER_CHANNEL"}
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("abcd")["input_ids"] == [94, 95]
    assert_same_codes(model, fq.load(str(tmp_path), input_shape=[16]))


def test_modelopt_folder_has_conv1d_as_linear_layers(tmp_path):
    """ModelOpt transposes the weights of Conv1D: [outputs, inputs]."""
    model = quantized("gpt2", INT8["modelopt"])
    fqt.export(model, tmp_path)
    tensors, own = safetensors.load_file(tmp_path / "model.safetensors"), grid_weights(model)
    assert "transformer.h.0.attn.c_attn.weight" in tensors and len(own) == 9
    for path, value in own.items():
        codes, scale = tensors[f"{path}.weight"], tensors[f"{path}.weight_scale"]
        assert codes.dtype == torch.int8 and np.array_equal((codes.float() * scale[:, None]).numpy(), value), path
    assert torch.equal(tensors["transformer.h.0.attn.c_attn.bias"], model.get_parameter("transformer.h.0.attn.c_attn.bias"))


@pytest.mark.parametrize("name", ["llama_tied", "bert"])
@pytest.mark.parametrize("config", [INT8["compressed-tensors"], {"preset": "fp8", "target": "none"}], ids=str)
def test_transformers_loads_compressed_tensors(name, config, tmp_path):
    pytest.importorskip("compressed_tensors", reason="there is no compressed-tensors")
    model = quantized(name, config)
    fqt.export(model, tmp_path, format="compressed-tensors")
    assert_close_logits(model, logits(type(model).from_pretrained(tmp_path).eval()))


def test_compressed_tensors_folder_has_codes_and_groups(tmp_path):
    model = quantized("llama_tied", INT8["compressed-tensors"])
    fqt.export(model, tmp_path, format="modelopt")
    fqt.export(model, tmp_path, format="compressed-tensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (group,) = config["quantization_config"]["config_groups"].values()
    own = grid_weights(model)
    assert sorted(group["targets"]) == sorted(own) and config["tie_word_embeddings"] is False
    assert config["architectures"] == ["LlamaForCausalLM"] and not (tmp_path / "hf_quant_config.json").exists()
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    for path, value in own.items():
        assert np.array_equal((tensors[f"{path}.weight"].float() * tensors[f"{path}.weight_scale"]).numpy(), value), path
    assert torch.equal(tensors["model.embed_tokens.weight"], model.get_parameter("model.embed_tokens.weight"))


def test_folder_of_another_module(tmp_path):
    """A module without a config of transformers has the weights and the config of the quantizers. Codes of inputs are signed."""
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    with pytest.raises(fq.ArgumentError, match="'2' quantizes .*\"target\": \"tensorrt\""):
        fqt.export(fqt.calibrate(fqt.quantize(net, "int8", x), [x]), tmp_path / "folder")
    model = fqt.quantize(net, INT8["modelopt"], x)
    fqt.export(fqt.calibrate(model, [x]), tmp_path / "folder")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["config.json", "hf_quant_config.json", "model.safetensors"]
    tensors = safetensors.load_file(tmp_path / "folder" / "model.safetensors")
    for path, value in grid_weights(model).items():
        assert np.array_equal((tensors[f"{path}.weight"].float() * tensors[f"{path}.weight_scale"][:, None]).numpy(), value)


@pytest.mark.parametrize("name, config, format, message", [
    ("llama", "nvfp4", "compressed-tensors", "is NVFP4: the format supports"),
    ("gpt2", INT8["compressed-tensors"], "compressed-tensors", "is a Conv1D, and compressed-tensors has linear layers only"),
    ("llama", {**INT8["modelopt"], "rules": [{"pattern": "*bmm_quantizer", "num_bits": 8, "enable": True}]}, "modelopt",
     "bmm_quantizer' quantizes attention, which modelopt has no names for"),
    ("llama", {"preset": "int8", "rules": [{"pattern": "*", "enable": False}]}, "modelopt", "no weight is quantized"),
])
def test_unsupported_folder_is_an_error(name, config, format, message, tmp_path):
    model = fqt.calibrate(fqt.quantize(float_network(name), config, {"input_ids": IDS}), [{"input_ids": IDS}])
    with pytest.raises(fq.ArgumentError, match=message):
        fqt.export(model, tmp_path / "folder", format=format)
    assert list(tmp_path.iterdir()) == []


def test_batch_norm_and_repeated_layers_have_no_folder(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):
            return self.layer(torch.relu(self.layer(x)))
    x = torch.randn(8, 16)
    for model, message in ((nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)), "'1' is a batch norm"),
                           (Twice(), "'layer.call_2.weight_quantizer' quantizes a matrix that is not")):
        model = fqt.calibrate(fqt.quantize(model, INT8["modelopt"], x), [x])
        with pytest.raises(fq.ArgumentError, match=message):
            fqt.export(model, tmp_path / "folder")


def test_bad_arguments_of_export(tmp_path):
    model = fqt.quantize(float_network("llama"), INT8["modelopt"], {"input_ids": IDS})
    with pytest.raises(fq.ArgumentError, match="_quantizer' has no range: call fakequant.torch.calibrate"):
        fqt.export(model, tmp_path / "folder")
    fqt.calibrate(model, [{"input_ids": IDS}])
    (tmp_path / "file").write_text("")
    for arguments, error, message in [
            ({"path": tmp_path / "m.pt"}, fq.ArgumentError, "use a file that ends in .onnx or .gguf, or a folder"),
            ({"path": tmp_path / "m", "format": "safetensors"}, fq.ArgumentError, "format is 'safetensors': use onnx, gguf, modelopt"),
            ({"path": tmp_path / "m.safetensors", "format": "modelopt"}, fq.ArgumentError, "use the folder"),
            ({"path": tmp_path / "m.gguf", "opset": 18}, fq.ArgumentError, "target, opset, emulate and dynamic_shapes are for ONNX"),
            ({"path": tmp_path / "m", "tokenizer": "gpt2"}, fq.ArgumentError, "tokenizer is a str: use a tokenizer"),
            ({"path": tmp_path / "m.onnx", "tokenizer": tokenizer()}, fq.ArgumentError, "tokenizer is for GGUF files and folders"),
            ({"path": tmp_path / "none" / "m"}, fq.FileError, "there is no folder .*none. Create it"),
            ({"path": tmp_path / "none" / "m.gguf"}, fq.FileError, "there is no folder"),
            ({"path": tmp_path / "file"}, fq.FileError, "is a file: use a folder")]:
        with pytest.raises(error, match=message):
            fqt.export(model, **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
