"""What PyTorch and ModelOpt take on this machine's GPU, where they are installed: one JSON object a row.

gpu.py [--batch N] [--rounds N]. Kernels are timed beside a copy of the same bytes, steps of resnet20 (bench/networks.h) row-major and
channels last, launched one by one and as a graph, with TF32 and without. Nothing here was tried on a GPU yet.
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


def network_of(batch, channels_last, quantized):
    network = make_network("resnet20", False)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = network.model.cuda().to(memory_format=layout)
    x = torch.randn(batch, 3, 32, 32, device="cuda").to(memory_format=layout)
    labels = torch.randint(0, 10, (batch,), device="cuda")
    if quantized:
        model = modelopt().quantize(model, modelopt().INT8_DEFAULT_CFG, lambda m: m(x))
    return model, x, labels


def step_of(model, x, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.cross_entropy(model(x), labels).backward()
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


def steps(batch, rounds):
    for quantized in (False, True) if modelopt() else (False,):
        for tf32 in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            for channels_last in (False, True):
                for graph in (False, True):
                    name = f"step.resnet20_b{batch}.{'modelopt_int8' if quantized else 'torch_fp32'}"
                    way = {"tf32": tf32, "channels_last": channels_last, "graph": graph}
                    try:
                        step = step_of(*network_of(batch, channels_last, quantized))
                        say(name, **way, seconds=seconds(as_graph(step) if graph else step, rounds))
                    except Exception as error:  # a peer that cannot be captured, or has too little memory
                        say(name, **way, error=str(error).splitlines()[0])
                    torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(json.dumps({"peers": f"PyTorch {torch.__version__} sees no GPU"}))
        return
    say("peers", torch=torch.__version__, modelopt=bool(modelopt()), device=torch.cuda.get_device_name())
    kernels(options.rounds)
    steps(options.batch, options.rounds)


main()
