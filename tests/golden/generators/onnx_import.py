"""Small networks as both of PyTorch's exporters write them, with inputs and float logits: what `import_onnx` is tested
against. Not of a family: make(folder, seed) writes folder/onnx_import/<network>_<how>.onnx and answers.h5."""

import copy
import os

import h5py
import onnx
import onnxscript
import torch
from torch import nn
from torch.nn import functional as F

from .family import packing


def conv_bn(inputs, outputs, kernel=3, stride=1, groups=1, act=nn.ReLU):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), act())


class Cnn(nn.Module):
    """Sizes read from the values; a pool over the whole image."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6, eps=1e-3)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, (3, 5), stride=(2, 1), padding=(1, 2)), nn.BatchNorm2d(8)
        self.up, self.drop = nn.ConvTranspose2d(8, 4, 3, 2, 1, 1), nn.Dropout(0.25)
        self.fc, self.bn3, self.out = nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.up(F.relu(self.bn2(self.conv2(x))))
        x = torch.cat([x, x.tanh()], 1)
        x = F.avg_pool2d(x, (4, 8)).view(x.size(0), -1)
        return self.out(self.drop(F.relu(self.bn3(self.fc(x)))))


class Vgg(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], 1
        for width in (6, 6, "pool", 8, "pool"):
            layers += [nn.MaxPool2d(2)] if width == "pool" else [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(True)]
            inputs = inputs if width == "pool" else width
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Sequential(nn.Linear(32, 24), nn.ReLU(True), nn.Dropout(), nn.Linear(24, 10))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """ResNet-20 of `width` channels in its first stage."""

    def __init__(self, width=2, channels=1):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        widths = [width, width, 2 * width, 4 * width]
        for i in (1, 2, 3):
            blocks = [Block(widths[i - 1] if j == 0 else widths[i], widths[i], 2 if i > 1 and j == 0 else 1) for j in range(3)]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean([2, 3]))


class MobileNet(nn.Module):
    """Depthwise convolutions, the activations of both versions, squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_bn(1, 8, act=nn.ReLU6), conv_bn(8, 8, groups=8, stride=2, act=nn.ReLU6),
                                      conv_bn(8, 12, 1, act=nn.Hardswish), conv_bn(12, 12, 5, groups=12, act=nn.SiLU))
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 4, 1), nn.ReLU(), nn.Conv2d(4, 12, 1), nn.Hardsigmoid())
        self.drop, self.fc = nn.Dropout(0.2), nn.Linear(12, 10)

    def forward(self, x):
        x = self.features(x)
        x = x * self.squeeze(x)
        return self.fc(self.drop(F.adaptive_avg_pool2d(x, (1, 1)).reshape(x.shape[0], -1)))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.drop, self.ln = nn.Flatten(), nn.Dropout(0.1), nn.LayerNorm(24)
        self.fc1, self.fc2, self.fc3 = nn.Linear(64, 24), nn.Linear(24, 24), nn.Linear(24, 20)
        self.fc4, self.fc5 = nn.Linear(20, 20, bias=False), nn.Linear(20, 10)

    def forward(self, x):
        x = self.drop(F.gelu(self.ln(self.fc1(self.flat(x)))))
        x = F.leaky_relu(self.fc2(F.gelu(x, approximate="tanh")), 0.2)
        return self.fc5(torch.tanh(self.fc4(torch.sigmoid(self.fc3(F.layer_norm(x, (24,), eps=1e-3))))))


class Tokens(nn.Module):
    """Token ids, a sequence and linear layers along it."""

    def __init__(self):
        super().__init__()
        self.table, self.conv, self.pool = nn.Embedding(20, 8), nn.Conv1d(8, 6, 3, padding=1), nn.MaxPool1d(2)
        self.ln, self.fc, self.out = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        x = self.pool(F.relu(self.conv(self.table(x).transpose(1, 2)))).transpose(1, 2)
        return F.log_softmax(self.out(self.fc(self.ln(x)).mean(1)), -1)


