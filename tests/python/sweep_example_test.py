"""examples/sweep.py prints the accuracy of each preset and rate, the best first, and saves the best network."""
import os
import pathlib
import subprocess
import sys

import fakequant as fq
import numpy as np
import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "sweep.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data set of five classes of points, and a float network of it."""
    h5py = pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("sweep")
    numbers = np.random.default_rng(1)
    centres, labels = numbers.standard_normal((5, 12)), numbers.integers(0, 5, 900)
    x = (centres[labels] + 0.9 * numbers.standard_normal((900, 12))).astype(np.float32)
    with h5py.File(folder / "data.h5", "w") as file:
        for group, rows in (("train", slice(0, 600)), ("test", slice(600, 900))):
            file[f"{group}/x"], file[f"{group}/y"] = x[rows], labels[rows]
    data = fq.dataset(str(folder / "data.h5"))
    model = fq.model("mlp", data.sample_shape, 5, options={"hidden": [16]})
    model.fit(data, epochs=4, learning_rate=3e-3, progress=False)
    model.save(str(folder / "float.h5"))
    return folder


def sweep(folder, *flags):
    module = str(pathlib.Path(fq.__file__).parents[1])
    return subprocess.run([sys.executable, str(SCRIPT), "float.h5", "data.h5", *flags], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": module})


def test_table_lists_the_best_first(folder):
    done = sweep(folder, "--presets", "int8", "w2a2", "--rates", "0.0001", "0.004", "--epochs", "2", "--output", "best.h5")
    assert done.returncode == 0, done.stderr
    header, *rows, last = done.stdout.splitlines()
    assert header.split() == ["accuracy", "preset", "rate"]
    found = [(float(row.split()[0]), row.split()[2], row.split()[3]) for row in rows]
    assert sorted(row[1:] for row in found) == [("int8", "0.0001"), ("int8", "0.004"), ("w2a2", "0.0001"), ("w2a2", "0.004")]
    accuracies = [row[0] for row in found]
    assert accuracies == sorted(accuracies, reverse=True) and len(set(accuracies)) > 1, accuracies

    best = fq.load(str(folder / "best.h5"))
    test = fq.dataset(str(folder / "data.h5"), "test")
    assert last.split()[0] == f"{100 * best.evaluate(test)['accuracy']:.2f}"
    assert best.config["preset"] == found[0][1]


def test_rejects_an_unknown_preset(folder):
    done = sweep(folder, "--presets", "int9")
    assert done.returncode != 0 and "int9" in done.stderr, done.stderr
