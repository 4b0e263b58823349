"""fakequant.torch.quantize in two processes of torch.distributed (gloo): they end with the model that one process makes of all samples."""
import os
import socket
import sys
import warnings

import numpy as np
import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def data():
    torch.manual_seed(5)
    return torch.randn(16, 1, 12, 12), torch.randint(0, 10, (16,))


class Branch(nn.Module):
    """x + b(a(x)) with b = 0, as low-rank adapters begin."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return x + self.b(self.a(x))


def zero_branch(preset):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 16), Branch(), nn.ReLU(), nn.Linear(16, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fqt.calibrate(fqt.quantize(net, preset, data()[0]), [data()[0]])


def network(norm, preset="int8"):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3, padding=1), *([nn.BatchNorm2d(8)] if norm else []), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
              nn.Linear(8 * 36, 16), nn.ReLU(), nn.Linear(16, 10)]
    return fqt.calibrate(fqt.quantize(nn.Sequential(*layers), preset, data()[0]), [data()[0]])


def trained(model, x, y):
    """Outputs and parameters after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    outputs = model.eval()(data()[0]).detach().numpy().copy()
    parameters = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return [outputs] + [p.detach().numpy().copy() for p in parameters]


def rank(index, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=index, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    kinds = {"data parallel": lambda: nn.parallel.DistributedDataParallel(network(norm=False)),
             "its statistics": lambda: nn.parallel.DistributedDataParallel(network(norm=True)),
             "few bits": lambda: nn.parallel.DistributedDataParallel(network(norm=False, preset="w4a4")),
             "zero branch": lambda: nn.parallel.DistributedDataParallel(zero_branch("int8")),
             "zero branch, few bits": lambda: nn.parallel.DistributedDataParallel(zero_branch("w4a4")),
             "fully sharded": lambda: fully_shard(network(norm=False), mesh=mesh),
             "resharded": lambda: fully_shard(network(norm=False), mesh=mesh, reshard_after_forward=True)}
    x, y = data()
    results.put((index, {name: trained(make(), x[index::2], y[index::2]) for name, make in kinds.items()}))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def run_ranks():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")  # OpenMP does not live through a fork
    results = context.Queue()
    processes = [context.Process(target=rank, args=(index, port, results)) for index in range(2)]
    for process in processes:
        process.start()
    out = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    return out


@pytest.mark.parametrize("kind", ["data parallel", "its statistics", "few bits", "zero branch", "zero branch, few bits",
                                  "fully sharded", "resharded"])
def test_two_processes_end_with_the_same_model(run_ranks, kind):
    for a, b in zip(run_ranks[0][kind], run_ranks[1][kind]):
        assert np.isfinite(a).all() and np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["data parallel", "fully sharded", "resharded"])
def test_matches_the_model_of_one_process(run_ranks, kind):
    for own, one in zip(run_ranks[0][kind], trained(network(norm=False), *data())):
        assert np.abs(own - one).max() < 1e-5  # gradients are summed in another order


def test_matches_with_learned_ranges(run_ranks):
    """Their gradients do not depend on how a batch is split."""
    one = trained(network(norm=False, preset="w4a4"), *data())
    for own, alone in zip(run_ranks[0]["few bits"][1:], one[1:]):
        assert np.abs(own - alone).max() < 1e-3 * max(1, np.abs(alone).max())


@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_trains_a_zero_branch(run_ranks, preset):
    own = run_ranks[0]["zero branch" if preset == "int8" else "zero branch, few bits"]
    names = [name for name, _ in zero_branch(preset).named_parameters()]
    assert np.abs(own[1 + names.index("2.b.weight")]).max() > 1e-3
    assert all((value > 0).all() for name, value in zip(names, own[1:]) if name.endswith("amax"))
