"""Trains a small detector with three outputs, as YOLO's, in floats and then on codes, and writes detector.onnx.

Its images are noise with one bright square, whose colour is the class. An output [N, 5 + classes, H, W] has for each cell of its grid
the box (left, top, right, bottom as distances from the middle of the cell), the objectness, and the classes.
"""
import argparse

import fakequant.torch as fqt
import torch
from torch import nn
from torch.nn import functional as F

CLASSES, SIZE = 3, 64


def block(channels, out, stride=1):
    return nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.SiLU())


class Detector(nn.Module):
    def __init__(self, width=16):  # a backbone of strides 8, 16 and 32, a neck with upsampled features, and three heads
        super().__init__()
        self.fine = nn.Sequential(block(3, width, 2), block(width, width, 2), block(width, width, 2))
        self.middle, self.deep = block(width, 2 * width, 2), block(2 * width, 2 * width, 2)
        self.neck_middle, self.neck_fine = block(4 * width, 2 * width), block(3 * width, width)
        self.heads = nn.ModuleList(nn.Conv2d(channels, 5 + CLASSES, 1) for channels in (width, 2 * width, 2 * width))

    def forward(self, x):
        fine = self.fine(x)
        deep = self.deep(middle := self.middle(fine))
        middle = self.neck_middle(torch.cat([middle, F.interpolate(deep, scale_factor=2.0)], 1))
        fine = self.neck_fine(torch.cat([fine, F.interpolate(middle, scale_factor=2.0)], 1))
        return tuple(head(features) for head, features in zip(self.heads, (fine, middle, deep)))


def make_batch(count):
    """Returns images [N, 3, H, W], boxes [N, 4] in 0 to 1, and classes [N]."""
    images, labels = 0.2 * torch.randn(count, 3, SIZE, SIZE), torch.randint(0, CLASSES, (count,))
    corner, side = torch.randint(0, 32, (count, 2)), torch.randint(8, 32, (count,))
    for image, label, (left, top), length in zip(images, labels, corner.tolist(), side.tolist()):
        image[label, top:top + length, left:left + length] += 1
    return images, torch.cat([corner, corner + side[:, None]], 1) / SIZE, labels


def detection_loss(output, boxes, labels):  # the cell with the middle of a box predicts it
    cells, rows = output.shape[-1], torch.arange(len(boxes))
    x, y = ((boxes[:, [i, i + 2]].mean(1) * cells).long() for i in range(2))
    found, seen = output[rows, :, y, x], torch.zeros(len(boxes), cells, cells)
    seen[rows, y, x] = 1
    found_boxes = torch.stack([x, y, x, y], 1).add(0.5) / cells + found[:, :4]
    return (F.smooth_l1_loss(found_boxes, boxes, beta=0.1) + F.cross_entropy(found[:, 5:], labels)
            + F.binary_cross_entropy_with_logits(output[:, 4], seen, pos_weight=torch.tensor(10.0)))


def train(model, rate, steps):
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=rate)
    for _ in range(steps):
        images, *targets = make_batch(16)
        loss = sum(detection_loss(output, *targets) for output in model(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="int8")
    parser.add_argument("--steps", type=int, default=100, help="steps in floats, and steps on codes")
    parser.add_argument("--no-export", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    net, x = Detector(), make_batch(64)[0]
    print(f"loss in floats: {train(net, 3e-3, options.steps):.4f}")
    detector = fqt.calibrate(fqt.quantize(net.eval(), options.preset, x[:4]), [x])
    print(f"loss with {options.preset}: {train(detector, 1e-3, options.steps):.4f}")
    if not options.no_export:
        fqt.export(detector.eval(), "detector.onnx")
        print(fqt.verify(detector, "detector.onnx", x[:8]))
