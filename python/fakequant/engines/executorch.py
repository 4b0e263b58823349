"""Runs an ExecuTorch program that fakequant exported, in XNNPACK, and compares it with the evaluation of fakequant.

PREDICTIONS are HDF5 files with x and logits, as `fakequant verify` writes them. With --layers each linear layer of codes
also runs alone, on its inputs in fakequant. Exit status: 0 within the bounds, 1 outside of the bounds,
2 a file that cannot be used, 3 a Python package is missing."""
from .comparison import Unusable, arguments, ended, finish, required_packages, version_warning

with required_packages(__name__, "executorch torchao torch h5py"):
    import h5py
    import numpy as np
    import torch

    from .counts import Counts
    from .executorch_program import VERSIONS, Program, SideBySide, dynamic_linear, lowered
    from .processor import has_avx512_vnni

MEASURED = "1.5.1"
LOGITS, ANSWERS = 1e-3, 0.0  # share of the largest logit; share of all predictions
# Share of the largest logit if the engine computes operators between layers of codes in floats. Their last bits differ, and inputs
# near a tie get other codes (measured: 0.0028, for a gpt in 8da8w).
BETWEEN_LOGITS = 4e-3
# Shares of the largest value of a layer and of the largest logit, without AVX-512 VNNI: kernels of 4-bit weights then add up in another
# order.
OTHER_LAYERS, OTHER_LOGITS = 1e-6, 0.01
OTHER = "this processor has no AVX-512 VNNI: kernels of 4-bit weights add up in another order than XNNPACK's definition"
BETWEEN = "LayerNorm, GELU, softmax and sums of floats between the layers, which the engine computes in its own way"
LAST = ("the engine computes in floats in its own way: products of inputs without a range, norms, functions, and sums of products of "
        "codes above 2^24, below which all orders give the same sum")


def compare(program, files, counts):
    for samples in zip(*files, strict=True):
        x = samples[0]["x"]
        for row in range(len(x)):
            logits = program(torch.from_numpy(x[row:row + 1]))[0]
            for side, file in zip(counts, samples):
                expected = file["logits"][row:row + 1]
                if logits.shape != expected.shape:
                    raise Unusable(f"its outputs are {list(logits.shape)}, and the outputs of the checkpoint {list(expected.shape)}")
                side.add_logits(expected, np.ascontiguousarray(logits))


def make_layer(group):
    """Returns the layer, its input and its output in the checkpoint, as matrices of rows."""
    codes, scale = torch.from_numpy(group["codes"][...]), torch.from_numpy(group["scale"][...])
    channels, columns = codes.shape
    scale = scale.reshape(channels, scale.numel() // channels)
    bias = torch.from_numpy(group["bias"][...]) if "bias" in group else None
    bits = 8 if int(codes.to(torch.int32).abs().max()) > 8 else 4
    layer = dynamic_linear(codes, scale, bias, bits)
    layer.bits = bits
    return (layer, torch.from_numpy(group["x"][...].reshape(-1, columns)),
            group["y"][...].reshape(-1, channels))


def compare_layers(path):
    """Runs each layer of codes on its input in the checkpoint, all layers in one program. Returns a dict for each layer."""
    with h5py.File(path) as file:
        coded = [name for name in sorted(file["layers"]) if "codes" in file["layers"][name]]
        layers, inputs, own = zip(*[make_layer(file["layers"][name]) for name in coded]) if coded else ((), (), ())
    if not coded:
        return []
    program, _ = lowered(SideBySide(layers), *inputs)
    return [{"name": name.split(" ", 1)[1], "bits": layer.bits, "values": ours.size,
             "bits_different": int((ours.view(np.int32) != np.ascontiguousarray(made).view(np.int32)).sum()),
             "largest": float(np.abs(ours.astype(np.float64) - made).max() / max(np.abs(ours).max(), 1e-30))}
            for name, layer, ours, made in zip(coded, layers, own, Program(program)(*inputs))]


def has_float_operators(path):
    """Returns whether a linear layer reads another value than the output of the layer before, or the ReLU of that output."""
    with h5py.File(path) as file:
        layers = [file["layers"][name] for name in sorted(file["layers"])]
        for before, layer in zip(layers, layers[1:]):
            x, y = layer["x"][...].ravel(), before["y"][...].ravel()
            if x.shape != y.shape or ((x != y) & (x != np.maximum(y, 0))).any():
                return True
    return False


def run(args):
    files = [[h5py.File(path) for path in side] for side in (args.predictions, args.folded) if side]
    with open(args.model, "rb") as file:
        program = Program(file.read())
    counts = [Counts() for _ in files]
    compare(program, files, counts)
    layers = compare_layers(args.layers) if args.layers else []
    exact = has_avx512_vnni() or all(layer["bits"] > 4 for layer in layers)
    if args.tolerance is None:
        between = layers and has_float_operators(args.layers)
        args.tolerance = OTHER_LOGITS if not exact else BETWEEN_LOGITS if between else LOGITS
    wrong = next((layer for layer in layers if (layer["bits_different"] > 0 if exact or layer["bits"] > 4
                                                else layer["largest"] > OTHER_LAYERS)), None)
    lines, reasons, ways = [], [], []
    if layers:
        lines.append(f"{sum(layer['bits_different'] == 0 for layer in layers)} of {len(layers)} linear layers have the same bits, of "
                     f"{sum(layer['values'] for layer in layers):,} values, each on its input in fakequant")
    if not exact:
        lines.append(f"{OTHER}; layers may differ by {OTHER_LAYERS:g} of the largest value")
        reasons.append(OTHER)
        ways.append("run it on a processor with AVX-512 VNNI, or train with --preset 8da8w, which gives the same bits on both")
    if wrong:
        reasons.append(f"the product of '{wrong['name']}' has {wrong['bits_different']:,} of {wrong['values']:,} values with other "
                       f"bits, by {wrong['largest']:.2g} of the largest: the sums have another order")
        ways.append("run it on x86-64 with AVX-512 VNNI, which was measured: other processors have kernels with another order of sums")
    if counts[-1].logit_bits_different and all(layer["bits_different"] == 0 for layer in layers):
        cause = BETWEEN if layers else LAST
        lines.append(f"{counts[-1].logit_bits_different:,} logits have other bits: {cause}")
        reasons.append(cause)
    samples = sum(len(file["x"]) for file in files[0])
    return finish(args, f"executorch {VERSIONS['executorch']}", counts, samples, same=wrong is None, lines=lines,
                  warnings=version_warning("executorch", VERSIONS["executorch"], MEASURED), reasons=reasons, ways=ways,
                  layers=layers)


if __name__ == "__main__":
    given = arguments(__doc__, None, ANSWERS)
    raise SystemExit(ended(lambda: run(given), given.model))
