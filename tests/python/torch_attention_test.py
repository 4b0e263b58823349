"""Attention of torch as a layer: its function and its module, in networks that torch.fx can and cannot trace."""
import copy
import inspect
import os
import pickle
import sys
import warnings

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

#: Queries, keys, values and probabilities on codes too, under ModelOpt's names.
ON_CODES = {"preset": "int8", "rules": [{"pattern": "*bmm_quantizer", "num_bits": 8}, {"pattern": "*softmax_quantizer", "num_bits": 8}]}
WIDTH, HEADS, LENGTH = 16, 4, 6


class Projections(nn.Module):
    """Attention as people write it with torch's function: `call` says how it is called."""

    def __init__(self, kv_heads=HEADS, **call):
        super().__init__()
        self.size, self.kv_heads, self.call = WIDTH // HEADS, kv_heads, call
        self.q, self.k, self.v = (nn.Linear(WIDTH, heads * self.size) for heads in (HEADS, kv_heads, kv_heads))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(1))
        self.register_buffer("bias", torch.linspace(-1, 1, HEADS * LENGTH * LENGTH).view(1, HEADS, LENGTH, LENGTH))

    def heads(self, x, heads):
        return x.reshape(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def attend(self, x, memory, mask):
        q, k, v = self.heads(self.q(x), HEADS), self.heads(self.k(memory), self.kv_heads), self.heads(self.v(memory), self.kv_heads)
        call = {key: getattr(self, value) if isinstance(value, str) else value for key, value in self.call.items()}
        y = F.scaled_dot_product_attention(q, k, v, **({} if mask is None else {"attn_mask": mask}), **call)
        return self.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH))

    def forward(self, x):
        return x + self.attend(x, x, None)


class Cross(Projections):
    """Attention on two inputs and a mask."""

    def forward(self, x, memory, mask):
        return x + self.attend(x, memory, mask[:, None, None, :])


class Unreadable(Projections):
    """A module that torch.fx cannot trace."""

    def forward(self, x, mask=None):
        return x + self.attend(x, x, mask) if x.abs().sum() < 1e9 else x


class Module(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(WIDTH, HEADS, **options), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0])


class Memory(Module):
    """Attention with its own keys and values, and masks."""

    def forward(self, x, memory, hidden=None, mask=None):
        return self.head(self.attention(x, memory, memory, key_padding_mask=hidden, attn_mask=mask, need_weights=False)[0])


class Padded(Module):
    def forward(self, x, hidden):
        return self.head(self.attention(x, x, x, hidden, need_weights=False)[0])


def encoder():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Decoder(nn.Module):
    """A decoder on ids and a padded memory, with a causal mask."""

    def __init__(self, **options):
        super().__init__()
        self.words, self.head = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 5)
        layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, **options)
        self.layers = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(WIDTH))
        self.register_buffer("future", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, memory, ids, seen):
        return self.head(self.layers(self.words(ids), memory, tgt_mask=self.future, memory_key_padding_mask=~seen))


torch.manual_seed(0)
X, MEMORY = torch.randn(3, LENGTH, WIDTH), torch.randn(3, 9, WIDTH)
SEEN = torch.arange(9) < torch.tensor([[9], [4], [1]])
HIDDEN = ~SEEN[:, :LENGTH]
# (makes the network, its inputs, whether all of it is one part of the library)
CASES = {
    "function": (Projections, (X,), True),
    "causal": (lambda: Projections(is_causal=True), (X,), True),
    "scale": (lambda: Projections(scale=0.3, dropout_p=0.0), (X,), True),
    "booleans": (lambda: Projections(attn_mask="seen"), (X,), True),
    "added": (lambda: Projections(attn_mask="bias"), (X,), True),
    "grouped": (lambda: Projections(kv_heads=2, enable_gqa=True, is_causal=True), (X,), True),
    "cross": (Cross, (X, MEMORY, SEEN), True),
    "unreadable": (Unreadable, (X,), False),
    "unreadable_causal": (lambda: Unreadable(is_causal=True), (X,), False),
    "unreadable_grouped": (lambda: Unreadable(kv_heads=1, enable_gqa=True), (X,), False),
    "module": (lambda: Module(batch_first=True), (X,), True),
    "module_cross": (lambda: Memory(batch_first=True, kdim=WIDTH, vdim=WIDTH), (X, MEMORY), True),
    "module_padding": (lambda: Padded(batch_first=True), (X, HIDDEN), True),
    "module_masks": (lambda: Memory(batch_first=True, bias=False), (X, MEMORY, ~SEEN, torch.linspace(-1, 1, 54).view(LENGTH, 9)), False),
    "module_rows_first": (lambda: Memory(), (X.transpose(0, 1), MEMORY.transpose(0, 1)), False),
    "encoder": (encoder, (X, None, HIDDEN), True),
    "decoder": (lambda: Decoder(norm_first=True, activation="gelu"), (MEMORY, torch.randint(0, 20, (3, LENGTH)), SEEN), True),
    "transformer": (lambda: nn.Transformer(WIDTH, HEADS, 1, 1, 2 * WIDTH, 0.0, batch_first=True), (X, MEMORY), True),
}


