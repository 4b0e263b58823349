"""Architectures of transformers (tiny random configs) and timm: outputs and gradients without quantizers, calibration, one training step.

A few run by default. FAKEQUANT_ZOO=all runs all of them, and prints the layers on codes of each model.
"""
import copy
import os
import sys
import warnings

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402

RUN_ALL = os.environ.get("FAKEQUANT_ZOO") == "all"

TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
DECODER = TEXT | {"num_key_value_heads": 2, "use_cache": False, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
IMAGE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16, "patch_size": 4}
RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 32}
SPEECH = {"conv_dim": (32, 32), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 16,
          "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2, "layerdrop": 0.0, "mask_time_prob": 0.0}
MAMBA = {"vocab_size": 64, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "use_cache": False}
SEQ2SEQ = {"d_model": 32, "vocab_size": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
           "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
           "decoder_start_token_id": 1}
IDS, PIXELS, WAVES = "input_ids", "pixel_values", "input_values"

#: {name: (model, config, fields of the config, inputs)}
TRANSFORMERS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, [IDS]),
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER, [IDS]),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", DECODER, [IDS]),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", DECODER | {"head_dim": 8}, [IDS]),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", DECODER | {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                                                                      "moe_intermediate_size": 32}, [IDS]),
    "mistral": ("MistralForCausalLM", "MistralConfig", DECODER | {"sliding_window": 8}, [IDS]),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", DECODER | {"num_local_experts": 4}, [IDS]),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", DECODER | {"head_dim": 8, "sliding_window": 8}, [IDS]),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", DECODER | {"head_dim": 8, "sliding_window": 8}, [IDS]),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", DECODER, [IDS]),
    "phi": ("PhiForCausalLM", "PhiConfig", DECODER, [IDS]),
    "opt": ("OPTForCausalLM", "OPTConfig", {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
                                            "word_embed_proj_dim": 32, "max_position_embeddings": 64, "use_cache": False}, [IDS]),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", TEXT | {"use_cache": False}, [IDS]),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, [IDS]),
    "falcon": ("FalconForCausalLM", "FalconConfig", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                                     "use_cache": False}, [IDS]),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", DECODER, [IDS]),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", DECODER, [IDS]),
    "bert": ("BertForSequenceClassification", "BertConfig", TEXT, [IDS]),
    "bert_words": ("BertForMaskedLM", "BertConfig", TEXT, [IDS]),
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 64}, [IDS]),
    "albert": ("AlbertForSequenceClassification", "AlbertConfig", TEXT | {"embedding_size": 16}, [IDS]),
    "mobilebert": ("MobileBertForSequenceClassification", "MobileBertConfig", TEXT | {"embedding_size": 32, "intra_bottleneck_size": 32}, [IDS]),
    "xlnet": ("XLNetForSequenceClassification", "XLNetConfig", {"d_model": 32, "d_inner": 64, "n_layer": 2, "n_head": 4, "vocab_size": 64}, [IDS]),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", TEXT | {"max_position_embeddings": 40}, [IDS]),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig", TEXT | {"embedding_size": 16}, [IDS]),
    "deberta": ("DebertaForSequenceClassification", "DebertaConfig", TEXT | RELATIVE, [IDS]),
    "deberta_v2": ("DebertaV2ForSequenceClassification", "DebertaV2Config", TEXT | RELATIVE, [IDS]),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 64,
                                                      "use_cache": False, "decoder_start_token_id": 0}, [IDS, "decoder_input_ids"]),
    "bart": ("BartForConditionalGeneration", "BartConfig", SEQ2SEQ | {"max_position_embeddings": 64}, [IDS, "decoder_input_ids"]),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", SEQ2SEQ | {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 32},
                ["input_features", "decoder_input_ids"]),
    "vit": ("ViTForImageClassification", "ViTConfig", IMAGE, [PIXELS]),
    "deit": ("DeiTForImageClassification", "DeiTConfig", IMAGE, [PIXELS]),
    "beit": ("BeitForImageClassification", "BeitConfig", IMAGE | {"use_relative_position_bias": True}, [PIXELS]),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", IMAGE, [PIXELS]),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", IMAGE, [PIXELS]),
    "clip": ("CLIPVisionModel", "CLIPVisionConfig", IMAGE, [PIXELS]),
    "swin": ("SwinForImageClassification", "SwinConfig", {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}, [PIXELS]),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 2}, [PIXELS]),
    "resnet": ("ResNetForImageClassification", "ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}, [PIXELS]),
    "mobilevit": ("MobileViTForImageClassification", "MobileViTConfig", {"image_size": 32, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 12, 16, 16, 16, 32],
                                                                        "num_attention_heads": 4}, ["pixels_32"]),
    "segformer": ("SegformerForSemanticSegmentation", "SegformerConfig", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "sr_ratios": [2, 1],
                  "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16}, [PIXELS]),
    "mamba": ("MambaForCausalLM", "MambaConfig", MAMBA, [IDS]),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", MAMBA | {"head_dim": 16, "num_heads": 4, "n_groups": 1, "chunk_size": 8}, [IDS]),
    "rwkv": ("RwkvForCausalLM", "RwkvConfig", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 32, "use_cache": False}, [IDS]),
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", TEXT | SPEECH, [WAVES]),
}
#: {name: (side of the image, options)}
TIMM = {
    "resnet18": (64, {}), "dla34": (64, {}), "mixer_s32_224": (64, {"img_size": 64}), "mobilenetv3_small_050": (64, {}), "mobilenetv4_conv_small": (64, {}),
    "efficientnet_lite0": (64, {}), "efficientnet_b0": (64, {}), "regnety_002": (64, {}), "repvgg_a0": (64, {}), "fastvit_t8": (64, {}),
    "tf_efficientnetv2_b0": (64, {}), "densenet121": (64, {}), "vit_tiny_patch16_224": (64, {"img_size": 64}), "deit_tiny_patch16_224": (64, {"img_size": 64}),
    "convnext_atto": (64, {}), "swin_tiny_patch4_window7_224": (56, {"img_size": 56}), "levit_128s": (224, {}), "edgenext_xx_small": (64, {}),
    "hrnet_w18_small": (64, {}), "ghostnet_050": (64, {}),
}
QUICK = {"llama", "gemma2", "gpt2", "deberta", "t5", "falcon", "vit", "mixtral", "mobilenetv3_small_050", "vit_tiny_patch16_224", "ghostnet_050", "hrnet_w18_small"}
#: Networks that stay in several parts.
IN_PARTS = {"edgenext_xx_small"}


