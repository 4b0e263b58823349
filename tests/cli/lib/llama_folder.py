"""Random networks of Llama's, Qwen2's and Qwen3's kind, as folders of transformers."""

import json
import os
import struct

import numpy as np

WIDTH, HEADS, KV, INNER, LAYERS = 64, 4, 2, 96, 2


def save(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        bytes_ = value.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def folder(name, architecture, vocabulary, tied, biases, positions=16):
    """Writes the files of save_pretrained for a random network; returns its tensors."""
    random = np.random.default_rng(3)
    size = WIDTH // HEADS
    shapes = {"model.embed_tokens.weight": (vocabulary, WIDTH), "model.norm.weight": (WIDTH,)}
    if not tied:
        shapes["lm_head.weight"] = (vocabulary, WIDTH)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = (WIDTH,)
        for projection, rows in (("q", HEADS * size), ("k", KV * size), ("v", KV * size)):
            shapes[f"{layer}self_attn.{projection}_proj.weight"] = (rows, WIDTH)
            if biases:
                shapes[f"{layer}self_attn.{projection}_proj.bias"] = (rows,)
        if architecture == "Qwen3ForCausalLM":
            shapes |= {f"{layer}self_attn.{norm}_norm.weight": (size,) for norm in ("q", "k")}
        shapes[f"{layer}self_attn.o_proj.weight"] = (WIDTH, HEADS * size)
        for projection in ("gate", "up"):
            shapes[f"{layer}mlp.{projection}_proj.weight"] = (INNER, WIDTH)
        shapes[f"{layer}mlp.down_proj.weight"] = (WIDTH, INNER)
    tensors = {name: (random.standard_normal(shape) * 0.1 + ("norm" in name)).astype(np.float32) for name, shape in shapes.items()}
    os.makedirs(name)
    config = {"architectures": [architecture], "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV, "max_position_embeddings": positions, "rms_norm_eps": 1e-5,
              "rope_theta": 5000.0, "hidden_act": "silu", "vocab_size": vocabulary, "tie_word_embeddings": tied}
    with open(os.path.join(name, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    save(os.path.join(name, "model.safetensors"), tensors)
    return tensors
