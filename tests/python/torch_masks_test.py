"""Padding in calibration: positions that a mask leaves out do not enter ranges."""
import os
import sys

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

N, T, C = 24, 10, 16
torch.manual_seed(0)
SEEN = torch.arange(T)[None] < torch.randint(1, T + 1, (N,))[:, None]
X = torch.randn(N, T, C)


def padded(value):
    return torch.where(SEEN[:, :, None], X, torch.full_like(X, value))


class Tokens(nn.Module):
    """Layers on tokens, on all tokens as rows and on pooled samples."""

    def __init__(self, opaque):
        super().__init__()
        torch.manual_seed(1)
        self.opaque = opaque
        self.up, self.down, self.rows, self.head = nn.Linear(C, 32), nn.Linear(32, T), nn.Linear(T, C), nn.Linear(C, 4)

    def forward(self, x, mask):
        if self.opaque and x.abs().sum() > 1e9:  # torch.fx cannot read this
            x = 2 * x
        h = self.down(F.relu(self.up(x)))
        h = self.rows(torch.cumsum(h.reshape(-1, T), 1)).reshape(x.shape)
        mask = mask.unsqueeze(-1).to(h.dtype)
        return self.head((h * mask).sum(1) / mask.sum(1))


def ranges(model):
    return {(name, row["name"]): row["amax"] for name, codes in model.named_modules() if isinstance(codes, fqt.parts.LoweredModule)
            for row in codes.network.quantizers() if row["enabled"]}


def calibrated(net, batches, config="int8", **options):
    return fqt.calibrate(fqt.quantize(net, config, (X[:2], SEEN[:2])), batches, **options)


def make_mask(batch):
    return batch[0][1]


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("config, method", [("int8", ""), ("int8", "entropy"), ("int8", "mse"), ("int8", "percentile"), ("w4a4", "")])
def test_ranges_exclude_padding(config, method, opaque):
    """Ranges do not depend on the values of the padding. Without the mask they do."""
    found = {value: ranges(calibrated(Tokens(opaque), [((padded(value), SEEN),)], config, method=method, mask=make_mask))
             for value in (0.0, 100.0)}
    assert found[0.0] == found[100.0]
    whole = ranges(calibrated(Tokens(opaque), [((padded(100.0), SEEN),)], config, method=method))
    assert sum(whole[name] != amax for name, amax in found[0.0].items()) >= 3


def test_supports_batches_of_several_lengths_and_sizes():
    whole = ranges(calibrated(Tokens(True), [((padded(100.0), SEEN),)], mask=make_mask))
    order = SEEN.sum(1).argsort()
    batches = []
    for rows in order.split(6):
        length = int(SEEN[rows].sum(1).max())
        batches.append(((padded(100.0)[rows, :length], SEEN[rows, :length]),))
    assert ranges(calibrated(Tokens(True), batches, mask=make_mask)) == whole
    few = ranges(calibrated(Tokens(True), [((padded(100.0), SEEN),)], samples=7, mask=make_mask))
    assert few == ranges(calibrated(Tokens(True), [((padded(0.0)[:7], SEEN[:7]),)], mask=make_mask)) != whole


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.words, self.up, self.head = nn.Embedding(20, C), nn.Linear(C, C), nn.Linear(C, 3)

    def forward(self, input_ids, attention_mask=None):
        h = self.up(self.words(input_ids)) * attention_mask[:, :, None]
        return self.head(h.sum(1))


def test_uses_the_attention_mask_of_dicts():
    ids = torch.where(SEEN, torch.randint(1, 20, (N, T)), 0)
    batch = {"input_ids": ids, "attention_mask": SEEN.long()}
    found = []
    for size in (1.0, 100.0):
        net = Text()
        net.words.weight.data[0] *= size
        found.append(ranges(fqt.calibrate(fqt.quantize(net, "int8", batch), [batch])))
    assert found[0] == found[1]
    everything = ranges(fqt.calibrate(fqt.quantize(net, "int8", batch), [batch], mask=lambda batch: torch.ones(N, T)))
    assert everything != found[0]


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.q, self.k = nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, x, mask):
        if x.abs().sum() > 1e9:
            x = 2 * x
        q, k = (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in (self.q(x), self.k(x)))
        return F.scaled_dot_product_attention(q, k, k, mask[:, None, None])


