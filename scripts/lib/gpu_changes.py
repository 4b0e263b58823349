"""gpu_changes.py BEFORE REPORT_LINES: compares rows of a GPU benchmark with an earlier report (docs/benchmarks/gpu-*.json).

One JSON object a row: microseconds before and now, their quotient, and the shares of a copy's speed. Rows that the earlier report has
not are given alone. Only of one kind of GPU is the quotient a change of the program's.
"""

import json
import sys
from pathlib import Path


def rows_by_name(objects):
    return {row["row"]: row for row in objects if "ours_s" in row}


def main():
    before = rows_by_name(json.loads(Path(sys.argv[1]).read_text())["bench"])
    now = rows_by_name(json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines() if line.startswith("{"))
    for name, row in now.items():
        out = {"row": name, "now_us": row["ours_s"] * 1e6, "now_share": row.get("copy_share")}
        if old := before.get(name):
            out |= {"before_us": old["ours_s"] * 1e6, "before_share": old.get("copy_share"), "quotient": row["ours_s"] / old["ours_s"]}
        print(json.dumps({key: round(value, 3) if isinstance(value, float) else value for key, value in out.items()}))
    return 0 if now else 1


sys.exit(main())
