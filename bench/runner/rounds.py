"""Times two sides in turn, A B B A in each round, and computes the ratio of each round."""

import statistics
from dataclasses import dataclass

ROUNDS, QUICK_ROUNDS = 15, 5
BATCH_SECONDS, QUICK_BATCH_SECONDS = 0.03, 0.01


@dataclass
class Plan:
    rounds: int
    batch_seconds: float  # calls are repeated until a batch takes at least this long


def plan(quick):
    return Plan(QUICK_ROUNDS, QUICK_BATCH_SECONDS) if quick else Plan(ROUNDS, BATCH_SECONDS)


class Timed:
    """One side of a row. Times a batch of calls and returns the time of a call in the unit of the row."""

    def __init__(self, worker, side, clock, units_per_second):
        self.worker, self.side, self.clock, self.units_per_second = worker, side, clock, units_per_second
        self.calls = 1

    def once(self):
        answer = self.worker.ask("run", self.side, self.calls)
        return answer["value"] if "value" in answer else answer[self.clock] / self.calls * self.units_per_second

    def size_batch(self, seconds):
        """Warms up, and doubles the calls of a batch until the batch takes `seconds`."""
        while True:
            answer = self.worker.ask("run", self.side, self.calls)
            if "value" in answer or answer["wall"] >= seconds:
                return
            self.calls *= 2


def run_rounds(ours, theirs, plan):
    """The row's figures; raises ZeroDivisionError for a peer that takes no time at all."""
    for side in (ours, theirs):
        side.size_batch(plan.batch_seconds)
    a, b = [], []
    for _ in range(plan.rounds):
        first = ours.once()
        second = theirs.once()
        third = theirs.once()
        a.append((first + ours.once()) / 2)
        b.append((second + third) / 2)
    ratios = [x / y for x, y in zip(a, b)]
    return {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios),
            "ours": statistics.median(a), "theirs": statistics.median(b)}
