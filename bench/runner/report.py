"""The report: machine, versions, figures and goals, as JSON and as a table."""

import json
import os
import platform
import re
import subprocess

GOALS = "bench/goals.json"


def first_match(path, pattern, otherwise="unknown"):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else otherwise


def vector_sets():
    flags = first_match("/proc/cpuinfo", r"^(?:flags|Features)\s*:\s*(.*)$", "").split()
    return [flag for flag in ("avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "asimd") if flag in flags]


def caches():
    found, folder = {}, "/sys/devices/system/cpu/cpu0/cache"
    for index in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if index.startswith("index") and first_match(f"{folder}/{index}/type", r"(.*)") != "Instruction":
            level, size = (first_match(f"{folder}/{index}/{name}", r"(.*)") for name in ("level", "size"))
            found["L" + level] = size
    return found


def machine():
    kibibytes = first_match("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0")
    return {"cpu": first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$", platform.machine()),
            "cores": os.cpu_count(), "vectors": vector_sets(), "caches": caches(),
            "memory_gib": round(int(kibibytes) / 2**20, 1),
            "system": first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)')}


def revision():
    """Returns `git describe` of this source tree."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], text=True, capture_output=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def load():
    """Returns the mean number of processes that needed a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def find_goal(name):
    with open(GOALS) as file:
        return json.load(file).get(name)


def verdict(result):
    goal = find_goal(result["name"])
    if not goal:
        return ""
    reached = [word for word, bound in zip(("must", "stretch"), goal) if result["ratio"] <= bound]
    return f"{reached[-1] if reached else 'NOT WON'} ({' / '.join(map(str, goal))})"


def table(report):
    lines = ["| row (ratio = ours / theirs) | ratio | least .. most | ours | theirs | unit | rounds | threads | goal (must / stretch) | "
             "variant of theirs |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in report["results"]:
        lines.append(f"| `{r['name']}` | {r['ratio']:.3f} | {r['ratio_min']:.3f} .. {r['ratio_max']:.3f} | {r['ours']:.4g} | "
                     f"{r['theirs']:.4g} | {r['unit']} | {r['rounds']} | {r['threads']} | {verdict(r)} | {r.get('variant', '')} |")
    for failure in report["failures"]:
        lines.append(f"| `{failure['name']}` | FAILED | {failure['reason']} | | | | | | | |")
    return "\n".join(lines)


def write(report, path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".new", "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)
