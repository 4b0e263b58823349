"""Float networks and data of scripts/accuracy --torch: a narrow ResNet-18, a network like MobileNetV3, a small Llama."""

import torch
import torch_peer
from networks import Residual
from torch import nn
from torch.nn import functional

CLASSES, VOCABULARY, CONTEXT, TEST_WINDOWS = 47, 128, 64, 768


def conv(inputs, outputs, kernel=3, stride=1, groups=1, activation=nn.Identity):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs), activation())


def resnet18(width=16):
    """A quarter of the width of ResNet-18, and a first layer for images of 28 x 28."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [Residual(widths[stage + block], widths[stage + 1], 2 if stage and not block else 1)
              for stage in range(4) for block in range(2)]
    return nn.Sequential(conv(1, width, stride=2, activation=nn.ReLU), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8 * width, CLASSES))


class SqueezeExcite(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)
        self.pool, self.relu, self.gate = nn.AdaptiveAvgPool2d(1), nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x):
        return x * self.gate(self.fc2(self.relu(self.fc1(self.pool(x)))))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, hidden, outputs, kernel, stride, activation):
        super().__init__()
        self.expand = conv(inputs, hidden, 1, activation=activation)
        self.depthwise = conv(hidden, hidden, kernel, stride, groups=hidden, activation=activation)
        self.excite, self.project = SqueezeExcite(hidden), conv(hidden, outputs, 1)
        self.residual = inputs == outputs and stride == 1

    def forward(self, x):
        y = self.project(self.excite(self.depthwise(self.expand(x))))
        return x + y if self.residual else y


def mobilenetv3():
    rows = [(16, 32, 16, 3, 1, nn.ReLU), (16, 48, 24, 3, 2, nn.ReLU), (24, 64, 24, 3, 1, nn.ReLU), (24, 96, 40, 5, 2, nn.Hardswish),
            (40, 120, 40, 5, 1, nn.Hardswish), (40, 120, 40, 5, 1, nn.Hardswish)]
    return nn.Sequential(conv(1, 16, stride=2, activation=nn.Hardswish), *(InvertedResidual(*row) for row in rows),
                         conv(40, 160, 1, activation=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(160, 256), nn.Hardswish(), nn.Linear(256, CLASSES))


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class LlamaLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, hidden = heads, 8 * width // 3 // 16 * 16
        self.input_norm, self.output_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down_proj, self.act = nn.Linear(hidden, width, bias=False), nn.SiLU()

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, cos, sin):
        y = self.input_norm(x)
        q, k, v = self.split(self.q_proj(y)), self.split(self.k_proj(y)), self.split(self.v_proj(y))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        y = self.output_norm(x)
        return x + self.down_proj(self.act(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self, layers=4, width=128, heads=4):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads) for _ in range(layers))
        self.norm, self.lm_head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        size = width // heads
        angles = torch.outer(torch.arange(CONTEXT), 10000**(-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.lm_head(self.norm(x))


def load_data(path, split):
    """Returns images and labels of a data set, or windows of characters and the characters after them. The last tenth of a text is the
    test split. The test windows are spread over this tenth."""
    if not path.endswith(".txt"):
        return torch_peer.load(path, split)
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    cut = len(text) * 9 // 10
    part = text[:cut] if split == "train" else text[cut:]
    windows = part.unfold(0, CONTEXT + 1, CONTEXT)
    windows = windows if split == "train" else windows[::len(windows) // TEST_WINDOWS][:TEST_WINDOWS]
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def make(name):
    return {"resnet18": resnet18, "mobilenetv3": mobilenetv3, "llama": Llama}[name]()
