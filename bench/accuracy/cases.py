"""The compared networks, data sets and formats. A format is (name in the report, preset, bits in the chart)."""

from dataclasses import dataclass

FORMATS = {"int8": "INT8", "fp8": "E4M3", "mxfp8": "MXFP8", "w4a8": "W4A8", "w4a4": "W4A4", "nvfp4": "NVFP4", "w3a3": "W3A3",
           "w2a2": "W2A2", "int8_weight_only": "W8", "ternary": "ternary"}
COMPARED = ["int8", "fp8", "w4a8", "w4a4", "nvfp4", "w3a3", "w2a2"]  # formats that peers are run with

TOOLS = {"modelopt": "ModelOpt", "brevitas": "Brevitas", "torchao": "torchao", "torch_ao": "torch.ao", "expert": "expert"}

LOW, LOWEST = (1e-3, 4e-3), (4e-3,)


def rates(preset):
    """Learning rates that a peer fine-tunes with; of two, the report takes the one that is better in the mean."""
    return {"w4a8": (5e-4,), "nvfp4": (5e-4,), "w4a4": LOW, "w3a3": LOW, "w2a2": LOWEST}.get(preset, (1e-4,))


@dataclass
class Case:
    """Fine-tuning takes a quarter of the float epochs."""

    network: str
    options: str  # JSON for --model-options
    file: str  # in the folder of data
    epochs: int
    flags: tuple = ()  # of float training

    @property
    def fine_epochs(self):
        return self.epochs // 4


@dataclass
class TorchCase:
    """A network of bench/peers/torch_networks.py, trained for `float_steps` and fine-tuned for `steps`."""

    network: str
    file: str
    batch: int
    float_steps: int
    steps: int


BATCH, FLOAT_RATE = 64, 4e-3

CASES = {
    "satellite": Case("mlp", '{"hidden": [64, 64]}', "satellite.h5", 40),
    "letters": Case("mlp", '{"hidden": [128, 128]}', "letters.h5", 24),
    "digits": Case("models/digits_cnn.json", "", "digits.h5", 40, ("--label-smoothing", "0.05")),
    "glyphs": Case("cnn", "", "glyphs.h5", 8),
    "resnet20": Case("resnet20", "", "digits.h5", 20),
}

TORCH_RATES = {"int8": (1e-4,), "w4a4": (2.5e-4, 1e-3)}  # of every tool; 4e-3 was worse for ResNet-18 in 100 steps, the only trial
TORCH_PEERS = ("modelopt", "brevitas")
TORCH_CASES = {
    "resnet18, 100 steps": TorchCase("resnet18", "glyphs.h5", 128, 861, 100),
    "resnet18, 287 steps": TorchCase("resnet18", "glyphs.h5", 128, 861, 287),
    "mobilenetv3, 100 steps": TorchCase("mobilenetv3", "glyphs.h5", 128, 861, 100),
    "llama, 100 steps": TorchCase("llama", "tinyshakespeare.txt", 16, 800, 100),
}