OF_SEVERAL = ["cross", "module_cross", "module_padding", "encoder", "decoder", "transformer"]  # each is one part unless whole is False


def remove_quantizers(model):
    for part in fqt.modules.quantized_parts(model):
        for codes in part.lowered_modules().values():
            if codes.network.quantizers():
                codes.network.disable_quantizer("*")
    return model


@pytest.mark.parametrize("name, whole", [*((name, True) for name in CASES), *((name, False) for name in OF_SEVERAL)])
def test_matches_torch_without_quantizers(name, whole):
    """Values and gradients in floats, to the rounding of sums in another order."""
    torch.manual_seed(1)
    make, inputs, one = CASES[name]
    model = make()
    twin = copy.deepcopy(model)
    quantized = remove_quantizers(fqt.quantize(model, "int8", inputs, whole))
    attention = [part for part in quantized.modules() if isinstance(part, fqt.attention.Attention)]
    assert (not attention and len(quantized.lowered_modules()) == 1) if one and whole else attention
    assert list(dict(quantized.named_parameters())) == list(dict(twin.named_parameters()))
    given = [[t.clone().requires_grad_() if torch.is_tensor(t) and t.is_floating_point() and i < 2 else t for i, t in enumerate(inputs)]
             for _ in range(2)]
    y, wanted = quantized(*given[0]), twin(*given[1])
    torch.testing.assert_close(y, wanted, rtol=1e-4, atol=2e-6)
    seed = torch.randn_like(wanted)
    y.backward(seed)
    wanted.backward(seed)
    torch.testing.assert_close(given[0][0].grad, given[1][0].grad, rtol=1e-3, atol=1e-5)
    for (path, own), other in zip(quantized.named_parameters(), twin.parameters()):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-3, atol=1e-5, msg=lambda text: f"{path}: {text}")
    quantized.eval()
    twin.eval()
    with torch.no_grad():
        torch.testing.assert_close(quantized(*inputs), twin(*inputs), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", ["causal", "added", "booleans", "module", *OF_SEVERAL])
def test_file_contains_the_codes(name, tmp_path):
    pytest.importorskip("onnxruntime")
    make, x, _ = CASES[name]
    torch.manual_seed(2)
    model = fqt.calibrate(fqt.quantize(make(), ON_CODES, x), [(x, None)]).eval()
    on = [row["name"].split(".")[-1] for row in model.codes_0.network.quantizers() if row["enabled"]]
    assert {"q_bmm_quantizer", "k_bmm_quantizer", "v_bmm_quantizer", "softmax_quantizer"} <= set(on)
    fqt.export(model, str(tmp_path / "x.onnx"))
    found = fqt.verify(model, str(tmp_path / "x.onnx"), x)
    assert found["flips"] == 0 and found["max"] < 2e-2  # softmax is the engine's own: a code near a tie may be off by one


@pytest.mark.parametrize("name, whole", [("unreadable_causal", True), ("cross", True), ("cross", False), ("module_masks", True),
                                         ("encoder", False), ("decoder", True), ("decoder", False)])
def test_computes_self_attention_on_codes(name, whole):
    """It differs from floats by the codes, trains, and goes through copies and state dicts."""
    make, inputs, _ = CASES[name]
    torch.manual_seed(3)
    model = make().eval()
    quantized = fqt.quantize(model, ON_CODES, inputs, whole)
    names = list(inspect.signature(model.forward).parameters)
    batch = {key: value for key, value in zip(names, inputs) if value is not None}
    shorter = {"unreadable_causal": [{"x": X[:, :4]}]}.get(name, [])  # lengths may differ
    fqt.calibrate(quantized, [*shorter, batch])
    with torch.no_grad():
        y, floats = quantized(*inputs), model(*inputs)
    assert 0 < (y - floats).abs().max() < 0.1
    quantized(*inputs).square().mean().backward()
    assert all(parameter.grad is not None for parameter in quantized.parameters())
    other = fqt.quantize(make(), ON_CODES, inputs, whole).eval()
    other.load_state_dict(quantized.state_dict())
    with torch.no_grad():
        for twin in (copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized)), other):
            assert torch.equal(twin(*inputs), y)


class Dropping(Unreadable):
    def attend(self, x, memory, mask):
        self.call = {"dropout_p": 0.5 if self.training else 0.0}
        return super().attend(x, memory, mask)


def test_rejects_unsupported_attention_options():
    model = Dropping()
    without = remove_quantizers(fqt.quantize(model, "int8", X))
    torch.manual_seed(4)
    a = without(X)
    torch.manual_seed(4)
    torch.testing.assert_close(a, model(X), rtol=1e-4, atol=1e-5)  # left with torch
    quantized = fqt.calibrate(fqt.quantize(model, ON_CODES, X), [X])
    with pytest.raises(fq.ArgumentError, match="dropout_p is above 0, which quantized attention does not support"):
        quantized(X)
    assert quantized.eval()(X).isfinite().all()
    learned = torch.zeros(LENGTH, LENGTH, requires_grad=True)
    with pytest.raises(fq.ArgumentError, match="the mask takes a gradient"):
        quantized(X, learned)


