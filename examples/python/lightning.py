"""Trains digits with Lightning: floats first, then on codes, with a moving average and checkpoints, and writes ONNX.

    python examples/python/lightning.py --preset w4a4 --epochs 5
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path = [path for path in sys.path if pathlib.Path(path).resolve() != HERE]  # this file has the name of the library
import fakequant.torch as fqt  # noqa: E402
import h5py  # noqa: E402
import torch  # noqa: E402
from lightning import LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

DIGITS = HERE.parents[1] / "data" / "digits.h5"


class Classifier(LightningModule):
    """Trains `model`. `groups` are the parameter groups of the optimizer."""

    def __init__(self, model, groups):
        super().__init__()
        self.model, self._groups = model, groups

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("accuracy", (self.model(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self._groups)


def read(group, path):
    with h5py.File(path) as file:
        return TensorDataset(torch.from_numpy(file[f"{group}/x"][:]).float() / 16, torch.from_numpy(file[f"{group}/y"][:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="int8")
    parser.add_argument("--epochs", type=int, default=3, help="epochs in floats, and again on codes")
    parser.add_argument("--data", default=DIGITS, help="data set of grey images, HDF5")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("lightning_run"), help="folder")
    options = parser.parse_args()
    torch.manual_seed(0)
    train = DataLoader(read("train", options.data), batch_size=32, shuffle=True)
    test = DataLoader(read("test", options.data), batch_size=64)
    x = next(iter(test))[0]
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(16 * x.shape[-1] * x.shape[-2] // 4, 64), nn.ReLU(), nn.Linear(64, 10))

    def fit(model, groups, *callbacks):
        trainer = Trainer(max_epochs=options.epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                          enable_model_summary=False, default_root_dir=str(options.output), callbacks=list(callbacks))
        trainer.fit(Classifier(model, groups), train, test)
        return 100 * trainer.callback_metrics["accuracy"].item()
    floats = fit(net, [{"params": list(net.parameters()), "lr": 3e-3}])
    model = fqt.calibrate(fqt.quantize(net.eval(), options.preset, x), train)
    groups = fqt.parameter_groups(model, steps=options.epochs * len(train))
    codes = fit(model, groups, EMAWeightAveraging(decay=0.95), ModelCheckpoint(dirpath=options.output, monitor="accuracy", mode="max"))
    print(f"accuracy: floats {floats:.2f} %, {options.preset} {codes:.2f} %")
    path = str(options.output / "model.onnx")
    fqt.export(model.eval(), path)
    print(path, fqt.verify(model, path, x))


if __name__ == "__main__":
    main()
