"""Every operator of torch that has a layer: in one part, with the values and gradients of torch in training and in evaluation."""
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
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Net(nn.Module):
    """Children by name, and a forward of one line."""

    def __init__(self, line, **children):
        super().__init__()
        for name, child in children.items():
            self.register_buffer(name, child) if type(child) is torch.Tensor else setattr(self, name, child)
        self.line = line

    def forward(self, x):
        return self.line(self, x)


def image_net(function, **children):
    """A convolution, a function of images [N, 8, 6, 6], and a convolution if the result is an image."""
    torch.manual_seed(0)
    y = function(Net(None, **children), torch.rand(2, 8, 6, 6))
    if y.dim() == 4:
        return Net(lambda m, x: m.out(function(m, m.conv(x))), conv=nn.Conv2d(3, 8, 3, padding=1), out=nn.Conv2d(y.shape[1], 4, 1), **children)
    return Net(lambda m, x: m.out(function(m, m.conv(x))), conv=nn.Conv2d(3, 8, 3, padding=1), out=nn.Linear(y.shape[-1], 4), **children)


def sequence_net(function, **children):
    """A linear layer, a function of sequences [N, 6, 8], and a linear layer."""
    torch.manual_seed(0)
    y = function(Net(None, **children), torch.rand(2, 6, 8))
    return Net(lambda m, x: m.out(function(m, m.fc(x))), fc=nn.Linear(5, 8), out=nn.Linear(y.shape[-1], 4), **children)


def check(net, *inputs, parts=1, tolerance=1e-5):
    """Compares outputs, gradients and buffers of the quantized model without quantizers with torch, in training and in evaluation."""
    twin = copy.deepcopy(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        model = fqt.quantize(net, "int8", inputs)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), twin.state_dict().values())), "quantize changed the model"
    if parts is not None:
        assert len(model.lowered_modules()) == parts, model.floats
        assert parts != 1 or not model.floats, model.floats
    for mode in (True, False):
        model.train(mode)
        twin.train(mode)
        given = [[x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs] for _ in range(2)]
        with fqt.quantizers_off(model):
            y, wanted = model(*given[0]), twin(*given[1])
            seed = torch.randn_like(wanted)
            y.backward(seed)
        wanted.backward(seed)
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=tolerance)
        for own, other in zip(*given):
            if own.is_floating_point():
                torch.testing.assert_close(own.grad, other.grad, rtol=1e-3, atol=10 * tolerance)
        parameters = dict(model.named_parameters())
        for name, other in twin.named_parameters():
            grad = parameters[name].grad
            assert (grad is None) == (other.grad is None), f"{name}: only one has a gradient"
            if grad is not None:
                torch.testing.assert_close(grad, other.grad, rtol=1e-3, atol=20 * tolerance, msg=lambda text: f"{name}: {text}")
        for (name, own), other in zip(net.named_buffers(), twin.buffers()):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")
        model.zero_grad()
        twin.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        fqt.calibrate(model.train(), [inputs])
    loss = model(*inputs).square().mean()
    loss.backward()
    assert loss.isfinite()
    return model