def chosen(names):
    return [name for name in names if RUN_ALL or name in QUICK]


def batch_of(names):
    values = {"input_ids": torch.randint(3, 64, (3, 16)), "decoder_input_ids": torch.randint(3, 64, (3, 12)), "input_values": torch.randn(3, 400),
              "pixel_values": torch.randn(3, 3, 16, 16), "pixels_32": torch.randn(3, 3, 32, 32), "input_features": torch.randn(3, 8, 20)}
    return {"pixel_values" if name == "pixels_32" else name: values[name] for name in names}


def first_output(output):
    if isinstance(output, torch.Tensor):
        return output
    return output.logits if "logits" in output else output.last_hidden_state


def quantized(model, preset, batch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        return fqt.quantize(model, preset, batch)


def run(model, batch):
    return first_output(model(**batch) if isinstance(batch, dict) else model(batch))


def trained_names(model, batch):
    """Returns the names of the parameters that have a gradient after one step of torch."""
    twin = copy.deepcopy(model)
    run(twin.eval(), batch).square().mean().backward()
    return {name for name, parameter in twin.named_parameters() if parameter.grad is not None}


def check_step(model, preset, batch, tolerance):
    """Compares with torch without quantizers, calibrates, and trains one step. Returns the quantized model."""
    trained = trained_names(model, batch)
    with torch.no_grad():
        wanted = run(model.eval(), batch)
    q = quantized(model, preset, batch)
    with torch.no_grad(), fqt.quantizers_off(q):
        torch.testing.assert_close(run(q.eval(), batch), wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max() + 1e-6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        fqt.calibrate(q, [batch])
    loss = run(q.train(), batch).square().mean()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in q.named_parameters() if parameter.grad is not None}
    assert loss.isfinite() and all(gradient.isfinite().all() for gradient in gradients.values())
    assert not trained - gradients.keys(), "no gradient"
    with torch.no_grad():
        y = run(q.eval(), batch)
        assert torch.equal(y, run(q, batch)), "evaluation is not deterministic"
    return q


def report(name, q, capsys):
    """Prints the number of parts, the layers on codes, and why others are not."""
    rows, parts = fqt.layers(q), [part for part in q.modules() if isinstance(part, fqt.Quantized)]
    count = {runs: sum(row["runs"] == runs for row in rows) for runs in ("codes", "float", "torch")}
    reasons = [f"{node}: {why}" for part in parts for node, why in part.floats.items()]
    reasons += [f"{row['layer']}: {row['why']}" for row in rows if row["runs"] == "torch" and not row["why"].endswith("is not quantized")]
    with capsys.disabled():
        print(f"{name}: {sum(len(part.lowered_modules()) for part in parts)} parts; {count['codes']} of {len(rows)} layers on codes, {count['float']} in floats, "
              f"{count['torch']} with torch", *dict.fromkeys(reasons), sep="\n    ") if RUN_ALL else None
    return count


@pytest.mark.parametrize("preset", ["int8", "w4a8"])
@pytest.mark.parametrize("name", chosen(TRANSFORMERS))
def test_transformers_train(name, preset, capsys):
    transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")
    torch.manual_seed(0)
    model, config, fields, inputs = TRANSFORMERS[name]
    q = check_step(getattr(transformers, model)(getattr(transformers, config)(**fields)), preset, batch_of(inputs), 1e-4)
    assert report(name, q, capsys)["codes"] > 0


@pytest.mark.parametrize("name", chosen(TIMM))
def test_timm_networks_become_one_part(name, capsys):
    timm = pytest.importorskip("timm", reason="there is no timm beside torch")
    torch.manual_seed(0)
    size, options = TIMM[name]
    model = timm.create_model(name, num_classes=10, **options)
    q = check_step(model, "int8", torch.randn(2, 3, size, size), 1e-4)
    count = report(name, q, capsys)
    if name not in IN_PARTS:
        assert len(q.lowered_modules()) == 1 and not q.floats and count["torch"] == 0
