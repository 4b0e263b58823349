"""fakequant.torch.quantize in two processes of torch.distributed (gloo): they end with the model that one process makes of all samples."""
import importlib.util
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
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402


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


class Block(nn.Module):
    """A residual block with a norm, whose scale the backward pass reads."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """`parts` makes each block a part of its own, which its forward calls. Else the whole model is one part."""

    def __init__(self, parts):
        super().__init__()
        self.stem, self.layers, self.head = nn.Linear(144, 16), nn.ModuleList([Block(), Block()]), nn.Linear(16, 10)
        self.parts, self.recomputes = parts, False

    def forward(self, x):
        x = self.stem(x.flatten(1))
        for layer in self.layers:
            if self.parts and bool(x.isnan().any()):  # torch.fx cannot read this
                raise ValueError("an input is NaN")
            x = checkpoint(layer, x, use_reentrant=False) if self.parts and self.recomputes else layer(x)
        return self.head(x)


def blocks(preset, parts, dtype=torch.float32, recomputes=False, adapters=False):
    torch.manual_seed(0)
    x = data()[0].to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fqt.calibrate(fqt.quantize(Blocks(parts).to(dtype), preset, x), [x])
    if recomputes:
        model.recomputes = True
    if adapters:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["up", "down"], r=2, init_lora_weights="gaussian"))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.1)
    return model


def sharded_layers(model, mesh, **options):
    for layer in (model.base_model.model if hasattr(model, "peft_config") else model).layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True, **options)
    return fully_shard(model, mesh=mesh, **options)


HALF = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
SHARDED = {"one part": ("int8", False, {}), "parts": ("int8", True, {}), "one part, few bits": ("w4a4", False, {}),
           "parts, few bits": ("w4a4", True, {}), "recomputed": ("w4a4", True, {"recomputes": True}),
           "bfloat16": ("w4a4", True, {"dtype": torch.bfloat16})}
if importlib.util.find_spec("peft"):
    SHARDED |= {"adapters": ("int8", True, {"adapters": True}), "adapters in a part": ("w4a4", False, {"adapters": True})}


def trained(model, x, y, halves=False):
    """Outputs and parameters after some steps. `halves` adds the gradients of the samples of the two processes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = x.to(next(model.parameters()).dtype)
    for _ in range(4):
        for part in (slice(0, None, 2), slice(1, None, 2)) if halves else (slice(None),):
            loss = F.cross_entropy(model(x[part]).float(), y[part]) / (2 if halves else 1)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    outputs = model.eval()(data()[0].to(x.dtype)).detach().float().numpy().copy()
    parameters = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return [outputs] + [p.detach().float().numpy().copy() for p in parameters]


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
    for name, (preset, parts, options) in SHARDED.items():
        kinds[name] = lambda preset=preset, parts=parts, options=options: sharded_layers(blocks(preset, parts, **options), mesh)
    kinds["rounded by the policy"] = lambda: sharded_layers(blocks("w4a4", True), mesh, **HALF)
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
                                  "fully sharded", "resharded", *SHARDED, "rounded by the policy"])
def test_two_processes_end_with_the_same_model(run_ranks, kind):
    for a, b in zip(run_ranks[0][kind], run_ranks[1][kind]):
        assert np.isfinite(a).all() and np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["data parallel", "fully sharded", "resharded"])
def test_matches_the_model_of_one_process(run_ranks, kind):
    for own, one in zip(run_ranks[0][kind], trained(network(norm=False), *data())):
        assert np.abs(own - one).max() < 1e-5  # gradients are summed in another order


def test_matches_with_learned_ranges(run_ranks):
    """The gradients of ranges do not depend on how a batch is split. A sum in another order may change a code near a tie."""
    one = trained(network(norm=False, preset="w4a4"), *data())
    halves = trained(network(norm=False, preset="w4a4"), *data(), halves=True)
    for own, whole, half in zip(run_ranks[0]["few bits"][1:], one[1:], halves[1:]):
        assert np.abs(own - whole).max() < 1e-3 * max(1, np.abs(whole).max())
        assert np.abs(own - half).max() < 1e-5


@pytest.mark.parametrize("preset", ["int8", "w4a4"])
def test_trains_a_zero_branch(run_ranks, preset):
    own = run_ranks[0]["zero branch" if preset == "int8" else "zero branch, few bits"]
    names = [name for name, _ in zero_branch(preset).named_parameters()]
    assert np.abs(own[1 + names.index("2.b.weight")]).max() > 1e-3
    assert all((value > 0).all() for name, value in zip(names, own[1:]) if name.endswith("amax"))


@pytest.mark.parametrize("kind", [kind for kind in SHARDED if kind != "bfloat16"])
def test_sharded_layers_match_the_model_of_one_process(run_ranks, kind):
    """The gradients of the processes are means, as of one process that adds the gradients of their samples."""
    preset, parts, options = SHARDED[kind]
    one = trained(blocks(preset, parts, **options), *data(), halves=True)
    for own, alone in zip(run_ranks[0][kind], one):
        assert np.abs(own - alone).max() < 1e-5


@pytest.mark.parametrize("kind", ["rounded by the policy", "bfloat16"])
def test_ranges_stay_in_float32(run_ranks, kind):
    """fully_shard gives the layers bfloat16 parameters."""
    names = [name for name, _ in blocks("w4a4", True).named_parameters()]
    ranges = [value for name, value in zip(names, run_ranks[0][kind][1:]) if name.endswith("amax")]
    start = [p.detach().numpy() for name, p in blocks("w4a4", True).named_parameters() if name.endswith("amax")]
    assert all((value > 0).all() for value in ranges) and any((a != b).any() for a, b in zip(ranges, start))
    assert any((torch.from_numpy(value).bfloat16().float().numpy() != value).any() for value in ranges)
