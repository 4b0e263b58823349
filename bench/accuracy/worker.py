"""The peers' side of scripts/accuracy --peers: a job a line on standard input, a line of JSON as answer.

  hello      {"versions": {name: version}}
  tune JOB   {"ptq": percent, "qat": percent}, or {"reason": text} where the tool has not that format; JOB is JSON of
             tool, format, network (a float checkpoint of fakequant's, or of "train"), data, seed, rate, epochs or steps, batch
  train JOB  {"qat": percent}: trains a float network of torch_networks.py; JOB has its name as "model", and "network" is written
"""

import copy
import importlib
import json
import os
import sys
import warnings

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(BENCH, "peers"))

import peer  # noqa: E402
import quantized  # noqa: E402
import torch  # noqa: E402
import torch_networks  # noqa: E402
import torch_peer  # noqa: E402
from formats import FORMATS, Unsupported  # noqa: E402
from training import tune  # noqa: E402

from network import load  # noqa: E402

CALIBRATION = 512  # images, as fakequant's


class Fakequant:
    """fakequant.torch with its defaults. Learned ranges are parameters of the model."""

    FOLLOWS_FLOAT = False

    @staticmethod
    def quantized(network, wanted, x):
        import fakequant.torch as fqt

        preset = next(name for name, format in FORMATS.items() if format == wanted)
        return fqt.calibrate(fqt.quantize(network.eval(), preset, x), [x])


def train_job(job):
    torch.manual_seed(job["seed"])
    network = torch_networks.make(job["model"])
    tune(network, None, *torch_networks.load_data(job["data"], "train"), job)
    torch.save({"model": job["model"], "state": network.state_dict()}, job["network"])
    return {"qat": 100 * torch_peer.accuracy(network, *torch_networks.load_data(job["data"], "test"))}


def tune_job(job):
    torch.manual_seed(job["seed"])
    x, y = torch_networks.load_data(job["data"], "train")
    test = torch_networks.load_data(job["data"], "test")
    network = load(job["network"], x)
    tool = Fakequant if job["tool"] == "fakequant" else importlib.import_module(f"{job['tool']}_tool")
    teacher = copy.deepcopy(network).eval() if tool.FOLLOWS_FLOAT else None
    try:
        model = tool.quantized(network, FORMATS[job["format"]], x[:CALIBRATION])
    except Unsupported as error:
        return {"reason": str(error)}
    calibrated = torch_peer.accuracy(model, *test)
    tune(model, teacher, x, y, job)
    return {"ptq": 100 * calibrated, "qat": 100 * torch_peer.accuracy(model, *test)}


def answer(request):
    verb, _, rest = request.strip().partition(" ")
    try:
        if verb == "hello":
            return {"versions": peer.versions()}
        return (train_job if verb == "train" else tune_job)(json.loads(rest))
    except Exception as error:  # the driver writes it into the report and continues
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def main():
    replies = os.fdopen(os.dup(1), "w")  # libraries print: only replies may reach the driver
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    quantized.fakequant_package()
    for request in sys.stdin:
        print(json.dumps(answer(request)), file=replies, flush=True)


main()
