"""The networks of bench/networks.h for PyTorch, with data made up."""

from collections.abc import Callable
from dataclasses import dataclass

import gpt
import torch
from torch import nn

INPUTS = {"mlp": (256, 1, 28, 28), "conv4": (64, 64, 28, 28), "cnn": (64, 1, 28, 28), "resnet20": (64, 3, 32, 32)}
PYTHON_INPUTS = {"resnet18": (16, 3, 64, 64), "resnet50": (4, 3, 64, 64)}  # of the rows python.*
CLASSES = 10


@dataclass
class Network:
    model: nn.Module
    x: torch.Tensor
    labels: torch.Tensor
    logits: Callable = lambda output: output  # of the output of the model


def conv_bn(inputs, outputs, kernel=3, stride=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.relu1 = conv_bn(inputs, outputs, stride=stride), nn.ReLU()
        self.conv2, self.relu2 = conv_bn(outputs, outputs), nn.ReLU()
        self.shortcut = conv_bn(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return self.relu2(self.conv2(self.relu1(self.conv1(x))) + self.shortcut(x))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, CLASSES))


def average_head(width):
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)


def conv4():
    layers = [layer for _ in range(4) for layer in (*conv_bn(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, *average_head(64))


def cnn():
    return nn.Sequential(*conv_bn(1, 32), nn.ReLU(), *conv_bn(32, 64), nn.ReLU(), nn.MaxPool2d(2),
                         *conv_bn(64, 64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 7 * 7, CLASSES))


def resnet20():
    blocks, inputs = [], 16
    for stage, outputs in enumerate((16, 32, 64)):
        for block in range(3):
            blocks.append(Residual(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*conv_bn(3, 16), nn.ReLU(), *blocks, *average_head(64))


class Bottleneck(Residual):
    def __init__(self, inputs, outputs, stride):
        nn.Module.__init__(self)
        width = outputs // 4
        self.conv1 = nn.Sequential(*conv_bn(inputs, width, 1), nn.ReLU(), *conv_bn(width, width, stride=stride))
        self.conv2, self.relu1, self.relu2 = conv_bn(width, outputs, 1), nn.ReLU(), nn.ReLU()
        self.shortcut = conv_bn(inputs, outputs, 1, stride) if inputs != outputs or stride > 1 else nn.Identity()


def deep_resnet(block, lengths, expansion):
    """The layers of torchvision's ResNets."""
    blocks, inputs = [], 64
    for stage, length in enumerate(lengths):
        for number in range(length):
            outputs = expansion * 64 << stage
            blocks.append(block(inputs, outputs, 2 if stage and not number else 1))
            inputs = outputs
    stem = *conv_bn(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(*stem, *blocks, *average_head(inputs))


def resnet18():
    return deep_resnet(Residual, (2, 2, 2, 2), 1)


def resnet50():
    return deep_resnet(Bottleneck, (3, 4, 6, 3), 4)


def llama4x256():
    """Llama of transformers with 4 layers of width 256. Ids [16, 64] of 256 bytes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=256, hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4,
                         num_key_value_heads=4, max_position_embeddings=64, use_cache=False)
    ids = torch.randint(256, (16, 65))
    return Network(LlamaForCausalLM(config).train(), ids[:, :-1].contiguous(), ids[:, 1:].flatten(),
                   lambda output: output.logits.flatten(0, 1))


def fold_batch_norm(module):
    """Every batch norm is in a Sequential, behind its convolution."""
    for name, child in list(module.named_children()):
        fold_batch_norm(child)
        if isinstance(child, nn.BatchNorm2d):
            before = int(name) - 1
            fused = nn.utils.fusion.fuse_conv_bn_eval(module[before].eval(), child.eval())
            module[before], module[int(name)] = fused.requires_grad_(), nn.Identity()  # the new bias is not trained else


def make_network(name, folded):
    """A float network in training mode; the same numbers for every call."""
    torch.manual_seed(1)
    if name == "gpt":
        return Network(gpt.Gpt().train(), *gpt.windows())
    if name == "llama4x256":
        return llama4x256()
    model = globals()[name]()
    if folded:
        fold_batch_norm(model)
    x = torch.randn((INPUTS | PYTHON_INPUTS)[name])
    return Network(model.train(), x, torch.arange(len(x)) % CLASSES)