def test_supports_attention_on_codes():
    rules = {"preset": "int8", "rules": [{"pattern": "*bmm_quantizer", "num_bits": 8}]}
    found = [ranges(calibrated(Attends(), [((padded(value), SEEN),)], rules, mask=make_mask)) for value in (0.0, 100.0)]
    assert found[0] == found[1] and any("bmm" in name for _, name in found[0])
    model = fqt.quantize(Attends(), rules, (X, SEEN))
    with pytest.raises(fq.ArgumentError, match="other lengths than in example_input"):
        fqt.calibrate(model, [((X[:, :5], SEEN[:, :5]),)], mask=make_mask)


@pytest.mark.parametrize("mask, words", [
    (lambda batch: SEEN[:, :4], "no input of a quantizer has its positions"),
    (lambda batch: SEEN[:5], rf"mask returns torch.bool \[5, {T}\] for a batch of {N}: return a bool tensor \[{N}, T\]"),
    (lambda batch: SEEN[:, :, None], "mask returns torch.bool"),
    (lambda batch: None, "mask returns a NoneType"),
])
def test_rejects_mismatched_masks(mask, words):
    with pytest.raises(fq.ArgumentError, match=words):
        calibrated(Tokens(False), [((X, SEEN),)], mask=mask)


def test_model_calibrate_accepts_a_mask():
    """An array beside arrays of samples, or an input of the network."""
    nodes = [{"name": "x", "type": "input_part", "options": {"begin": 0, "shape": [T, C], "name": "x"}, "inputs": ["input"]},
             {"name": "seen", "type": "input_part", "options": {"begin": T * C, "shape": [T], "name": "seen"}, "inputs": ["input"]},
             {"name": "up", "type": "linear", "options": {"out_features": 8}, "inputs": ["x"]},
             {"name": "flat", "type": "flatten", "options": {}, "inputs": ["up"]},
             {"name": "both", "type": "concat", "options": {"axis": 1}, "inputs": ["flat", "seen"]},
             {"name": "head", "type": "linear", "options": {"out_features": 3}, "inputs": ["both"]}]
    rows = torch.cat([padded(100.0).flatten(1), SEEN.float()], 1).numpy()

    def amax(**options):
        model = fq._fakequant.model_of_nodes(nodes, [T * C + T], 3)
        model.quantize("int8")
        data = options.pop("data", rows)
        report = model.calibrate(data, **options)
        return report["masked"], {row["name"]: row["amax"] for row in model.quantizers() if row["enabled"]}
    masked, named = amax(mask="seen")
    largest = float(X[SEEN].abs().max())
    assert masked > 0 and named["up.input_quantizer"][0] == pytest.approx(largest) and amax()[1]["up.input_quantizer"][0] == 100
    for mask in (SEEN, SEEN.numpy(), SEEN.float().numpy(), SEEN.long().numpy()):
        assert amax(mask=mask) == (masked, named)
    assert amax(data=(rows, np.zeros(N, np.int64)), mask=SEEN) == (masked, named)
    assert amax(mask=SEEN, samples=N) == (masked, named)
    for mask, words in (("sean", "mask 'sean' is no input of the network: its inputs are x, seen"), (SEEN[:, :3], "mask: no tensor of the model has the positions"),
                        (SEEN[:3], ""), (SEEN[:, :, None], r"mask is .*use \[N, T\]|mask is ")):
        with pytest.raises(fq.ArgumentError, match=words):
            amax(mask=mask)
    with pytest.raises(fq.ArgumentError, match="mask is an array and data a data set"):
        amax(data=fq.TensorDataset(rows), mask=SEEN)
