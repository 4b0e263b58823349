"""Networks of Hugging Face's transformers with random weights, saved, imported, compared, quantized, trained and exported:
import_table.py --transformers."""

import os

import h5py
import numpy as np

TOKENS, VOCABULARY = 24, 96
SMALL = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, vocab_size=VOCABULARY,
             max_position_embeddings=48, bos_token_id=0, eos_token_id=0, pad_token_id=0)


def networks():
    """Name: the class, its config, and the type that weights are saved in."""
    import torch
    import transformers as t

    def rotary(base):
        return {"rope_parameters": {"rope_type": "default", "rope_theta": base}}

    gpt2 = dict(n_embd=64, n_layer=3, n_head=4, vocab_size=VOCABULARY, n_positions=48, bos_token_id=0, eos_token_id=0)
    return {
        "GPT-2": (t.GPT2LMHeadModel, t.GPT2Config(**gpt2), torch.float32),
        "Llama, grouped heads": (t.LlamaForCausalLM, t.LlamaConfig(**SMALL, num_key_value_heads=2, **rotary(500000.0)), torch.bfloat16),
        "Llama, tied, biases": (t.LlamaForCausalLM, t.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, head_dim=32,
                                                                  tie_word_embeddings=True), torch.float32),
        "Mistral": (t.MistralForCausalLM, t.MistralConfig(**SMALL, num_key_value_heads=1, sliding_window=None), torch.float32),
        "Qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**SMALL, num_key_value_heads=2, **rotary(1000000.0)), torch.bfloat16),
        "Qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=32), torch.float16),
        "BERT, classes": (t.BertForSequenceClassification, t.BertConfig(**SMALL, num_labels=5), torch.float32),
        "BERT, masked words": (t.BertForMaskedLM, t.BertConfig(**SMALL), torch.float32),
    }


def data_set(path, rows, answers):
    """Writes windows of tokens, labelled by the next token; for vectors of outputs, by the index of the largest."""
    tokens = answers.ndim == 3
    with h5py.File(path, "w") as file:
        for split in ("train", "test"):
            file[f"{split}/x"] = rows
            file[f"{split}/y"] = np.roll(rows[:, :TOKENS], -1, 1) if tokens else answers.argmax(1)
    return path


def rows(folder, command):
    """A row of the table for each network."""
    import torch

    for seed, (name, (kind, config, dtype)) in enumerate(networks().items()):
        torch.manual_seed(seed)
        base = os.path.join(folder, "transformers_" + "".join(c if c.isalnum() else "_" for c in name))
        kind(config).to(dtype).save_pretrained(base)
        network = kind.from_pretrained(base, dtype=torch.float32).eval()
        ids = torch.randint(0, VOCABULARY, (16, TOKENS))
        given, x = {"input_ids": ids}, ids
        if "BERT" in name:
            given["attention_mask"] = (torch.arange(TOKENS) < torch.randint(4, TOKENS + 1, (16, 1))).long()
            given["token_type_ids"] = (torch.arange(TOKENS) > 9).long().repeat(16, 1)
            x = torch.cat(list(given.values()), 1)
        with torch.no_grad():
            wanted = network(**given).logits.numpy()
        wanted = wanted.transpose(0, 2, 1) if wanted.ndim == 3 else wanted
        data = data_set(base + "_data.h5", x.numpy(), wanted)
        said = [kind.__name__, str(dtype).split(".")[1]]
        _, why = command("import", base, "--input-shape", str(TOKENS), "-o", base + ".h5", "--force")
        if not why:
            _, why = command("predict", base + ".h5", "--data", data, "-o", base + "_logits.h5", "--force")
        if why:
            yield [name, *said, f"refused: {why}", "", ""]
            continue
        with h5py.File(base + "_logits.h5") as file:
            found = file["logits"][...].reshape(wanted.shape)
        said.append(f"{np.abs(found - wanted).max() / np.abs(wanted).max():.1e}")
        _, why = command("qat", base + ".h5", "--data", data, "--preset", "int8", "--epochs", "1", "--batch", "8",
                         "-o", base + "_int8.h5", "--force")
        said.append(why or "yes")
        if not why:
            _, why = command("export", base + "_int8.h5", "--format", "onnx", "-o", base + ".onnx", "--force")
        counts, why = (None, why) if why else command("verify", base + ".onnx", "--checkpoint", base + "_int8.h5", "--data", data)
        said.append(f"{counts['codes_different']} of {counts['codes']}" if counts and "codes_different" in counts else why)
        yield [name, *said]