IMAGES = {
    "batch_norm": (lambda m, x: F.batch_norm(x, m.n.running_mean, m.n.running_var, m.n.weight, m.n.bias, m.training, 0.2, 1e-3),
                   {"n": nn.BatchNorm2d(8)}),
    "batch_norm without weights": (lambda m, x: m.n(x), {"n": nn.BatchNorm2d(8, affine=False)}),
    "group_norm": (lambda m, x: F.group_norm(x, 2, m.w, m.b, 1e-4), {"w": nn.Parameter(torch.rand(8)), "b": nn.Parameter(torch.rand(8))}),
    "GroupNorm without weights": (lambda m, x: m.n(x), {"n": nn.GroupNorm(4, 8, affine=False)}),
    "instance_norm": (lambda m, x: F.instance_norm(x, eps=1e-3), {}),
    "InstanceNorm2d": (lambda m, x: m.n(x), {"n": nn.InstanceNorm2d(8, affine=True)}),
    "layer norm of channels": (lambda m, x: F.layer_norm(x.permute(0, 2, 3, 1), (8,), m.n.weight, m.n.bias, 1e-6).permute(0, 3, 1, 2), {"n": nn.LayerNorm(8)}),
    "frozen batch norm": (lambda m, x: x * (m.w * (m.v + 1e-5).rsqrt()).reshape(1, -1, 1, 1) + m.b.reshape(1, -1, 1, 1),
                          {"w": torch.rand(8), "v": torch.rand(8), "b": torch.rand(8)}),
    "local_response_norm": (lambda m, x: F.local_response_norm(x, 3, 1e-2, 0.5, 2.0), {}),
    "prelu": (lambda m, x: F.prelu(x, m.w), {"w": nn.Parameter(torch.rand(8))}),
    "PReLU": (lambda m, x: m.n(x), {"n": nn.PReLU()}), "PReLU of channels": (lambda m, x: m.n(x), {"n": nn.PReLU(8)}),
    "elu_": (lambda m, x: F.elu_(x, 0.5), {}), "hardtanh": (lambda m, x: F.hardtanh(x, -0.3, 0.4), {}),
    "threshold": (lambda m, x: F.threshold(x, 0, 0), {}), "celu": (lambda m, x: F.celu(x, 0.7, inplace=True), {}),
    "clamp": (lambda m, x: x.clamp(-0.2, 0.3), {}), "clamp of one limit": (lambda m, x: torch.clamp(x, max=0.1).clamp_min(-0.4), {}),
    "softmax2d": (lambda m, x: m.n(x), {"n": nn.Softmax2d()}), "glu": (lambda m, x: F.glu(x, 1), {}),
    "max_pool with ceil_mode": (lambda m, x: F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True), {}),
    "max_pool with two dilations": (lambda m, x: F.max_pool2d(x, 2, 1, dilation=(1, 2)), {}),
    "avg_pool": (lambda m, x: F.avg_pool2d(x, 3, 2, (1, 0), ceil_mode=True, count_include_pad=False), {}),
    "AdaptiveMaxPool2d": (lambda m, x: m.n(x), {"n": nn.AdaptiveMaxPool2d((3, 2))}),
    "adaptive_max_pool of one": (lambda m, x: F.adaptive_max_pool2d(x, 1), {}),
    "adaptive_avg_pool with None": (lambda m, x: F.adaptive_avg_pool2d(x, (None, 2)), {}),
    "adaptive_avg_pool of windows": (lambda m, x: F.adaptive_avg_pool2d(x, 4), {}),
    "interpolate to a size": (lambda m, x: F.interpolate(x, size=(9, 4)), {}),
    "interpolate by a factor": (lambda m, x: F.interpolate(x, scale_factor=1.6, mode="nearest"), {}),
    "nearest-exact": (lambda m, x: F.interpolate(x, size=(11, 4), mode="nearest-exact"), {}),
    "nearest-exact by a factor": (lambda m, x: F.interpolate(x, scale_factor=0.5, mode="nearest-exact"), {}),
    "bilinear": (lambda m, x: F.interpolate(x, scale_factor=(2.0, 1.7), mode="bilinear", align_corners=False), {}),
    "bilinear, recomputed": (lambda m, x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True), {}),
    "bilinear with corners": (lambda m, x: F.interpolate(x, size=x.shape[-2:], mode="bilinear", align_corners=True), {}),
    "bilinear of larger images with corners": (lambda m, x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), {}),
    "bicubic": (lambda m, x: F.interpolate(x, size=(9, 5), mode="bicubic"), {}),
    "bicubic with corners": (lambda m, x: F.interpolate(x, scale_factor=2.5, mode="bicubic", align_corners=True), {}),
    "Upsample": (lambda m, x: m.n(x), {"n": nn.Upsample(scale_factor=2)}),
    "Upsample of floats": (lambda m, x: m.n(x), {"n": nn.Upsample(size=(4, 9), mode="bilinear", align_corners=True)}),
    "UpsamplingBilinear2d": (lambda m, x: m.n(x), {"n": nn.UpsamplingBilinear2d(scale_factor=2)}),
    "pad": (lambda m, x: F.pad(x, (1, 2, 0, 1)), {}), "pad of channels": (lambda m, x: F.pad(x, (0, 0, 0, 0, 1, 2), value=0.5), {}),
    "pad that removes": (lambda m, x: F.pad(x, [-1, 0, 1, -1]), {}), "reflect": (lambda m, x: F.pad(x, (1, 2, 3, 0), "reflect"), {}),
    "replicate": (lambda m, x: F.pad(x, (1, 2, 3, 0), mode="replicate"), {}), "circular": (lambda m, x: F.pad(x, (1, 2, 3, 0), "circular"), {}),
    "ZeroPad2d": (lambda m, x: m.n(x), {"n": nn.ZeroPad2d((1, 0, 2, 1))}), "ConstantPad2d": (lambda m, x: m.n(x), {"n": nn.ConstantPad2d(1, -0.5)}),
    "ReflectionPad2d": (lambda m, x: m.n(x), {"n": nn.ReflectionPad2d((1, 0, 2, 1))}),
    "pixel_shuffle": (lambda m, x: F.pixel_shuffle(x, 2), {}), "PixelUnshuffle": (lambda m, x: m.n(x), {"n": nn.PixelUnshuffle(3)}),
    "channel_shuffle": (lambda m, x: F.channel_shuffle(x, 4) if hasattr(F, "channel_shuffle") else torch.channel_shuffle(x, 4), {}),
    "ChannelShuffle": (lambda m, x: m.n(x), {"n": nn.ChannelShuffle(2)}),
    "conv_transpose2d": (lambda m, x: F.conv_transpose2d(x, m.w, m.b, (2, 1), 1, (1, 0), 2), {"w": nn.Parameter(torch.randn(8, 3, 3, 3)),
                                                                                             "b": nn.Parameter(torch.rand(6))}),
    "conv2d with dilations": (lambda m, x: F.conv2d(x, m.w, None, 1, (2, 1), (2, 1), 4), {"w": nn.Parameter(torch.randn(4, 2, 3, 3))}),
    "standardized weights": (lambda m, x: F.conv2d(x, (m.w - m.w.mean((1, 2, 3), keepdim=True)) / (m.w.std((1, 2, 3), keepdim=True) + 1e-5), None, padding="same"),
                             {"w": nn.Parameter(torch.randn(4, 8, 3, 3))}),
    "layer scale": (lambda m, x: x * m.w.view(1, -1, 1, 1) + m.b[:, None, None], {"w": nn.Parameter(torch.rand(8)), "b": nn.Parameter(torch.rand(8))}),
    "split": (lambda m, x: torch.cat([p * i for i, p in enumerate(x.split([3, 5], dim=-3), 1)], 1), {}),
    "chunk": (lambda m, x: x.chunk(2, 1)[0] * torch.chunk(x, 2, dim=1)[1].sigmoid(), {}),
    "amax and max": (lambda m, x: torch.cat([x.amax(1, keepdim=True), x.max(dim=1, keepdim=True)[0], torch.min(x, 1, True).values], 1), {}),
    "norm": (lambda m, x: F.normalize(x, dim=1), {}), "var": (lambda m, x: x / (x.var((2, 3), keepdim=True) + 0.1), {}),
    "flatten and unflatten": (lambda m, x: torch.unflatten(x.flatten(2), 2, (6, -1)), {}),
    "flatten within": (lambda m, x: torch.flatten(x, 1, 2).unsqueeze(1), {}), "mean of images": (lambda m, x: x.mean((-2, -1)), {}),
    "expand_as": (lambda m, x: x * x.mean(1, keepdim=True).expand_as(x), {}),
    "flip and roll": (lambda m, x: torch.roll(x.flip(-1), (1, -2), (2, 3)), {}), "repeat": (lambda m, x: x.repeat(1, 2, 1, 3).tile((1, 1, 2, 1)), {}),
    "steps": (lambda m, x: torch.cat([x[..., ::2, 1::2], x[:, :, 1::2, 0:5:2]], 1), {}),
    "strided index": (lambda m, x: x[:, :, -4:-1, None].squeeze(3)[:, [0, 2, -1]], {}), "index_select": (lambda m, x: x.index_select(1, m.i), {"i": torch.tensor([4, 0, 4])}),
    "where": (lambda m, x: torch.where(x > 0.1, x, 0.2 * x), {}), "masked_fill": (lambda m, x: x.masked_fill(x < m.t, 0.5), {"t": torch.tensor(0.1)}),
    "maximum": (lambda m, x: torch.maximum(x, x.mean(1, True)) - torch.min(x, 0.5 * x), {}),
    "in place": (lambda m, x: (x * 2).add_(x.sigmoid()).neg_().sub_(0.25).relu_(), {}), "rsub": (lambda m, x: 1 - torch.rsub(x, 2.0), {}),
    "log1p and rsqrt": (lambda m, x: torch.log1p(x.abs()) * (x.square() + 1).rsqrt() + torch.pow(x.abs() + 1, 1.5), {}),
    "number over tensor": (lambda m, x: 2 / (1 + torch.exp(-x)), {}), "narrow": (lambda m, x: x.narrow(1, -5, 3).select(1, 2).unsqueeze(1), {}),
    "unbind": (lambda m, x: torch.stack((x.unbind(1)[0], x.unbind(1)[2]), dim=1) + torch.unbind(x, dim=-3)[-1][:, None], {}),
    "dropout in evaluation": (lambda m, x: F.dropout2d(F.alpha_dropout(x, 0.0, m.training), 0.0, m.training), {}),
}


