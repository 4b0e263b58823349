"""The tables of scripts/accuracy --ptq: rounding to nearest and each algorithm on weights, network by network."""

import json
import os
import subprocess

NETWORKS = ["digits_cnn", "mlp", "cnn", "resnet20"]
OUTLIERS = 50
TRAINING = ["--epochs", "40", "--batch", "64", "--optimizer", "adamw", "--lr", "0.004", "--schedule", "onecycle", "--label-smoothing",
            "0.05", "--augment", "shift=0.6,rotate=7.5,scale=0.1,shear=0.1", "--seed", "1"]
DATA = "data/digits.h5"


def trained(command, name):
    path = f"build/accuracy/ptq/{name}.h5"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run([command, "train", "--model", f"models/{name}.json", "--data", DATA, "-o", path, *TRAINING], check=True,
                       stdout=subprocess.DEVNULL)
    return path


def measured(program, checkpoint, outliers):
    lines = subprocess.run([program, checkpoint, DATA, str(outliers)], check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    if len(rows) < 2:
        raise RuntimeError(f"{program} measured nothing of {checkpoint}")
    return rows


def result(row):
    return f"{row['accuracy']:.2f} / {row['loss']:.3f}"


def markdown(first, columns, rows):
    return "\n".join(["| " + " | ".join([first, *columns]) + " |", "| --- |" + " ---: |" * len(columns),
                      *("| " + " | ".join(row) + " |" for row in rows)])


def table(title, rows):
    floating, *rows = rows
    found = {(row["algorithm"], row["format"]): row for row in rows}
    formats, algorithms = (list(dict.fromkeys(row[key] for row in rows)) for key in ("format", "algorithm"))
    cells = [[algorithm, *(result(found[algorithm, name]) for name in formats)] for algorithm in algorithms]
    return f"### {title}: {result(floating)} in float\n\n" + markdown("", formats, cells)


def times(results, name):
    """Seconds of quantizing, calibrating and the algorithm in one format, by network."""
    found = {(title, row["algorithm"]): row["seconds"] for title, rows in results.items() for row in rows if row["format"] == name}
    algorithms = dict.fromkeys(algorithm for _, algorithm in found)
    cells = [[algorithm, *(f"{found[title, algorithm]:.2f}" for title in results)] for algorithm in algorithms]
    return f"### Seconds in {name}\n\n" + markdown("", list(results), cells)


def run(command, program, report):
    results = {}
    for name, outliers in [*((name, 1) for name in NETWORKS), (NETWORKS[0], OUTLIERS)]:
        title = name if outliers == 1 else f"{name} with outliers x{outliers}"
        results[title] = measured(program, trained(command, name), outliers)
        print(table(title, results[title]) + "\n", flush=True)
    print(times(results, "W4"))
    with open(report, "w") as file:
        json.dump(results, file, indent=1)
