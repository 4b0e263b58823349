"""Makes torch_network.safetensors (a state dict of PyTorch), torch_network.json (the same network as a model file) and
torch_network_answers.safetensors (inputs x and its outputs y). Needs PyTorch and safetensors (made by 2.15 and 0.8)."""

import json
import os

import torch
from safetensors.torch import save_file
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(4)

    def forward(self, x):
        return x + torch.relu(self.bn1(self.conv1(x)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.act = nn.Conv2d(1, 4, 3, padding=1), nn.PReLU(4)
        self.layer1 = nn.Sequential(Block(), Block())
        self.up = nn.ConvTranspose2d(4, 3, 2, 2)
        self.lstm = nn.LSTM(12, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4, batch_first=True)
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 7)
        self.shift = nn.Parameter(torch.randn(1, 1, 4))

    def forward(self, x):
        x = self.up(self.layer1(self.act(self.conv1(x)))).flatten(1, 2)
        return self.fc(self.norm(self.gru(self.lstm(x)[0])[0] + self.shift))


def node(name, kind, inputs=None, **options):
    made = {"name": name, "type": kind}
    if options:
        made["options"] = options
    return {**made, "inputs": inputs} if inputs else made


def nodes():
    made = [node("conv1", "conv2d", out_channels=4, kernel=3, padding=1), node("act", "prelu", per_channel=True)]
    for i, before in ((0, "act"), (1, "sum0")):
        made += [node(f"layer1_{i}_conv1", "conv2d", [before], out_channels=4, kernel=3, padding=1, groups=2, bias=False),
                 node(f"layer1_{i}_bn1", "batch_norm"), node(f"relu{i}", "relu"),
                 node(f"sum{i}", "add", [before, f"relu{i}"])]
    return made + [node("up", "conv_transpose2d", out_channels=3, kernel=2, stride=2),
                   node("rows", "reshape", shape=[36, 12]),
                   node("lstm", "lstm", hidden_size=5, bidirectional=True),
                   node("lstm_l1", "lstm", hidden_size=5, bidirectional=True), node("gru", "gru", hidden_size=4),
                   node("shift", "parameter", shape=[1, 4]), node("sum", "add", ["gru", "shift"]),
                   node("norm", "layer_norm"), node("fc", "linear", out_features=7)]


torch.manual_seed(3)
network = Network()
network(torch.randn(8, 1, 6, 6))
network.eval()
x = torch.randn(3, 1, 6, 6)
with torch.no_grad():
    y = network(x)
save_file(network.state_dict(), os.path.join(HERE, "torch_network.safetensors"))
save_file({"x": x, "y": y}, os.path.join(HERE, "torch_network_answers.safetensors"))
with open(os.path.join(HERE, "torch_network.json"), "w") as file:
    json.dump({"nodes": nodes()}, file, indent=1)
