"""--augment, loader.balanced and loader.class_weights: equal flags give equal bits (resume.py tests resuming), labels are
mixed for each loss, transforms that the samples cannot have are rejected by name, and sheets show augmented samples."""

import os
import sys

import h5py
import numpy as np
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import DIGITS, TINY, fails, result, run, same_bytes  # noqa: E402

RANDOM = np.random.default_rng(0)
N = 96


def data(name, x, y, classes=None, scale=None):
    with h5py.File(name, "w") as file:
        for group in ("train", "test"):
            file[f"{group}/x"], file[f"{group}/y"] = x, y
            if scale:
                file[f"{group}/x"].attrs["scale"] = scale
            if classes:
                file[group].attrs["classes"] = classes
    return name


def train(file, *more, model="mlp", out="out.h5"):
    return ["train", "--model", model, "--data", file, "--epochs", "2", "--batch", "16", "--seed", "1", *more, "-o", out]


y = RANDOM.integers(0, 3, N)
colour = data("colour.h5", RANDOM.integers(0, 256, (N, 3, 12, 12), np.uint8), y, scale=1 / 255)
signals = data("signals.h5", RANDOM.normal(size=(N, 2, 20)).astype(np.float32), y)
rows = data("rows.h5", RANDOM.normal(size=(N, 8)).astype(np.float32), y)
several = data("several.h5", RANDOM.normal(size=(N, 8)).astype(np.float32), RANDOM.integers(0, 2, (N, 3)).astype(np.float32))
real = data("real.h5", RANDOM.normal(size=(N, 8)).astype(np.float32), RANDOM.normal(size=(N, 2)).astype(np.float32))
yes = data("yes.h5", RANDOM.normal(size=(N, 8)).astype(np.float32), RANDOM.integers(0, 2, N))
dense = data("dense.h5", RANDOM.normal(size=(N, 2, 6, 6)).astype(np.float32), RANDOM.integers(0, 3, (N, 6, 6)))

# Everything at once, and class weights: a function of the seed.
EVERYTHING = ("resizedcrop=0.5:1:0.8:1.2,crop=1,shift=1,rotate=10,scale=0.1,shear=0.1,hflip=0.5,vflip=0.2,randaugment=2:9,"
              "brightness=0.2,contrast=0.2,saturation=0.2,hue=0.1,greyscale=0.2,blur=0.8,noise=0.02,cutout=2,mixup=0.4,cutmix=1")
CHANGED = ["--augment", EVERYTHING, "--set", "loader.balanced=true", "--label-smoothing", "0.1"]
run(*train(colour, *CHANGED, model="cnn", out="one.h5"))
run(*train(colour, *CHANGED, model="cnn", out="two.h5"))
assert same_bytes("one.h5", "two.h5")
for flag, value, expected in (("--augment", EVERYTHING.replace("mixup=0.4", "mixup=0.5"), "--augment mixup is 0.4 there, 0.5 here"),
                          ("--augment", EVERYTHING.replace("2:9", "2:5"), "--augment randaugment (randaugment_magnitude) is 9.0 there, 5.0 here"),
                          ("--set", "loader.balanced=false", "--set loader.balanced is true there, false here"),
                          ("--set", "loader.class_weights=1:1:2", "--set loader.class_weights is [] there, [1.0,1.0,2.0] here")):
    flags = dict(zip(CHANGED[::2], CHANGED[1::2]), **{flag: value})
    fails(2, ["[resume] one.h5", expected],
          *train(colour, *[word for pair in flags.items() for word in pair], model="cnn", out="one.h5"), "--resume")

# A network trains with balanced classes and mixing to its known accuracy.
learned = result("train", *TINY, "--data", DIGITS, "--epochs", "15", "--batch", "32", "--seed", "1", "--augment",
                 "shift=0.6,mixup=0.2", "--set", "loader.balanced=true", "-o", "mixed.h5")
assert result("evaluate", "mixed.h5", "--data", DIGITS)["accuracy"] > 90
assert 20 < learned["accuracy"] < 100, learned  # of the larger share

# Each loss takes what mixing makes of its labels; others say why not.
for file, loss, changes in ((rows, "cross_entropy,weights=balanced", "mixup=0.2,noise=0.1,drop=0.1"), (rows, "bce", "mixup=0.2"),
                            (yes, "bce", "mixup=0.2"), (yes, "focal", "mixup=0.2"), (several, "bce", "mixup=0.4"),
                            (real, "mse", "mixup=0.4"), (real, "huber", "mixup=0.4,noise=0.1")):
    run(*train(file, "--loss", loss, "--augment", changes))
