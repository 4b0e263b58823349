"""Optimizers and schedules with their own options: they train, resume, and reject wrong options by name."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from command import SHORT, events, fails, run  # noqa: E402

for words in (["sgd,dampening=0.5", "--lr", "0.05"], ["adam,amsgrad=1,beta2=0.99"],
              ["rmsprop,alpha=0.9,centered=1", "--set", "optimizer.momentum=0.5"], ["adagrad,decay=0.001", "--lr", "0.05"],
              ["nadam,eps=1e-7"], ["lion", "--lr", "0.003"], ["lamb", "--lr", "0.02"]):
    report = events("train", *SHORT, "--optimizer", *words, "-o", "model.h5")
    assert report[-1]["accuracy"] > 60, (words, report[-1])


def rates(schedule, *more):
    report = events("train", *SHORT[:-6], "--epochs", "5", "--batch", "512", "--seed", "1", "--lr", "1", "--optimizer", "sgd",
                  "--set", "clip_norm=1e-9", "--schedule", schedule, *more, "-o", "rates.h5")
    return [round(event["lr"], 6) for event in report if event["event"] == "epoch"]


assert rates("multistep,at=1e:3e,factor=0.5") == [1, 0.5, 0.5, 0.25, 0.25]
assert rates("step,every=2e,factor=0.1") == [1, 1, 0.1, 0.1, 0.01]
assert rates("plateau,patience=0,factor=0.5", "--val-fraction", "0.1")[0] == 1
steps = [1 - step / 10 for step in (1, 3, 5, 7, 9)]  # two steps an epoch
assert rates("polynomial") == [round(rate, 6) for rate in steps], rates("polynomial")

run("train", *SHORT, "--optimizer", "lion", "--lr", "0.001", "--schedule", "multistep,at=1e", "-o", "whole.h5")
fails(2, "--lr", "train", *SHORT, "--optimizer", "lion", "--lr", "0.002", "--schedule", "multistep,at=1e",
      "--resume", "-o", "whole.h5")
fails(2, "--schedule at is", "train", *SHORT, "--optimizer", "lion", "--lr", "0.001", "--schedule", "multistep,at=5", "--resume",
      "-o", "whole.h5")

out = [*SHORT, "-o", "no.h5"]
fails(2, "did you mean 'lion'", "train", *out, "--optimizer", "lyon")
fails(2, "lion has no 'eps'", "train", *out, "--optimizer", "lion,eps=1")
fails(2, "use 0 or 1", "train", *out, "--optimizer", "adam,amsgrad=2")
fails(2, "use a number", "train", *out, "--optimizer", "adam,beta1=x")
fails(2, "beta1 is 1.5", "train", *out, "--optimizer", "adam,beta1=1.5")
fails(2, "twice", "train", *out, "--optimizer", "adam,beta1=0.5,beta1=0.6")
fails(2, "dampening", "train", *out, "--optimizer", "sgd,dampening=0.1", "--set", "optimizer.momentum=0")
fails(2, "did you mean 'cosine'", "train", *out, "--schedule", "cosin")
fails(2, "step has no 'at'", "train", *out, "--schedule", "step,at=3")
fails(2, "ascending", "train", *out, "--schedule", "multistep,at=5:3")
fails(2, "whole number", "train", *out, "--schedule", "step,every=0.5")
fails(2, "--val-fraction", "train", *out, "--schedule", "plateau")
print("optimizers: ok")
