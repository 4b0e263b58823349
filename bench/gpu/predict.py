"""predict.py FILE..: time of a training step that the counted work of its kernels implies.

FILE has the lines of `fakequant_gpu_bench_simulated --work ROW`. A kernel takes the longer of its bytes at the speed of
memory and its multiplications at the speed of tensor cores, plus the time of its launches. The ceilings are of an H200
(docs/benchmarks/gpu.md); the speeds of products are assumed.
"""

import json
import sys
from pathlib import Path

MEMORY = 4.16e12 * 0.93  # bytes/s: the share of a copy that elementwise kernels reach
LAUNCH = 1.6e-6  # seconds, within a CUDA graph
# operations/s. Attention multiplies numbers of two halves: three products forward, one backward.
SPEED = {"exact_gemm": 1.1e15, "multiply": 5.5e14, "attention": 4e14 / 3, "attention_backward": 3e14}
SPEED |= {"exact_conv": 6e14, "conv_backward_data": 3e14, "conv_backward_weights": 2e14}


def transformer(layers, width, hidden, heads, tokens, context):
    """Operations of the products of a step, without the embedding and the head."""
    forward = 2 * layers * (4 * width * width + 2 * width * hidden) * tokens
    pairs = layers * heads * tokens * (context + 1) / 2  # causal
    scores = 2 * pairs * (width // heads)  # of one product of a head with all keys
    return {"exact_gemm": forward, "multiply": 2 * forward, "attention": 2 * scores, "attention_backward": 5 * scores}


def resnet20(images):
    """Operations of the 3x3 convolutions of a step."""
    sizes = [(3, 16, 32, 1), (16, 16, 32, 6), (16, 32, 16, 1), (32, 32, 16, 5), (32, 64, 8, 1), (64, 64, 8, 5)]
    forward = sum(2 * 9 * a * b * side * side * count for a, b, side, count in sizes) * images
    return {"exact_conv": forward, "conv_backward_data": forward, "conv_backward_weights": forward}


OPERATIONS = {
    "step.gpt768_b32.qat_int8": transformer(12, 768, 3072, 12, 32 * 256, 256),
    "step.resnet20_b512.qat_int8": resnet20(512),
}


def seconds(kernel, operations):
    by_memory = (kernel["read_bytes"] + kernel["written_bytes"]) / MEMORY
    by_products = operations.get(kernel["kernel"], 0) / SPEED.get(kernel["kernel"], 1)
    calls = kernel["launches"] + kernel["products"] + kernel["copies"]
    return max(by_memory, by_products) + calls * LAUNCH


def main():
    for line in (line for name in sys.argv[1:] for line in Path(name).read_text().splitlines()):
        row = json.loads(line)
        if "kernels" not in row:
            continue
        network = row["row"].split("/")[0]
        if network not in OPERATIONS:
            sys.exit(f"{network}: the operations of its products are unknown, only those of {', '.join(OPERATIONS)} are known")
        times = {k["kernel"]: 1e3 * seconds(k, OPERATIONS[network]) for k in row["kernels"]}
        print(f"{row['row']}: {sum(times.values()):.1f} ms")
        for name, own in sorted(times.items(), key=lambda entry: -entry[1])[:12]:
            print(f"  {name:28} {own:6.2f} ms")


if __name__ == "__main__":
    main()