@pytest.mark.parametrize("name", IMAGES)
def test_image_operators_match_torch(name):
    function, children = IMAGES[name]
    check(image_net(function, **copy.deepcopy(children)), torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)))


def heads(x, count):
    return x.reshape(x.shape[0], x.shape[1], count, -1)


def timm_attention(m, x):
    n, length, width = x.shape
    q, k, v = m.qkv(x).reshape(n, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)


def biased_attention(m, x):
    """With a trained mask, as relative positions of vision transformers."""
    q = heads(x, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, 2 * q, q, m.table[:, m.index]).transpose(1, 2).flatten(2)


def windowed_attention(m, x):
    """Over five axes, as attention within blocks of an image."""
    q = m.qkv(x).unflatten(1, (2, 3)).unflatten(-1, (2, -1)).permute(0, 3, 1, 2, 4)
    return F.scaled_dot_product_attention(q, q, q, scale=0.3).permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)


def plain_attention(m, x):
    n, length, width = x.shape
    qkv = m.qkv(x).view(n, length, 3, 2, -1).permute(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = (q * (width // 2) ** -0.5) @ k.transpose(-2, -1)
    scores = scores.masked_fill(m.mask[:length, :length] == 0, float("-inf")) + m.table[:, m.index].permute(0, 1, 2).unsqueeze(0)
    return (scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(n, length, width)


def llama_norm(m, x):
    kept = x.to(torch.float32)
    kept = kept * torch.rsqrt(kept.pow(2).mean(-1, keepdim=True) + 1e-6)
    return m.w * kept.to(x.dtype)


def gemma_norm(m, x):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + m.w.float())).type_as(x)


SEQUENCES = {
    "llama norm": (llama_norm, {"w": nn.Parameter(torch.rand(8))}), "gemma norm": (gemma_norm, {"w": nn.Parameter(torch.rand(8))}),
    "norm by sqrt": (lambda m, x: x / torch.sqrt(torch.mean(x * x, dim=2, keepdim=True) + 1e-5), {}),
    "rms_norm": (lambda m, x: F.rms_norm(x, (8,), m.w, 1e-5), {"w": nn.Parameter(torch.rand(8))}),
    "RMSNorm": (lambda m, x: m.n(x), {"n": nn.RMSNorm(8)}), "RMSNorm without weight": (lambda m, x: m.n(x), {"n": nn.RMSNorm(8, 1e-5, elementwise_affine=False)}),
    "layer_norm without weights": (lambda m, x: F.layer_norm(x, [8]), {}), "LayerNorm without bias": (lambda m, x: m.n(x), {"n": nn.LayerNorm((6, 8), bias=False)}),
    "layer norm by hand": (lambda m, x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * m.w + m.b,
                           {"w": nn.Parameter(torch.rand(8)), "b": nn.Parameter(torch.rand(8))}),
    "timm attention": (timm_attention, {"qkv": nn.Linear(8, 24)}),
    "plain attention": (plain_attention, {"qkv": nn.Linear(8, 24), "mask": torch.ones(9, 9).tril(), "table": nn.Parameter(torch.randn(2, 20)),
                                          "index": torch.randint(0, 20, (6, 6), generator=torch.Generator().manual_seed(0))}),
    "attention with a trained mask": (biased_attention, {"table": nn.Parameter(torch.randn(2, 20)),
                                                         "index": torch.randint(0, 20, (6, 6), generator=torch.Generator().manual_seed(0))}),
    "attention of five axes": (windowed_attention, {"qkv": nn.Linear(8, 24)}), "addcmul": (lambda m, x: torch.addcmul(m.b, m.w, x), {
        "w": nn.Parameter(torch.rand(8)), "b": nn.Parameter(torch.rand(6, 8))}), "norm": (lambda m, x: x / (x.norm(dim=-1, keepdim=True) + 1), {}),
    "matmul of one matrix for several heads": (lambda m, x: (heads(x, 2).transpose(1, 2) @ x[:, None, :4]).flatten(2), {}),
    "tensor of the forward": (lambda m, x: x * torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]) + torch.ones(6, 1), {}),
    "split of a projection": (lambda m, x: sum(m.c(x).split([8, 8, 8], dim=2)), {"c": nn.Linear(8, 24)}),
    "positions": (lambda m, x: x + m.e(torch.arange(x.shape[1], device=x.device)), {"e": nn.Embedding(10, 8)}),
    "positions of a batch": (lambda m, x: x + m.e(torch.arange(0, x.size(1), dtype=torch.long).unsqueeze(0)), {"e": nn.Embedding(10, 8)}),
    "class token": (lambda m, x: torch.cat([m.t.expand(x.shape[0], -1, -1), x], 1)[:, 0], {"t": nn.Parameter(torch.rand(1, 1, 8))}),
    "repeated token": (lambda m, x: torch.cat((x, m.t.repeat(x.size(0), 1, 1)), dim=-2) + m.p, {"t": nn.Parameter(torch.rand(1, 1, 8)), "p": nn.Parameter(torch.rand(1, 7, 8))}),
    "two tables": (lambda m, x: m.r[None, :, None] * x + m.c, {"r": nn.Parameter(torch.rand(6)), "c": nn.Parameter(torch.rand(6, 8))}),
    "x @ weight.T": (lambda m, x: x @ m.w.T + m.b, {"w": nn.Parameter(torch.randn(5, 8)), "b": nn.Parameter(torch.rand(5))}),
    "linear of a computed weight": (lambda m, x: F.linear(x, m.w * m.g[:, None]), {"w": nn.Parameter(torch.randn(5, 8)), "g": nn.Parameter(torch.rand(5))}),
    "addmm": (lambda m, x: torch.addmm(m.b, x[:, 0], m.w), {"w": nn.Parameter(torch.randn(8, 5)), "b": nn.Parameter(torch.rand(5))}),
    "einsum with a matrix": (lambda m, x: torch.einsum("nld,kd->nlk", x, m.w), {"w": nn.Parameter(torch.randn(5, 8))}),
    "einsum of heads": (lambda m, x: torch.einsum("nlhd,nshd->nhls", heads(x, 2), heads(x, 2)), {}),
    "einsum with the matrices of heads": (lambda m, x: torch.einsum("nlhd,hdk->nlhk", heads(x, 2), m.w).flatten(2), {"w": nn.Parameter(torch.randn(2, 4, 3))}),
    "einsum to experts": (lambda m, x: torch.einsum("nld,edk->nelk", x, m.w), {"w": nn.Parameter(torch.randn(3, 8, 4))}),
    "LSTM": (lambda m, x: m.r(x)[0], {"r": nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True)}),
    "last state of a GRU": (lambda m, x: torch.cat([m.r(x)[1][-2], m.r(x)[1][-1]], 1), {"r": nn.GRU(8, 5, batch_first=True, bidirectional=True)}),
    "final state of an LSTM": (lambda m, x: m.r(x)[1][0].squeeze(0), {"r": nn.LSTM(8, 5, batch_first=True, bias=False)}),
    "RNN": (lambda m, x: m.r(x)[0].mean(1), {"r": nn.RNN(8, 5, nonlinearity="relu", batch_first=True)}),
    "MaxPool1d": (lambda m, x: m.n(x), {"n": nn.MaxPool1d(3, 2, 1)}), "softmax and log": (lambda m, x: torch.softmax(x, -1).log() + F.log_softmax(x, 1), {}),
    "movedim": (lambda m, x: torch.movedim(x, 1, -1).swapaxes(1, 2), {}), "mT": (lambda m, x: (x @ x.mT) / 8, {}), "stack": (lambda m, x: torch.stack([x, 2 * x], -1).sum(-1), {}),
    "float of a comparison": (lambda m, x: x * (x > 0).float() + (x.le(0.2) & ~(x < -0.2)).to(x.dtype), {}), "bmm": (lambda m, x: torch.bmm(x, x.transpose(1, 2)), {}),
    "repeat_interleave": (lambda m, x: x.repeat_interleave(2, 1), {}), "std": (lambda m, x: x / (x.std(-1, keepdim=True) + 1), {}),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_operators_match_torch(name):
    function, children = SEQUENCES[name]
    check(sequence_net(function, **copy.deepcopy(children)), torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1)))


