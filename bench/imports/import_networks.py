"""Networks as PyTorch users have them: each gives a module, and an input of a batch of two."""

import timm
import torch
import torchvision.models as tv
import torchvision.models.segmentation as segmentation
from torch import nn
from torch.nn import functional as F


def block(inputs, outputs):
    layers = []
    for i in (inputs, outputs):
        layers += [nn.Conv2d(i, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Dense outputs; up by transposed convolutions or by resizing."""

    def __init__(self, resize):
        super().__init__()
        self.first, self.second, self.middle, self.pool = block(3, 16), block(16, 32), block(32, 64), nn.MaxPool2d(2)
        up = [nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)]
        if resize:
            up = [nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(64, 32, 1)),
                  nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 16, 1))]
        self.up, self.late, self.last, self.out = nn.ModuleList(up), block(64, 32), block(32, 16), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        first = self.first(x)
        second = self.second(self.pool(first))
        y = self.late(torch.cat([self.up[0](self.middle(self.pool(second))), second], 1))
        return self.out(self.last(torch.cat([self.up[1](y), first], 1)))


class Segmentation(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)

    def forward(self, x):
        return self.model(x)["out"]


class Tcn(nn.Module):
    """Causal dilated convolutions."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(16 if i else 4, 16, 3, dilation=2**i) for i in range(4)])
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            y = F.relu(conv(F.pad(x, (2 * 2**i, 0))))
            x = x + y if i else y
        return self.out(x[:, :, -1])


class WaveNet(nn.Module):
    """Gated residual layers whose ends are cut."""

    def __init__(self):
        super().__init__()

        def layers(kernel):
            return nn.ModuleList([nn.Conv1d(16, 16, kernel, dilation=2**i if kernel > 1 else 1) for i in range(5)])

        self.first, self.filters, self.gates, self.mixes = nn.Conv1d(1, 16, 1), layers(2), layers(2), layers(1)
        self.out = nn.Conv1d(16, 8, 1)

    def forward(self, x):
        x, skips = self.first(x), 0
        for filters, gate, mix in zip(self.filters, self.gates, self.mixes):
            y = mix(torch.tanh(filters(x)) * torch.sigmoid(gate(x)))
            x, skips = x[:, :, -y.shape[2]:] + y, skips + y[:, :, -128:]
        return self.out(F.relu(skips))


class Attention(nn.Module):
    def __init__(self, width, heads, length, causal):
        super().__init__()
        self.qkv, self.out, self.heads, self.causal = nn.Linear(width, 3 * width), nn.Linear(width, width), heads, causal
        if causal:
            self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in self.qkv(x).split(width, 2))
        scores = (q @ k.transpose(-2, -1)) * (1 / (width // self.heads) ** 0.5)
        if self.causal:
            scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        return self.out((F.softmax(scores, -1) @ v).transpose(1, 2).contiguous().view(batch, length, width))


class Tokens(nn.Module):
    """Learned embeddings of tokens and positions, and blocks of attention: with a causal mask and norms before (GPT), or
    without one, norms after and a pooled first token (BERT)."""

    def __init__(self, causal, vocabulary=64, length=16, width=32):
        super().__init__()
        self.causal = causal
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.attention = nn.ModuleList([Attention(width, 4, length, causal) for _ in range(2)])
        self.mlp = nn.ModuleList([nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(5)])
        self.out = nn.Linear(width, 10, bias=False)

    def forward(self, ids):
        y = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp)):
            first, second = self.norms[2 * i], self.norms[2 * i + 1]
            if self.causal:
                y = y + attention(first(y))
                y = y + mlp(second(y))
            else:
                y = first(y + attention(y))
                y = second(y + mlp(y))
        return self.out(self.norms[4](y)[:, -1]) if self.causal else self.out(torch.tanh(y[:, 0]))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 10)

    def forward(self, x):
        return self.out(self.encoder(x).mean(1))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 8), nn.Softplus())
        self.outer = nn.Sequential(nn.Linear(8, 32), nn.Mish(), nn.Linear(32, 64), nn.Tanh())

    def forward(self, x):
        return self.outer(self.inner(x)).view(x.shape) * 0.5 + 0.5


class Parts(nn.Module):
    """Arithmetic, and layers that the other networks do not use."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.second = nn.Conv2d(8, 16, 3, padding=1, padding_mode="circular")
        self.group, self.instance, self.slopes = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.PReLU(8)
        self.shuffle, self.local, self.glu = nn.PixelShuffle(2), nn.LocalResponseNorm(3), nn.GLU(1)
        self.factors, self.out = nn.Parameter(torch.randn(4, 1, 1)), nn.Linear(2, 10)

    def forward(self, x):
        y = self.instance(self.slopes(self.group(self.first(x)))).clamp(-2, 2)
        y = self.glu(self.local(self.shuffle(self.second(y))) * self.factors + 0.1)
        y = torch.where(y > 0, y, y.abs().sqrt()).pow(2).mean((2, 3)).exp()
        return self.out((y / y.sum(-1, keepdim=True)).log())


class Heads(nn.Module):
    """Boxes at three sizes, like a detector: three outputs."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU())
        self.convs = nn.ModuleList([nn.Conv2d(16, 16, 3, 2, 1) for _ in range(3)])
        self.heads = nn.ModuleList([nn.Conv2d(16, 3 * 7, 1) for _ in range(3)])

    def forward(self, x):
        x, out = self.stem(x), []
        for conv, head in zip(self.convs, self.heads):
            x = F.silu(conv(x))
            batch, _, height, width = x.shape
            out.append(head(x).view(batch, 3, 7, height, width).permute(0, 1, 3, 4, 2).contiguous())
        return tuple(out)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = getattr(nn, kind)(8, 16, batch_first=True, **options)
        self.out = nn.Linear(32 if options.get("bidirectional") else 16, 10)

    def forward(self, x):
        return self.out(self.layers(x)[0][:, -1])


