"""sass_test.py OBJECTS VENV [OUT]: the machine code of hot kernels in the build's own objects (a file lists them).

Groups of eight elements are read and written by 16-byte accesses, no kernel uses local memory, and kernels
without f64 types have no f64 instructions. Kernels of products use tensor cores and few enough registers for
their blocks. Products of blocks of codes have the multiply-adds of their formula and no others. With OUT, a JSON
file with the instructions of each kernel is written.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

# source: {part of a kernel's name: (16-byte loads, 16-byte stores) at least}
HOT = {
    "update/updates.cu": {
        "SgdUpdate<float>": (6, 4),
        "AdamUpdate<float>": (8, 6),
        "MoveTowards<float>": (4, 2),
        "Swap>": (4, 4),
    },
    "kernels/cuda/fake_quant.cu": {
        "QuantizeRanges<float, IntegerFormula, OneRange, 4>": (1, 1),
        "QuantizeRanges<float, IntegerFormula, OneRange, 8>": (2, 2),
        "QuantizeRanges<float, IntegerFormula, WalkedRanges": (2, 1),
        "QuantizeRanges<float, E4m3Formula, OneRange, 4>": (1, 1),
        "QuantizeRanges<bfloat16, IntegerFormula, OneRange, 8>": (1, 1),
        "QuantizeColumns<float, IntegerFormula, 4>": (5, 3),
        "QuantizeColumns<bfloat16, IntegerFormula, 8>": (9, 3),
    },
    "kernels/cuda/fake_quant_blocks.cu": {
        "DynamicBlocks<float, Nvfp4Formula, 2>": (2, 2),
        "DynamicBlocks<bfloat16, Nvfp4Formula, 2>": (1, 1),
        "DynamicBlocks<float16, GridFormula, 4>": (1, 1),
    },
    "codes/codes.cu": {
        "Quantize<AxisBlocks>": (2, 0),
        "Decode<float, AxisBlocks>": (1, 2),
        "Decode<float, BlockMap>": (1, 2),
        "ApplyMask<unsigned int>": (2, 2),
    },
    "codes/code_columns.cu": {"CodesOfColumns": (4, 0)},
    "codes/accumulators.cu": {"WriteCodes<ChannelSums>": (2, 0), "WriteValues<ChannelSums>": (2, 2)},
    "engine/columns.cu": {
        "TakeWindows<Word16, 1>": (1, 1),
        "TakeWindows<unsigned char, 16>": (0, 1),
        "AddWindows<Pack<float>": (1, 1),
        "AddWindows<Pack<int>": (1, 1),
    },
    # Copies to shared memory are loads. Two outputs of four threads fill a sector, so stores have 8 bytes.
    "engine/conv_products.cu": {"ConvProduct<signed char": (12, 0), "ConvProduct<unsigned char": (12, 0), "ConvProduct<bfloat16": (12, 0)},
    "engine/conv_weights.cu": {"ConvWeightProduct<": (18, 0)},
    "engine/ggml_rows.cu": {"TensorCoreProduct<GgmlChain>": (8, 0), "GgmlLanes": (4, 0)},
    "engine/xnnpack_rows.cu": {"TensorCoreProduct<XnnpackChain<true>": (8, 0), "TensorCoreProduct<XnnpackChain<false>": (6, 0), "ZeroTerms": (1, 0)},
    "ranges/ranges.cu": {"RowMagnitudes": (2, 0), "LargestMagnitude<8>, PutChannel": (2, 0), "reduce::DeviceReduceKernel": (4, 0)},
    "ranges/count.cu": {"CountBins<true>": (2, 0)},
    "codes/float_operators.cu": {"ActivateSums<Gelu, bfloat16, TensorCodes>": (2, 1), "AddSums": (4, 2)},
    "norm/layer_norm.cu": {
        "Forward<float, RmsNorm<float>, PlainRows<float>, PlainFloats": (4, 2),
        "Forward<float, LayerNorm<float>, SummedRows, TensorCodes>": (6, 2),
    },
    # dy, x, gamma and the sum of other gradients are read, dx and partial sums of columns are written.
    "norm/norm_gradients.cu": {"RowGradients<LayerRule<float>, true>": (8, 10), "RowGradients<RmsRule<float>, true>": (8, 6)},
    "engine/bias.cu": {"GradientTerms<float, Gelu, bfloat16, float> >, PutPart": (4, 5), "GradientTerms<float, Gelu, bfloat16, bfloat16> >, PutPart": (3, 5), "WithoutSums<GradientTerms<float, Silu, bfloat16, bfloat16>": (3, 1)},
    "codes/code_products.cu": {"ScaleWeightGradient": (2, 2)},
    "norm/losses.cu": {"RowStatistics<float>": (4, 0), "EntropyBackward<float>": (2, 2)},
    "attention/forward.cu": {"AttentionForward<64,": (6, 0), "AttentionForward<128,": (6, 0), "AttentionForward<256,": (6, 0)},
    "attention/gradients.cu": {"AttentionGradients": (4, 0), "OutputRowSums": (4, 0)},
    "elementwise/moves.cu": {"CopyWords<Bytes16>": (1, 1)},
    "elementwise/rows.cu": {"GatherRows<float>": (2, 2), "SumRows<float>": (2, 2)},
}
# Kernels of products: instructions at least, and registers at most. A thread of AttentionGradients of keys holds 128 sums.
PRODUCTS = {
    "AttentionForward<64,": ("HMMA", 96, 128),
    "AttentionForward": ("HMMA", 60, 168),
    "AttentionGradients": ("HMMA", 20, 255),
    "ConvProduct<signed char": ("IMMA.16832.S8.S8", 16, 80),
    "ConvProduct<unsigned char": ("IMMA.16832.U8.S8", 16, 80),
    "ConvProduct<bfloat16": ("HMMA.16816.F32.BF16", 16, 80),
    "ConvWeightProduct<": ("HMMA.16816.F32.BF16", 32, 80),
}
# Accesses to local memory at most: of blocks that do not follow each other, which no preset but fp8_2d_blockwise has.
LOCAL_MEMORY = {"Quantize<BlockMap>": 16, "QuantizeMany<BlockMap>": 24}
# Products of blocks: the instruction that multiplies codes, and the number of sums of a thread that it gives. Each sum
# is followed by one conversion and one multiply-add. 128 registers let two blocks run on a processor.
BLOCK_PRODUCTS = {"TensorCoreProduct<": ("IMMA.16832", 4), "GgmlLanes": ("IDP.4A", 1)}
BLOCK_REGISTERS = 128
# Sums and grids that are defined in doubles, whose bits are the CPU's; sums of a row, which become one double.
DOUBLES = ["double", "BiasCodes", "ProductScale", "TwoSums", "SumTerms", "GridFormula", "E3m0Formula", "Rms", "RowStatistics"]
# Losses and layer norm: weights of classes and statistics of a row are doubles.
DOUBLES += ["EntropyBackward", "DistanceBackward", "RowSum", "<Forward<", "RowGradients"]


def dumped(tool, what, obj):
    run = subprocess.run(
        [tool, what, obj], capture_output=True, text=True, env={**os.environ, "PATH": f"{Path(tool).parent}:{os.environ['PATH']}"}
    )
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr  # the use of registers is printed to stderr


def readable_names(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"fq::|cuda::|detail::|loops::|\(anonymous namespace\)::", "", name) for name in text.splitlines()]


def registers(text):
    """Registers of each kernel, by its readable name: the most of all architectures."""
    found = {}
    for name, count in re.findall(r"Function (\S+):\s+REG:(\d+)", text):
        found[name] = max(found.get(name, 0), int(count))
    return dict(zip(readable_names(found), found.values(), strict=True))


def kernels(text):
    """Instructions of each kernel, by its readable name, of the first architecture."""
    found, architecture, name = {}, None, None
    for line in text.splitlines():
        if found_here := re.match(r"\s*code for (sm_\w+)", line):
            architecture = architecture or found_here[1]
            skipped = found_here[1] != architecture
        elif found_here := re.match(r"\s*Function : (\S+)", line):
            name = None if skipped else found_here[1]
            if name:
                found[name] = []
        elif name and (found_here := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", line)):
            found[name].append(found_here[1])
    return {name: [i for i in own if i != "NOP"] for name, own in zip(readable_names(found), found.values(), strict=True)}


def wide(instructions, operation):
    return sum(i.startswith(operation) and ".128" in i for i in instructions)


def find_product_faults(found, used):
    for part, (operation, count, most) in PRODUCTS.items():
        for name in (name for name in found if part in name):
            own = sum(i.startswith(operation) for i in found[name])
            if own < count or used[name] > most:
                yield f"{name}: {own} {operation} and {used[name]} registers, not {count} and at most {most}"


def find_faults(source, found):
    for part, (loads, stores) in HOT[source].items():
        named = {name: own for name, own in found.items() if part in name}
        if not named:
            yield f"{source}: there is no kernel {part}"
        for name, own in named.items():
            if wide(own, "LDG") < loads or wide(own, "STG") < stores:
                yield f"{name}: {wide(own, 'LDG')} loads and {wide(own, 'STG')} stores of 16 bytes, not {loads} and {stores}"
    for name, own in found.items():
        local = sum(i.startswith(("LDL", "STL")) for i in own)
        if local > max([most for part, most in LOCAL_MEMORY.items() if part in name], default=0):
            yield f"{name}: {local} accesses to local memory"
        doubles = sum(bool(re.match(r"D(ADD|MUL|FMA|SETP)|F2F\.F64", i)) for i in own)
        if doubles and not any(part in name for part in DOUBLES):
            yield f"{name}: {doubles} instructions on doubles"


def find_block_faults(found, used):
    for name, own in found.items():
        for operation, sums in [product for part, product in BLOCK_PRODUCTS.items() if part in name]:
            products = sums * sum(i.startswith(operation) for i in own)
            for each in ("I2FP.F32.S32", "FFMA"):
                count = sum(i.startswith(each) for i in own)
                if products == 0 or count != products:
                    yield f"{name}: {count} {each} for {products} sums of {operation}"
            if used[name] > BLOCK_REGISTERS:
                yield f"{name}: {used[name]} registers, not {BLOCK_REGISTERS}"


def main():
    objects, venv = Path(sys.argv[1]).read_text().split(), Path(sys.argv[2])
    tools = [*venv.glob("lib/python3*/site-packages/nvidia/*/bin/cuobjdump")]
    tool = str(tools[0]) if tools else shutil.which("cuobjdump")
    if tool is None or shutil.which("c++filt") is None:
        print("SKIPPED: cuobjdump or c++filt is missing")
        sys.exit(77)
    faults, table = [], {}
    for source in HOT:
        (obj,) = [path for path in objects if path.endswith(f"/{source}.o")]
        table[source] = kernels(dumped(tool, "-sass", obj))
        faults += find_faults(source, table[source])
        used = registers(dumped(tool, "-res-usage", obj))
        faults += [*find_product_faults(table[source], used), *find_block_faults(table[source], used)]
    if len(sys.argv) > 3:
        counted = {source: {name: Counter(own) for name, own in found.items()} for source, found in table.items()}
        Path(sys.argv[3]).write_text(json.dumps(counted, indent=1))
    print(f"{sum(map(len, table.values()))} kernels, {len(faults)} faults", *faults, sep="\n")
    sys.exit(bool(faults))


main()