SIGNALS = {
    "Conv1d": [nn.Conv1d(4, 6, 3, 2, 2, 2, padding_mode="circular"), nn.BatchNorm1d(6), nn.ReLU()], "ConvTranspose1d": [nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2)],
    "pools": [nn.MaxPool1d(3, 2, 1, ceil_mode=True), nn.AvgPool1d(3, 1, 1, count_include_pad=False), nn.AdaptiveAvgPool1d(3)],
    "adaptive pools": [nn.AdaptiveMaxPool1d(5), nn.AdaptiveAvgPool1d(1)], "pads": [nn.ConstantPad1d((1, 2), 0.3), nn.ReflectionPad1d(2), nn.ReplicationPad1d((0, 1))],
    "Upsample": [nn.Upsample(scale_factor=2, mode="linear"), nn.Upsample(size=17)], "norms": [nn.InstanceNorm1d(4), nn.GroupNorm(2, 4), nn.LocalResponseNorm(3)],
    "dropouts": [nn.Dropout1d(0.0), nn.AlphaDropout(0.0), nn.FeatureAlphaDropout(0.0), nn.Dropout(0.0)], "Unflatten": [nn.Unflatten(1, (2, 2)), nn.Flatten(1, 2)],
    "softmax": [nn.Softmax(1), nn.LogSoftmax(-1), nn.Softmin(2)], "GLU": [nn.GLU(1)], "activations": [nn.Hardtanh(-0.5, 0.4), nn.CELU(0.3), nn.Mish()],
}
VOLUMES = {
    "Conv3d": [nn.Conv3d(2, 4, (2, 3, 1), padding="same"), nn.BatchNorm3d(4), nn.PReLU(4)], "ConvTranspose3d": [nn.ConvTranspose3d(2, 4, 2, 2)],
    "MaxPool3d": [nn.MaxPool3d((2, 1, 3), 1, (1, 0, 1), (1, 2, 1))], "AvgPool3d": [nn.AvgPool3d(2, 1, 1, ceil_mode=True)],
    "adaptive pools": [nn.AdaptiveAvgPool3d((2, 2, 1))], "largest": [nn.AdaptiveMaxPool3d(1)], "Upsample": [nn.Upsample(scale_factor=2)],
    "trilinear": [nn.Upsample(scale_factor=(1, 2, 1.5), mode="trilinear", align_corners=True)], "pads": [nn.ZeroPad3d(1), nn.ReplicationPad3d((0, 1, 1, 0, 2, 0))],
    "Dropout3d": [nn.Dropout3d(0.0), nn.InstanceNorm3d(2, affine=True)],
}


@pytest.mark.parametrize("name", SIGNALS)
def test_modules_of_signals_match_torch(name):
    torch.manual_seed(0)
    body = copy.deepcopy(SIGNALS[name])
    channels = nn.Sequential(*body)(torch.zeros(2, 4, 10)).shape[1]
    check(nn.Sequential(nn.Conv1d(3, 4, 1), *body, nn.Conv1d(channels, 2, 1)), torch.randn(2, 3, 10))


@pytest.mark.parametrize("name", VOLUMES)
def test_modules_of_volumes_match_torch(name):
    torch.manual_seed(0)
    body = copy.deepcopy(VOLUMES[name])
    channels = nn.Sequential(*body)(torch.zeros(2, 2, 4, 4, 4)).shape[1]
    check(nn.Sequential(nn.Conv3d(3, 2, 1), *body, nn.Conv3d(channels, 2, 1)), torch.randn(2, 3, 4, 4, 4))
