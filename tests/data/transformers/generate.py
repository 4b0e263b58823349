"""Small transformers with random weights, written by save_pretrained, and their outputs: the folders
next to this file. Run with torch 2.15, transformers 5.24 and safetensors."""

import json
import os
import shutil

import torch
import transformers as t
from safetensors.torch import load_file, save_file

SMALL = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4, vocab_size=20,
             max_position_embeddings=12, bos_token_id=0, eos_token_id=0, pad_token_id=0)
GPT2 = dict(n_embd=8, n_layer=2, n_head=2, vocab_size=20, n_positions=12, bos_token_id=0, eos_token_id=0)


def rotary(base):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base}}


NETWORKS = {
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(**GPT2), torch.float32),
    "gpt2_untied": (t.GPT2LMHeadModel, t.GPT2Config(**GPT2, n_inner=10, tie_word_embeddings=False,
                                                    activation_function="relu"), torch.float32),
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**SMALL, num_key_value_heads=2, **rotary(500.0)), torch.bfloat16),
    "llama_biases": (t.LlamaForCausalLM, t.LlamaConfig(**SMALL, head_dim=4, attention_bias=True, mlp_bias=True,
                                                       tie_word_embeddings=True), torch.float32),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**SMALL, num_key_value_heads=1, sliding_window=None), torch.float32),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**SMALL, num_key_value_heads=2, tie_word_embeddings=True), torch.float32),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=4), torch.float16),
    "bert": (t.BertModel, t.BertConfig(**SMALL), torch.float32),
    "bert_classes": (t.BertForSequenceClassification, t.BertConfig(**SMALL, num_labels=3), torch.float32),
    "bert_masked": (t.BertForMaskedLM, t.BertConfig(**SMALL), torch.float32),
}


def randomised(network, seed):
    """Biases and norms too, which transformers begins at 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * 0.4 + (1 if "norm" in name.lower() and "weight" in name else 0))
    return network.eval()


def make_outputs(name, network):
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 20, (3, 9), generator=generator)
    out = {"ids": ids.to(torch.float32)}
    with torch.no_grad():
        if not name.startswith("bert"):
            return {**out, "answers": network(ids).logits.transpose(1, 2).contiguous()}
        mask = torch.ones(3, 9, dtype=torch.int64)
        mask[1, 5:] = 0
        types = (torch.arange(9) > 3).to(torch.int64).repeat(3, 1)
        given = network(input_ids=ids, attention_mask=mask, token_type_ids=types)
        plain = network(input_ids=ids)
        out["rows"] = torch.cat([ids, mask, types], 1).to(torch.float32)
        if name == "bert":
            return {**out, "answers": given.last_hidden_state, "plain": plain.last_hidden_state, "pooled": given.pooler_output}
        turn = (lambda x: x.transpose(1, 2).contiguous()) if name == "bert_masked" else (lambda x: x)
        return {**out, "answers": turn(given.logits), "plain": turn(plain.logits)}


SCALED = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0},
    "yarn_ends": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": False, "mscale": 1.0, "mscale_all_dim": 0.5},
}


def scaled(folder):
    """One network of scaled rotary positions, and its answers by each way, of more tokens than its context; scalings.json is
    what config.json has for each."""
    config = t.LlamaConfig(hidden_size=16, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, vocab_size=20,
                           max_position_embeddings=12, bos_token_id=0, eos_token_id=0, pad_token_id=0, **rotary(100.0))
    shutil.rmtree(folder, ignore_errors=True)
    randomised(t.LlamaForCausalLM(config), 20).save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    ids = torch.randint(0, 20, (2, 40), generator=torch.Generator().manual_seed(7))
    out = {"ids": ids.to(torch.float32)}
    for name, parameters in SCALED.items():
        config.rope_parameters = {"rope_theta": 100.0, **parameters}
        with torch.no_grad():
            network = t.LlamaForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()
            out[name] = network(ids).logits.transpose(1, 2).contiguous()
    save_file(out, os.path.join(folder, "answers.safetensors"))
    with open(os.path.join(folder, "scalings.json"), "w", encoding="utf-8") as file:
        json.dump({name: {"rope_theta": 100.0, **values} for name, values in SCALED.items()}, file, indent=1)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    for seed, (name, (kind, config, dtype)) in enumerate(NETWORKS.items()):
        folder = os.path.join(here, name)
        shutil.rmtree(folder, ignore_errors=True)
        network = randomised(kind(config), seed).to(dtype)
        network.save_pretrained(folder, **({"max_shard_size": "1KB"} if name == "llama" else {}))
        for extra in ("generation_config.json",):
            if os.path.exists(os.path.join(folder, extra)):
                os.remove(os.path.join(folder, extra))
        save_file(make_outputs(name, kind.from_pretrained(folder, dtype=torch.float32).eval()), os.path.join(folder, "answers.safetensors"))
        print(name, json.dumps(sorted(os.listdir(folder))), max(v.abs().max().item() for v in load_file(os.path.join(folder, "answers.safetensors")).values()))
    scaled(os.path.join(here, "llama_scaled"))
