"""Tables of the UCI repository (CC BY 4.0) as the Debian package r-cran-mlbench has them."""

import os

import numpy as np

from . import data_file, packages, r_data

PACKAGE = "r-cran-mlbench"
TABLES = {"letters": ("LetterRecognition", "lettr", 4000), "satellite": ("Satellite", "classes", 1435)}


def make(output, given):
    table, label, held_out = TABLES[given.name]
    root = packages.unpacked(PACKAGE, given.packages)
    path = os.path.join(root, "usr/lib/R/site-library/mlbench/data", table + ".rda")
    columns = r_data.load(path)[table]
    classes = columns[label].levels
    y = np.array(columns[label].codes, np.int64)
    x = np.stack([np.array(values, np.float32) for name, values in columns.items() if name != label], axis=1)
    order = np.random.default_rng(given.seed).permutation(len(y))
    test, train = order[:held_out], order[held_out:]
    x = (x - x[train].mean(0)) / x[train].std(0)
    data_file.write(output, {"train": (x[train], y[train]), "test": (x[test], y[test])}, classes)
