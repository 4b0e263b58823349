"""Fine-tunes one float network with several presets and learning rates, and prints a table with the best accuracy first.

    fakequant train --model cnn --data data.h5 -o float.h5
    python examples/sweep.py float.h5 data.h5 --presets int8 w4a4 --rates 0.0005 0.002 --epochs 5 --output best.h5

A tenth of the training samples chooses the best network. The last line has its accuracy on the test samples.
"""
import argparse

import fakequant as fq
import numpy as np


def fine_tune(checkpoint, preset, rate, train, epochs):
    model = fq.load(checkpoint)
    model.qat(train, preset, epochs=epochs, learning_rate=rate, quiet=True, progress=False)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="float network")
    parser.add_argument("data", help="data set with the groups train and test")
    parser.add_argument("--presets", nargs="+", default=["int8", "w4a4", "w2a2"])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0005, 0.002])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--output", help="checkpoint of the best network")
    options = parser.parse_args()

    data = fq.dataset(options.data)
    held_out = np.random.default_rng(0).random(len(data)) < 0.1
    train, validation = fq.Subset(data, np.flatnonzero(~held_out)), fq.Subset(data, np.flatnonzero(held_out))

    found = []
    for preset in options.presets:
        for rate in options.rates:
            model = fine_tune(options.checkpoint, preset, rate, train, options.epochs)
            found.append((model.evaluate(validation)["accuracy"], preset, rate, model))
    # Optuna chooses the values instead of these loops. `accuracy(preset, rate)` is the body of the loops:
    #     study = optuna.create_study(direction="maximize")
    #     study.optimize(lambda t: accuracy("w4a4", t.suggest_float("rate", 1e-4, 1e-2, log=True)), n_trials=20)
    #     print(study.best_params)

    found.sort(key=lambda row: -row[0])
    print("accuracy  preset            rate")
    for accuracy, preset, rate, _ in found:
        print(f"{100 * accuracy:6.2f} %  {preset:16}  {rate:g}")
    best = found[0][-1]
    print(f"{100 * best.evaluate(fq.dataset(options.data, 'test'))['accuracy']:6.2f} %  on the test samples")
    if options.output:
        best.save(options.output)


if __name__ == "__main__":
    main()
