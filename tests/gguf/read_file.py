"""read_file.py FILE.gguf WEIGHTS.npz KIND: a file as llama.cpp's own package reads it, its tensors beside float weights."""

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize, quantize

path, weights, kind = sys.argv[1:]
reader = GGUFReader(path)
floats = np.load(weights)
tensors = {tensor.name: tensor for tensor in reader.tensors}
wanted = GGMLQuantizationType[kind]


def field(name):
    return reader.get_field(name).contents()


def matrix(name):
    """Float weights by llama.cpp's names: q, k and v row below row."""
    return np.concatenate([floats[part] for part in name]) if isinstance(name, tuple) else floats[name]


def check(name, ours):
    tensor, values = tensors[name], matrix(ours)
    assert tuple(int(n) for n in tensor.shape) == values.shape[::-1], (name, tensor.shape, values.shape)
    if values.ndim == 2 and "position" not in name:
        assert tensor.tensor_type == wanted, (name, tensor.tensor_type)
        # the engine's own quantizer makes equal bytes from the trained weights, and from the dequantized file
        assert np.array_equal(tensor.data, quantize(values, wanted)), name
        assert np.array_equal(tensor.data, quantize(dequantize(tensor.data, wanted), wanted)), name
        assert np.abs(dequantize(tensor.data, wanted) - values).max() <= np.abs(values).max() / 7, name
    else:
        assert tensor.tensor_type == GGMLQuantizationType.F32, (name, tensor.tensor_type)
        assert np.array_equal(tensor.data, values), name


architecture = field("general.architecture")
if architecture == "gpt2":
    assert (field("gpt2.block_count"), field("gpt2.embedding_length"), field("gpt2.attention.head_count"),
            field("gpt2.context_length"), field("gpt2.feed_forward_length")) == (2, 32, 2, 16, 128)
    assert field("tokenizer.ggml.model") == "gpt2" and field("tokenizer.ggml.merges") == []
    assert {"\u0120", "\u010a", "a"} <= set(field("tokenizer.ggml.tokens")), field("tokenizer.ggml.tokens")
    assert len(field("tokenizer.ggml.tokens")) == tensors["token_embd.weight"].shape[1]
    names = {"token_embd.weight": "tokens.weight", "position_embd.weight": "positions.weight", "output.weight": "head.weight",
             "output_norm.weight": "norm.weight", "output_norm.bias": "norm.bias"}
    for i in range(2):
        for part in ("weight", "bias"):
            block, own = f"blk.{i}.", f"block{i + 1}_"
            names[f"{block}attn_norm.{part}"] = f"{own}norm1.{part}"
            names[f"{block}attn_qkv.{part}"] = tuple(f"{own}attention.{p}_proj.{part}" for p in "qkv")
            names[f"{block}attn_output.{part}"] = f"{own}attention.out_proj.{part}"
            names[f"{block}ffn_norm.{part}"] = f"{own}norm2.{part}"
            names[f"{block}ffn_up.{part}"] = f"{own}fc1.{part}"
            names[f"{block}ffn_down.{part}"] = f"{own}fc2.{part}"
else:
    assert architecture == "fakequant", architecture
    names = {name: name for name in floats.files}
assert set(names) == set(tensors), set(names) ^ set(tensors)
for name, ours in names.items():
    check(name, ours)
print(f"{len(names)} tensors of {architecture}, {kind}")
