"""Tiny networks of transformers, one of each architecture: quantized, calibrated, one step of training, exported."""
import os
import sys
import warnings

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")

import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402

BERT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
SPEECH = {"conv_dim": (32, 32), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 16,
          "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2, "layerdrop": 0.0, "mask_time_prob": 0.0}
RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 32}
MAMBA = {"vocab_size": 64, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "head_dim": 16, "num_heads": 4, "n_groups": 1,
         "chunk_size": 8}
FALCON = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}

#: Model, config and its fields, name of the input.
NETWORKS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**BERT, "num_key_value_heads": 2, "use_cache": False}, "input_ids"),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, "input_ids"),
    "bert": ("BertForSequenceClassification", "BertConfig", BERT, "input_ids"),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", {**BERT, "max_position_embeddings": 40}, "input_ids"),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig", {**BERT, "embedding_size": 16}, "input_ids"),
    "deberta": ("DebertaForSequenceClassification", "DebertaConfig", {**BERT, **RELATIVE}, "input_ids"),
    "deberta_v2": ("DebertaV2ForSequenceClassification", "DebertaV2Config", {**BERT, **RELATIVE}, "input_ids"),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", MAMBA, "input_ids"),
    "falcon": ("FalconForCausalLM", "FalconConfig", FALCON, "input_ids"),
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", {**BERT, **SPEECH}, "input_values"),
    "vit": ("ViTForImageClassification", "ViTConfig", {**BERT, "image_size": 16, "patch_size": 4}, "pixel_values"),
}


def network(name):
    torch.manual_seed(0)
    model, config, fields, data = NETWORKS[name]
    batch = {"input_ids": torch.randint(2, 64, (3, 16)), "input_values": torch.randn(3, 400), "pixel_values": torch.randn(3, 3, 16, 16)}
    return getattr(transformers, model)(getattr(transformers, config)(**fields)), {data: batch[data]}


@pytest.mark.parametrize("preset", ["int8", "w4a4"])
@pytest.mark.parametrize("name", NETWORKS)
def test_runs_a_training_step(name, preset):
    """Without quantizers the outputs are torch's. With them every parameter that torch trains has a finite gradient."""
    model, batch = network(name)
    model.eval()
    floats = model(**batch).logits
    floats.square().mean().backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        quantized = fqt.calibrate(fqt.quantize(model, preset, batch), [batch])
    assert any(row["runs"] == "codes" for row in fqt.layers(quantized))
    with fqt.quantizers_off(quantized):
        torch.testing.assert_close(quantized(**batch).logits, floats, rtol=1e-3, atol=1e-5)
    loss = quantized.train()(**batch).logits.square().mean()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in quantized.named_parameters() if parameter.grad is not None}
    assert loss.isfinite() and all(gradient.isfinite().all() for gradient in gradients.values())
    assert trained <= gradients.keys()
    if preset == "w4a4":
        assert gradients.keys() - trained, "no range has a gradient"
    torch.optim.AdamW(fqt.parameter_groups(quantized, lr=1e-4)).step()
    assert quantized(**batch).logits.isfinite().all()


@pytest.mark.parametrize("name", ["deberta", "falcon", "mamba2", "wav2vec2"])
def test_exports_its_codes(name, tmp_path):
    """The file has the parts of the model. Torch's layers between the parts add up floats in another order than the engine."""
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"there is no {package} beside torch")
    model, batch = network(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        quantized = fqt.calibrate(fqt.quantize(model, "int8", batch), [batch])
    path = tmp_path / "model.onnx"
    fqt.export(quantized, path)
    found = fqt.verify(quantized, path, batch)
    assert found["codes"] > 0 == found["different_codes"] == found["flips"] and found["max"] < 1e-6, found
