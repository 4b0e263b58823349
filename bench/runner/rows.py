"""Chooses the rows to run, prepares them, and computes their figures."""

import difflib
import fnmatch
import os

from . import python_rows
from .rounds import Timed, run_rounds
from .worker import WorkerError


class Refused(Exception):
    """A request that cannot be fulfilled. The message gives the reason and a remedy."""


class Different(Exception):
    """The results of the two sides differ. The message names the first element that differs."""


def matches(row, pattern):
    return any(fnmatch.fnmatchcase(name, pattern) for name in (row["name"], row["name"].rsplit("/", 1)[0]))


def nearest(pattern, rows):
    names = [row["name"] for row in rows]
    return ", ".join(difflib.get_close_matches(pattern, names, 3, 0.3) or names[:3])


def choose(rows, patterns, peers):
    """Returns the rows that a pattern matches, or all rows without patterns. Rows of Python peers require `peers`."""
    for pattern in patterns:
        found = [row for row in rows if matches(row, pattern)]
        if not found:
            raise Refused(f"no row is named {pattern}; nearest: {nearest(pattern, rows)} (--list gives all)")
        if not peers and all(row["python"] for row in found):
            raise Refused(f"{pattern} is compared with a Python library: use --peers")
    chosen = [row for row in rows
              if (peers or not row["python"]) and (not patterns or any(matches(row, p) for p in patterns))]
    if not chosen:
        raise Refused("no row matches. --list prints all rows" + ("" if peers else "; rows with a Python peer require --peers"))
    return chosen


class Runner:
    """Starts two programs for each row: `own(own_waiting)` and `peer()`. They exchange arrays in a folder."""

    def __init__(self, own, peer, exchange, plan, threads):
        self.own, self.peer, self.exchange, self.plan, self.threads = own, peer, exchange, plan, threads

    def run_python(self, row):
        """Both sides are Python programs. Results are not compared here, because tests compare them."""
        with self.peer() as own, self.peer() as peer:
            own.ask("prepare", python_rows.ours(row["name"]))
            variant = peer.ask("prepare", row["name"])
            return {**self.timed(row, {"checked": False, "units_per_second": row["units_per_second"]}, own, peer), **variant}

    def run(self, row):
        if row.get("both_python"):
            return self.run_python(row)
        try:
            with self.own(row.get("own_waiting", False)) as own:
                prepared = own.ask("prepare", row["name"])
                if not row["python"]:
                    return self.figures(row, prepared, own, own)
                with self.peer() as peer:
                    variant = peer.ask("prepare", row["name"])
                    if prepared["checked"]:
                        peer.ask("publish")
                    return {**self.figures(row, prepared, own, peer), **variant}
        finally:
            for name in os.listdir(self.exchange):
                os.remove(os.path.join(self.exchange, name))

    def figures(self, row, prepared, own, peer):
        difference = own.ask("check")["difference"]
        if difference:
            raise Different(difference)
        return self.timed(row, prepared, own, peer)

    def timed(self, row, prepared, own, peer):
        clock = row["clock"] if self.threads == 1 else "wall"
        ours, theirs = (Timed(worker, side, clock, prepared["units_per_second"])
                        for worker, side in ((own, "ours"), (peer, "theirs")))
        return {"name": row["name"], **run_rounds(ours, theirs, self.plan), "unit": row["unit"],
                "rounds": self.plan.rounds, "threads": self.threads, "clock": clock,
                "compared": prepared["checked"]}


def run_all(runner, rows, print_line):
    """Returns (results, failures). Calls `print_line` with one line per row."""
    results, failures = [], []
    for row in rows:
        try:
            results.append(runner.run(row))
            print_line("{name:<46} {ratio:7.3f}  ({ratio_min:.3f} .. {ratio_max:.3f}, {rounds} rounds)".format(**results[-1]))
        except (Different, WorkerError, ZeroDivisionError) as error:
            reason = f"not equal: {error}" if isinstance(error, Different) else str(error)
            failures.append({"name": row["name"], "reason": reason})
            print_line(f"{row['name']:<46} FAILED  {reason}")
    return results, failures