def test_rejects_several_inputs_by_name(tmp_path):
    make, inputs, _ = CASES["encoder"]
    model = fqt.calibrate(fqt.quantize(make(), "int8", inputs), [(inputs, None)])
    with pytest.raises(fq.ArgumentError, match=r"the input 'src' is \[3, 5, 16\]: use \['N', 6, 16\] as in example_input"):
        model(X[:, :5], None, HIDDEN)
    with pytest.raises(fq.ArgumentError, match="the input 'src_key_padding_mask' is None: use"):
        model(X)
    with pytest.raises(fq.ArgumentError, match="'mask' was None in example_input"):
        model(X, torch.zeros(LENGTH, LENGTH), HIDDEN)
    with pytest.raises(TypeError, match="takes src, which was not given"):
        model()
    make, inputs, _ = CASES["module_masks"]
    model = fqt.quantize(make(), "int8", inputs)
    with pytest.raises(fq.ArgumentError, match="attention is a separate part: .* mask that is neither a buffer of the model nor one for each"):
        fqt.save(model, str(tmp_path / "x.h5"))


class Modes(nn.Module):
    """Constants that the mode decides, and a branch on it."""

    def __init__(self, branch):
        super().__init__()
        self.branch, self.up, self.down = branch, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = self.up(x)
        if self.branch and self.training:
            x = x + 1
        return self.down(torch.cumsum(x, 1) * (2.0 if self.training else 3.0))


@pytest.mark.parametrize("branch", [False, True])
def test_mode_selects_the_gradient(branch):
    model = Modes(branch)
    quantized = remove_quantizers(fqt.quantize(model, "int8", X))
    for mode in (True, False):
        torch.testing.assert_close(quantized.train(mode)(X), model.train(mode)(X), rtol=1e-4, atol=1e-5)


def test_backward_does_not_read_caller_memory():
    """An output that its own operator keeps."""
    gradients, x = [], X[:, 0]
    for written in (False, True):
        torch.manual_seed(5)
        model = fqt.calibrate(fqt.quantize(nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh()), "int8", x), [x])
        y = model(x)
        if written:
            y.data.zero_()
        y.backward(torch.ones_like(y))
        gradients.append(next(model.parameters()).grad)
    assert torch.equal(*gradients) and gradients[0].abs().max() > 0


def test_supports_transformers():
    """GPT-2, Llama, BERT and ViT of transformers, where it is."""
    transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")
    torch.manual_seed(6)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
    ids, seen = torch.randint(0, 64, (3, 12)), torch.ones(3, 12, dtype=torch.long)
    seen[1, 8:] = 0
    text = {"input_ids": ids, "attention_mask": seen}
    cases = [(transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, use_cache=False)), text),
             (transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=2, use_cache=False)), text),
             (transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)), text),
             (transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, image_size=16, patch_size=4)),
              {"pixel_values": torch.randn(3, 3, 16, 16)})]
    for model, batch in cases:
        model.eval()
        with warnings.catch_warnings():  # a rule that matches in one part gives no warning
            warnings.simplefilter("error", fq.FakequantWarning)
            quantized = fqt.calibrate(fqt.quantize(model, ON_CODES, batch), [batch])
        assert sum(isinstance(part, fqt.attention.Attention) for part in quantized.modules()) == 2, type(model)
        y, floats = quantized(**batch).logits, model(**batch).logits.detach()
        assert 0 < (y - floats).abs().max() < 0.05 * floats.abs().max(), type(model)
        plain = fqt.calibrate(fqt.quantize(model, "int8", batch), [batch])  # attention in floats
        assert 0 < (plain(**batch).logits - floats).abs().max() < 0.05 * floats.abs().max(), type(model)
        loss = y.square().mean()
        loss.backward()
        assert all(parameter.grad is not None for parameter in quantized.parameters()), type(model)
        torch.optim.AdamW(fqt.parameter_groups(quantized, lr=1e-4)).step()
        assert quantized(**batch).logits.square().mean() < loss, type(model)
        with pytest.raises(fq.ArgumentError, match="torch runs a part of the model, and the checkpoint of the command cannot have") as why:
            fqt.save(quantized, "x.h5")
        reasons = str(why.value).split(": ", 1)[1].split("; ")
        assert len(reasons) == len(set(reasons)), reasons
        with pytest.warns(fq.FakequantWarning, match="'nowhere' matches no quantizer") as report:
            fqt.quantize(model, {"preset": "int8", "rules": [{"pattern": "nowhere", "num_bits": 8}]}, batch)
        assert len(report) == 1 and report[0].filename == __file__, type(model)
        floats, floats_again = model(**batch).logits, remove_quantizers(fqt.quantize(model, "int8", batch))(**batch).logits
        torch.testing.assert_close(floats_again, floats, rtol=1e-4, atol=1e-6)
