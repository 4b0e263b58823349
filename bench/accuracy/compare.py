"""scripts/accuracy --peers: every tool fine-tunes the same float networks. Each result is appended to a file as one line of JSON.
Jobs with a stored result are not run again."""

import json
import os
import sys
import threading
import time

from runner import report as bench_report
from runner import setup
from runner.worker import Worker, WorkerError

from . import own
from .cases import BATCH, CASES, COMPARED, FLOAT_RATE, TORCH_CASES, TORCH_PEERS, TORCH_RATES, rates

FOLDER = "build/accuracy/peers"
RESULTS = f"{FOLDER}/results.jsonl"


def tell(line):
    print(f"{line}\n", end="", file=sys.stderr, flush=True)


def key(result):
    return tuple(result.get(name) for name in ("data", "tool", "format", "seed", "rate"))


class Results:
    def __init__(self, path):
        self.path, self.all, self.writing = path, {}, threading.Lock()
        if os.path.exists(path):
            with open(path) as file:
                for line in file:
                    result = json.loads(line)
                    self.all[key(result)] = result

    def once(self, make, **what):
        """Returns the stored result or runs `make`, which returns accuracies or the reason of a failure. Thread-safe."""
        if key(what) in self.all:
            return self.all[key(what)]
        start = time.time()
        result = {**what, **make()}
        result["seconds"] = round(time.time() - start, 1)
        with self.writing:
            self.all[key(what)] = result
            with open(self.path, "a") as file:
                file.write(json.dumps(result) + "\n")
            tell(" ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in result.values()))
        return result


def peer_worker():
    python = setup.make_environment(tell)
    return Worker([python, os.path.abspath("bench/accuracy/worker.py")], setup.peer_environment(1),
                  f"{FOLDER}/worker.log")


def ask(worker, **job):
    try:
        return worker.ask("tune", json.dumps(job))
    except WorkerError as error:
        if worker.process.poll() is not None:
            raise
        return {"reason": str(error)}


def compare(options):
    """All results for the data, formats, tools and seeds of the options."""
    os.makedirs(FOLDER, exist_ok=True)
    results, worker = Results(RESULTS), None
    for seed in range(1, options.seeds + 1):
        for name in options.data:
            case, path = CASES[name], os.path.abspath(f"{FOLDER}/{name}.{seed}.h5")
            data = os.path.abspath(os.path.join("data" if case.file == "digits.h5" else options.data_folder, case.file))
            results.once(lambda: {"qat": own.float_network(options.command, case, data, seed, path)},
                         data=name, tool="float", format="float", seed=seed)
            for preset in options.formats:
                results.once(lambda: own.quantized(options.command, case, data, seed, path, preset),
                             data=name, tool="fakequant", format=preset, seed=seed)
                for tool in options.tools if preset in COMPARED else ():
                    for rate in rates(preset):
                        worker = worker or peer_worker()
                        job = {"tool": tool, "format": preset, "network": path, "data": data, "seed": seed, "rate": rate,
                               "epochs": case.fine_epochs, "batch": BATCH}
                        results.once(lambda: ask(worker, **job), data=name, tool=tool, format=preset, seed=seed, rate=rate)
    return report(worker, [result for result in results.all.values() if wanted(result, options)])


def compare_torch(options):
    """All results of the networks of PyTorch, where fakequant.torch is one of the tools."""
    folder = f"{FOLDER}/../torch"
    os.makedirs(folder, exist_ok=True)
    os.makedirs(FOLDER, exist_ok=True)
    results, worker = Results(f"{folder}/results.jsonl"), peer_worker()
    tools = ("fakequant", *(tool for tool in TORCH_PEERS if tool in options.tools))
    for seed in range(1, options.seeds + 1):
        for name, case in TORCH_CASES.items():
            job = {"network": os.path.abspath(f"{folder}/{case.network}.{seed}.pt"), "seed": seed, "batch": case.batch,
                   "data": os.path.abspath(os.path.join(options.data_folder, case.file))}
            train = {**job, "model": case.network, "steps": case.float_steps, "rate": FLOAT_RATE}
            made = results.once(lambda: worker.ask("train", json.dumps(train)),
                                data=case.network, tool="float", format="float", seed=seed)
            results.once(lambda: {"qat": made["qat"]}, data=name, tool="float", format="float", seed=seed)
            for format, rates_of_format in TORCH_RATES.items():
                for tool in tools:
                    for rate in rates_of_format:
                        results.once(lambda: ask(worker, **job, tool=tool, format=format, rate=rate, steps=case.steps),
                                     data=name, tool=tool, format=format, seed=seed, rate=rate)
    return report(worker, [result for result in results.all.values() if result["seed"] <= options.seeds])


def report(worker, results):
    versions = worker.ask("hello")["versions"] if worker else {}
    return {"machine": bench_report.machine(), "revision": bench_report.revision(), "versions": versions, "results": results}


def wanted(result, options):
    return (result["data"] in options.data and result["seed"] <= options.seeds
            and result["tool"] in ("float", "fakequant", *options.tools)
            and result["format"] in ("float", *options.formats))