model = "dense.json"
with open(model, "w", encoding="utf-8") as out:
    out.write('{"nodes": [{"name": "out", "type": "conv2d", "options": {"out_channels": "classes", "kernel": 1}}]}')
fails(2, "mix labels of whole samples, and --data has a label for each position", *train(dense, "--augment", "mixup=0.2", model=model))
fails(2, "cutmix requires classes, and --loss mse has numbers: use mixup", *train(real, "--loss", "mse", "--augment", "cutmix=1"))
fails(2, "have no label for --loss cross_entropy,ignore=2", *train(rows, "--loss", "cross_entropy,ignore=2", "--augment", "mixup=1"))

# Transforms that the samples cannot have, and unknown names.
for file, changes, expected in (
        (rows, "rotate=5", "rows of features, which have no rotate: use noise, drop, mixup"),
        (signals, "hflip=0.5", "signals [C, L], which have no hflip"), (colour, "gain=0.1", "images [C, H, W], which have no gain"),
        (DIGITS, "hue=0.1", "images of 1 channels: hue is of red, green and blue"), (colour, "hue=0.7", "--augment hue is 0.7: use 0 to 0.5"),
        (colour, "rotate=2e6", "--augment rotate is 2000000: use 0 to 1000000"), (colour, "crop=0.5", "--augment crop is 0.5: use a whole number"),
        (colour, "shift=1:2", "--augment shift=1:2: use shift=PIXELS"), (colour, "mixpu=1", "'mixup'"), (colour, "crop", "crop needs a number"),
        (colour, "shift=-1", "use a number of 0 or more"), (colour, "randaugment=x", "randaugment needs a number"),
        (colour, "resizedcrop=0.9:0.5", "use the smaller one first")):
    fails(2, expected, *train(file, "--augment", changes))
unscaled = data("unscaled.h5", RANDOM.normal(size=(N, 3, 8, 8)).astype(np.float32), y)
fails(2, ["brightness changes pixels from black, 0, to white, 1", "scale, mean and std"], *train(unscaled, "--augment", "brightness=0.2"))
run(*train(unscaled, "--augment", "shift=1,noise=0.1"))
with open("conv1d.json", "w", encoding="utf-8") as out:
    out.write('{"nodes": [{"name": "conv", "type": "conv1d", "options": {"out_channels": 4, "kernel": 3}}, {"name": "flat", "type": '
              '"flatten"}, {"name": "out", "type": "linear", "options": {"out_features": "classes"}}]}')
run(*train(signals, "--augment", "shift=2,gain=0.2,reverse=0.5,timemask=4,noise=0.1,mixup=0.2,cutmix=1", model="conv1d.json"))

# Drawing classes.
uneven = data("uneven.h5", RANDOM.normal(size=(N, 8)).astype(np.float32), np.where(np.arange(N) < 6, 1, 0))
run(*train(uneven, "--set", "loader.balanced=true"))
run(*train(uneven, "--set", "loader.class_weights=1:3", "--loss", "bce"))
fails(2, "--set loader.balanced requires one class for each sample", *train(real, "--loss", "mse", "--set", "loader.balanced=true"))
fails(2, "3 --set loader.class_weights, and 2 classes", *train(uneven, "--set", "loader.class_weights=1:2:3"))
fails(2, "--set loader.class_weights has 'x'", *train(uneven, "--set", "loader.class_weights=1:x"))
fails(2, "use one of them", *train(uneven, "--set", "loader.class_weights=1:2", "--set", "loader.balanced=true"))
fails(2, "--set loader.balanced is 'yes'", *train(uneven, "--set", "loader.balanced=yes"))


# Sheets of augmented samples.
def sheet(name, *more, file=DIGITS):
    run("dataset", "show", file, "-o", name, "--samples", "40", *more)
    return np.asarray(Image.open(name)).copy()


plain, shown = sheet("plain.png"), sheet("shown.png", "--augment", "rotate=30,noise=0.1,mixup=1")
assert plain.shape == shown.shape and np.abs(plain.astype(int) - shown).mean() > 5
assert np.array_equal(shown, sheet("again.png", "--augment", "rotate=30,noise=0.1,mixup=1"))
assert not np.array_equal(shown, sheet("other.png", "--augment", "rotate=30,noise=0.1,mixup=1", "--seed", "1"))
assert np.array_equal(plain, sheet("same.png", "--augment", "hflip=0"))
sheet("colour.png", "--augment", EVERYTHING, file=colour)
fails(2, "which have no gain", "dataset", "show", DIGITS, "-o", "no.png", "--augment", "gain=0.1")
run("dataset", "show", rows, "--html", "rows.html", "--augment", "noise=0.1,mixup=0.2")
print("augmentation: ok")