class Crnn(nn.Module):
    """Convolutions over a line of text, and a recurrent layer along it."""

    def __init__(self):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                                   nn.ReLU(), nn.MaxPool2d((4, 2)))
        self.layers, self.out = nn.LSTM(64, 32, bidirectional=True, batch_first=True), nn.Linear(64, 11)

    def forward(self, x):
        y = self.convs(x)
        batch, channels, height, width = y.shape
        return self.out(self.layers(y.permute(0, 3, 1, 2).reshape(batch, width, channels * height))[0])


def image(size=64):
    return torch.randn(2, 3, size, size)


NETWORKS = {
    "ResNet-18": ("torchvision", lambda: tv.resnet18(num_classes=10), image),
    "ResNet-50": ("torchvision", lambda: tv.resnet50(num_classes=10), image),
    "MobileNet-v2": ("torchvision", lambda: tv.mobilenet_v2(num_classes=10), image),
    "MobileNet-v3": ("torchvision", lambda: tv.mobilenet_v3_small(num_classes=10), image),
    "EfficientNet-b0": ("torchvision", lambda: tv.efficientnet_b0(num_classes=10), image),
    "ConvNeXt-tiny": ("torchvision", lambda: tv.convnext_tiny(num_classes=10), image),
    "ViT-tiny": ("timm", lambda: timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=10), image),
    "Swin-tiny": ("torchvision", lambda: tv.swin_t(num_classes=10), lambda: image(112)),
    "MaxViT-tiny": ("torchvision", lambda: tv.maxvit_t(num_classes=10), lambda: image(224)),
    "U-Net, transposed": ("", lambda: UNet(False), image),
    "U-Net, resized": ("", lambda: UNet(True), image),
    "DeepLab-v3": ("torchvision", Segmentation, image),
    "VGG-11": ("torchvision", lambda: tv.vgg11_bn(num_classes=10), lambda: image(224)),
    "DenseNet-121": ("torchvision", lambda: tv.densenet121(num_classes=10), image),
    "ShuffleNet-v2": ("torchvision", lambda: tv.shufflenet_v2_x0_5(num_classes=10), image),
    "SqueezeNet-1.1": ("torchvision", lambda: tv.squeezenet1_1(num_classes=10), image),
    "GoogLeNet": ("torchvision", lambda: tv.googlenet(num_classes=10, init_weights=False, aux_logits=False), image),
    "Inception-v3": ("torchvision", lambda: tv.inception_v3(num_classes=10, init_weights=False, aux_logits=False), lambda: image(96)),
    "RegNet-Y": ("torchvision", lambda: tv.regnet_y_400mf(num_classes=10), image),
    "MnasNet": ("torchvision", lambda: tv.mnasnet0_5(num_classes=10), image),
    "Detector, three outputs": ("", Heads, image),
    "CRNN": ("", Crnn, lambda: torch.randn(2, 1, 16, 32)),
    "TCN": ("", Tcn, lambda: torch.randn(2, 4, 50)),
    "WaveNet-like": ("", WaveNet, lambda: torch.randn(2, 1, 200)),
    "GRU": ("", lambda: Recurrent("GRU"), lambda: torch.randn(2, 12, 8)),
    "LSTM, stacked, both ways": ("", lambda: Recurrent("LSTM", num_layers=2, bidirectional=True), lambda: torch.randn(2, 12, 8)),
    "RNN, stacked": ("", lambda: Recurrent("RNN", num_layers=2, nonlinearity="relu"), lambda: torch.randn(2, 12, 8)),
    "GPT block": ("", lambda: Tokens(True), lambda: torch.randint(0, 64, (2, 16))),
    "BERT-like encoder": ("", lambda: Tokens(False), lambda: torch.randint(0, 64, (2, 16))),
    "TransformerEncoder": ("", Encoder, lambda: torch.randn(2, 10, 32)),
    "Autoencoder": ("", Autoencoder, lambda: torch.randn(2, 1, 8, 8)),
    "Norms, pads, arithmetic": ("", Parts, lambda: image(16)),
}


def made(name):
    """Returns the module in evaluation mode, with changed weights and batch norm statistics, and an input."""
    torch.manual_seed(0)
    _, make, data = NETWORKS[name]
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    return model, data()