IMAGE = ["script", "dynamo", "script_whole", "dynamo_whole"]
NETWORKS = {"cnn": (Cnn, (1, 8, 8), [*IMAGE, "script_training", "script_one", "dynamo_one"]),
            "vgg": (Vgg, (1, 8, 8), IMAGE[:2]),
            "resnet": (ResNet, (1, 8, 8), IMAGE),
            "mobilenet": (MobileNet, (1, 8, 8), [*IMAGE, "script_one"]),
            "mlp": (Mlp, (1, 8, 8), [*IMAGE, "script_11", "dynamo_18", "script_training", "script_one"]),
            "tokens": (Tokens, (12,), ["script", "dynamo", "script_11", "dynamo_18"])}


def export(model, x, path, how):
    """`script` or `dynamo` is the exporter; then: `whole` neither folds constants nor batch norm, `training` is in
    training mode, `one` of a fixed batch of 1, a number the opset."""
    model = copy.deepcopy(model)
    for part in model.modules():
        if hasattr(part, "momentum"):
            part.momentum = 0.0 if how.endswith("training") else part.momentum  # the exporter runs the network
    exporter, _, detail = how.partition("_")
    dynamo, options = exporter == "dynamo", {}
    if detail != "one":
        options = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if dynamo else {"dynamic_axes": {"input": {0: "batch"}}}
    if detail == "whole":
        options |= {"optimize": False} if dynamo else {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    if detail == "training":
        options |= {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    if detail.isdigit():
        options["opset_version"] = int(detail)
    options |= {"external_data": False, "verbose": False} if dynamo else {}
    x = x[:1] if detail == "one" else x[:2]
    torch.onnx.export(model, (x,), path, dynamo=dynamo, input_names=["input"], output_names=["output"], **options)


def remove_remarks(path):
    """The traces of the exporter's source lines are most of a file."""
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    del model.graph.value_info[:]
    for values in (model.graph.input, model.graph.output, model.graph.initializer):
        for value in values:
            del value.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.functions[:]
    onnx.save(model, path)


def randomize(model, generator):
    """Statistics and scales as of a trained network."""
    for part in model.modules():
        if isinstance(part, (nn.BatchNorm2d, nn.BatchNorm1d)):
            part.running_mean.normal_(0, 0.5, generator=generator)
            part.running_var.uniform_(0.5, 2, generator=generator)
        if isinstance(part, (nn.BatchNorm2d, nn.BatchNorm1d, nn.LayerNorm)):
            part.weight.data.uniform_(0.5, 1.5, generator=generator)
            part.bias.data.normal_(0, 0.3, generator=generator)


def make(folder, seed):
    folder = os.path.join(folder, "onnx_import")
    os.makedirs(folder, exist_ok=True)
    versions = f"torch {torch.__version__.split('+')[0]}, onnxscript {onnxscript.__version__}, onnx {onnx.__version__}"
    with h5py.File(os.path.join(folder, "answers.h5"), "w", libver=("v110", "v110")) as predictions:
        predictions.attrs.update({"source": versions, "seed": seed})
        for name, (network, shape, ways) in NETWORKS.items():
            torch.manual_seed(seed)
            model = network()
            randomize(model, torch.Generator().manual_seed(seed))
            model.eval()
            x = torch.randint(0, 20, (16, *shape)) if network is Tokens else torch.randn(16, *shape)
            with torch.no_grad():
                logits = model(x)
            for key, value in (("x", x), ("logits", logits)):
                predictions.create_dataset(f"{name}/{key}", data=value.numpy(), **packing(value.numpy()))
            predictions[name].attrs["files"] = [f"{name}_{how}.onnx" for how in ways]
            for how in ways:
                path = os.path.join(folder, f"{name}_{how}.onnx")
                export(model, x, path, how)
                remove_remarks(path)
    return folder
