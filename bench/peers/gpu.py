"""Times PyTorch and ModelOpt on this machine's GPU, if they are installed. Prints one JSON object per row.

gpu.py [--batch N] [--rounds N] [--gpt]. Kernels are compared with a copy of the same bytes. Steps are those of resnet20
(bench/networks.h; row-major and channels last) and of GPTs, launched one by one and as a CUDA graph, in float32, TF32 and
bf16. With --gpt only the GPTs are timed.
"""

import argparse
import json
import statistics
import sys

try:
    import torch
except ImportError:
    print(json.dumps({"peers": "PyTorch is not installed"}))
    sys.exit(0)

import gpt
from networks import make_network


def say(row, **numbers):
    print(json.dumps({"row": row, **numbers}), flush=True)


def seconds(work, rounds):
    """The median of a call, by events."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / 5)
    return statistics.median(times)


def modelopt():
    try:
        import modelopt.torch.quantization as quantization
    except ImportError:
        return None
    return quantization


def kernels(rounds):
    elements = 4 * torch.cuda.get_device_properties(0).L2_cache_size // 4
    x = torch.randn(elements, device="cuda")
    y = torch.empty_like(x)
    copy = seconds(lambda: y.copy_(x), rounds)
    ways = {"torch": lambda: torch.fake_quantize_per_tensor_affine(x, 3 / 127, 0, -127, 127)}
    if modelopt():
        from modelopt.torch.quantization.tensor_quant import fake_tensor_quant

        amax = torch.tensor(3.0, device="cuda")
        ways["modelopt"] = lambda: fake_tensor_quant(x, amax)
    for name, work in ways.items():
        own = seconds(work, rounds)
        say(f"kernel.fake_quant_int8/{name}", seconds=own, copy_share=copy / own)


SIZES = {"gpt": {"LAYERS": 4, "WIDTH": 256, "HEADS": 4, "CONTEXT": 128, "BATCH": 16},
         "gpt768_b32": {"LAYERS": 12, "WIDTH": 768, "HEADS": 12, "CONTEXT": 256, "BATCH": 32}}


def image_network(batch, channels_last):
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = make_network("resnet20", False).model.cuda().to(memory_format=layout)
    x = torch.randn(batch, 3, 32, 32, device="cuda").to(memory_format=layout)
    return model, x, torch.randint(0, 10, (batch,), device="cuda")


def gpt_network(name):
    for key, value in SIZES[name].items():
        setattr(gpt, key, value)
    network = make_network("gpt", False)
    return network.model.cuda(), network.x.cuda(), network.labels.cuda()


def quantize_modelopt(model, x):
    return modelopt().quantize(model, modelopt().INT8_DEFAULT_CFG, lambda m: m(x))


def make_step(model, x, labels, half=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()

    return step


def as_graph(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def timed(name, way, rounds, model, x, labels):
    """Launched one by one, and as a graph."""
    if way.get("modelopt_int8"):
        model = quantize_modelopt(model, x)
    step = make_step(model, x, labels, way.get("bf16", False))
    for graph in (False, True):
        try:
            say(name, **way, graph=graph, seconds=seconds(as_graph(step) if graph else step, rounds))
        except Exception as error:  # a peer that cannot be captured, or has too little memory
            say(name, **way, graph=graph, error=str(error).splitlines()[0])
    torch.cuda.empty_cache()


def allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def steps(batch, rounds, images):
    numbers = [{"tf32": False}, {"tf32": True}, {"bf16": True}]
    if modelopt():
        numbers.append({"tf32": True, "modelopt_int8": True})
    for way in numbers:
        allow_tf32(way.get("tf32", False))
        for channels_last in (False, True) if images else ():
            timed(f"step.resnet20_b{batch}.torch", {**way, "channels_last": channels_last}, rounds,
                  *image_network(batch, channels_last))
        for name in SIZES:
            timed(f"step.{name}.torch", way, rounds, *gpt_network(name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--gpt", action="store_true", help="steps of GPTs alone")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(json.dumps({"peers": f"PyTorch {torch.__version__} sees no GPU"}))
        return
    say("peers", torch=torch.__version__, modelopt=bool(modelopt()), device=torch.cuda.get_device_name())
    if not options.gpt:
        kernels(options.rounds)
    steps(options.batch, options.rounds, not options.gpt)


main()
