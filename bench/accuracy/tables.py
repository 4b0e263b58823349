"""The report of scripts/accuracy --peers: JSON, a table in markdown, and a picture of each set of data."""

import json
import statistics

from . import chart
from .cases import CASES, FORMATS, TOOLS, TORCH_CASES

BITS = {"int8": 8, "w4a4": 4, "w3a3": 3, "w2a2": 2}  # of the picture: weights and activations alike
LABELS = {"fakequant": "fakequant", **TOOLS}


def mean_and_deviation(values):
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0, "runs": values}


def best_rate(results):
    """seed -> result, of the learning rate that is best in the mean over seeds."""
    by_rate = {}
    for result in results:
        by_rate.setdefault(result.get("rate"), {})[result["seed"]] = result
    return max(by_rate.values(), key=lambda runs: (len(runs), statistics.mean(run["qat"] for run in runs.values())))


def summary(results):
    """(data, format, tool) -> per seed: accuracy minus the float network's, and our accuracy minus the peer's."""
    floats = {(r["data"], r["seed"]): r["qat"] for r in results if r["tool"] == "float"}
    groups, found = {}, {}
    for result in results:
        if result["tool"] != "float" and "qat" in result:
            groups.setdefault((result["data"], result["format"], result["tool"]), []).append(result)
    runs = {key: best_rate(group) for key, group in groups.items()}
    for (data, format, tool), seeds in runs.items():
        ours = runs.get((data, format, "fakequant"), {})
        paired = [ours[seed]["qat"] - seeds[seed]["qat"] for seed in seeds if seed in ours]
        found[data, format, tool] = {
            "seeds": len(seeds), "rate": next(iter(seeds.values())).get("rate"),
            **{stage: mean_and_deviation([run[stage] - floats[data, seed] for seed, run in seeds.items()])
               for stage in ("ptq", "qat")},
            **({"ours_minus_it": mean_and_deviation(paired)} if paired and tool != "fakequant" else {})}
    return found


def signed(figures):
    return f"{figures['mean']:+.2f} ± {figures['sd']:.2f}"


def cell(figures, seeds):
    """Formats mean and spread. `seeds`: number of seeds of the row; a cell with fewer seeds prints its number."""
    if figures is None:
        return "-"
    fewer = f", seeds: {figures['seeds']}" if figures["seeds"] < seeds else ""
    paired = f" ({figures['ours_minus_it']['mean']:+.2f})" if "ours_minus_it" in figures else ""
    return f"{figures['ptq']['mean']:+.2f}, {signed(figures['qat'])}{paired}{fewer}"


def reasons(results):
    """Lists each reason of a failure once, with the formats that it applies to."""
    found = {}
    for result in results:
        if "reason" in result:
            found.setdefault((TOOLS[result["tool"]], result["reason"]), set()).add(FORMATS[result["format"]])
    return [f"* {tool}, {', '.join(sorted(formats))}: {reason}" for (tool, reason), formats in sorted(found.items())]


def markdown(results):
    figures = summary(results)
    tools = [tool for tool in LABELS if any(key[2] == tool for key in figures)]
    lines = ["points from float after calibration, after fine-tuning ± deviation over seeds (ours less the peer's, same seeds)", "",
             f"| data, float, seeds | format | {' | '.join(LABELS[tool] for tool in tools)} |", "| --- " * (2 + len(tools)) + "|"]
    for data in (*CASES, *TORCH_CASES):
        own = [r["qat"] for r in results if r["data"] == data and r["tool"] == "float"]
        for format in FORMATS:
            row = [figures.get((data, format, tool)) for tool in tools]
            if any(row):
                seeds = max(found["seeds"] for found in row if found)
                lines.append(f"| {data}, {statistics.mean(own):.2f}, {seeds} | {FORMATS[format]} | "
                             f"{' | '.join(cell(found, seeds) for found in row)} |")
    return "\n".join([*lines, "", *reasons(results)])


def pictures(results, folder):
    figures = summary(results)
    for data in CASES:
        level = [r["qat"] for r in results if r["data"] == data and r["tool"] == "float"]
        lines = {label: [(bits, statistics.mean(level) + figures[data, format, tool]["qat"]["mean"])
                         for format, bits in BITS.items() if (data, format, tool) in figures] for tool, label in LABELS.items()}
        if any(len(points) > 1 for points in lines.values()):
            with open(f"{folder}/{data}.svg", "w") as file:
                file.write(chart.draw(f"{data}: accuracy over bits, after fine-tuning", lines, statistics.mean(level)))


def write(report, folder, name="peers"):
    results = report["results"]
    report["summary"] = [dict(zip(("data", "format", "tool"), key), **figures) for key, figures in summary(results).items()]
    with open(f"{folder}/{name}.json", "w") as file:
        json.dump(report, file, indent=1)
    text = markdown(results)
    with open(f"{folder}/{name}.md", "w") as file:
        file.write(text + "\n")
    pictures(results, folder)
    print(text)
