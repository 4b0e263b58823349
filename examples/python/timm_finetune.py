"""Fine-tunes a network of timm on codes with its optimizer, schedule and moving average, and writes ONNX.

    python examples/python/timm_finetune.py --model mobilenetv3_small_100 --pretrained --data photos.h5

The default data are random images. A data set has the groups train and test with x [N, C, H, W] and y [N].
"""
import argparse

import fakequant.torch as fqt
import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet10t")
    parser.add_argument("--pretrained", action="store_true", help="download trained weights")
    parser.add_argument("--data", help="data set, HDF5")
    parser.add_argument("--preset", default="int8")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--size", type=int, default=64, help="height and width of random images")
    parser.add_argument("--output", default="timm.onnx")
    return parser.parse_args()


def read(path, group, size):
    if path is None:  # the brightness is the class
        labels = torch.randint(0, 4, (64,))
        return TensorDataset(torch.randn(64, 3, size, size) + labels.view(-1, 1, 1, 1), labels)
    import h5py
    with h5py.File(path) as file:
        x, y = torch.from_numpy(file[f"{group}/x"][:]), torch.from_numpy(file[f"{group}/y"][:])
    x = x.float() / 255 if x.dtype == torch.uint8 else x
    return TensorDataset(x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x, y.long())


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    return torch.cat([(model(x).argmax(1) == y).float() for x, y in loader]).mean().item()


def main():
    options = parse_arguments()
    torch.manual_seed(0)
    train = DataLoader(read(options.data, "train", options.size), batch_size=16, shuffle=True)
    test = DataLoader(read(options.data, "test", options.size), batch_size=16)
    model = timm.create_model(options.model, pretrained=options.pretrained, num_classes=int(train.dataset.tensors[1].max()) + 1)
    x = next(iter(test))[0]
    if not options.pretrained:
        [model(x) for _ in range(20)]  # statistics of the batch norms
    model = fqt.calibrate(fqt.quantize(model, options.preset, x), train)

    optimizer = create_optimizer_v2(model, "adamw", lr=options.lr, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=options.epochs * len(train), t_in_epochs=False)
    average, step = ModelEmaV3(model, decay=0.9), 0
    for epoch in range(options.epochs):
        for x, y in train:
            loss = F.cross_entropy(model.train()(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            schedule.step_update(step)
            average.update(model, step=step)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {100 * accuracy(model, test):.2f} %, "
              f"of the average {100 * accuracy(average.module, test):.2f} %")
    fqt.export(model.eval(), options.output)
    print(options.output, fqt.verify(model, options.output, x[:8]))


if __name__ == "__main__":
    main()
