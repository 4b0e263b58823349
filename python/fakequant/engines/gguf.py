"""Runs a GGUF file that fakequant exported in llama.cpp and compares it with the evaluation of fakequant.

PREDICTIONS are HDF5 files with x (token ids) and logits, as `fakequant verify` writes them. Each window is a separate text.
With --layers each linear layer is also multiplied alone by ggml, with the codes of the file and its inputs in fakequant, in
repacked and plain buffers. Exit status: 0 within the bounds, 1 outside of the bounds, 2 a file that cannot be used, 3 a
requirement is not installed."""
from .comparison import Unusable, arguments, ended, finish, required_packages, version_warning

with required_packages(__name__, "numpy h5py"):
    import h5py
    import numpy as np

    from .counts import Counts
    from .llama import BUFFERS, Llama
    from .llama_layers import compare_products, compare_stages, explain

MEASURED = "0.25.3"  # version of ggml in llama-cpp-python 0.3.36
BITS = 1e-3  # allowed difference in bits per token
LOGITS = 0.03  # share of the largest logit
# Shares of all predictions, without codes and with codes. Without codes, GELU is a table of f16 in gpt2 of llama.cpp and not in the
# checkpoint. With codes, inputs near a tie get other codes if floats between layers differ in their last bits.
ANSWERS, CODED_ANSWERS = 2e-3, 1e-3
DEFAULT_WINDOWS = 32  # number of windows that also run with keys and values in f16


class Text:
    """Cross entropy of the windows in bits per token, in fakequant and in the engine."""

    def __init__(self):
        self.tokens, self.bits = 0, np.zeros(2)

    def add(self, x, own, engine):
        """Adds windows: token ids x [N, T], and the logits [N, classes, T] of fakequant and the engine."""
        for side, logits in enumerate((own, engine)):
            z = logits[:, :, :-1].astype(np.float64)
            z -= z.max(axis=1, keepdims=True)
            log_probability = np.take_along_axis(z, x[:, None, 1:], axis=1)[:, 0] - np.log(np.exp(z).sum(axis=1))
            self.bits[side] -= log_probability.sum() / np.log(2)
        self.tokens += x[:, 1:].size

    def each(self):
        return [float(bits) for bits in self.bits / max(self.tokens, 1)]


def windows(path):
    with h5py.File(path) as file:
        x, logits = file["x"][...], file["logits"][...]
    if x.ndim != 2 or x.dtype.kind not in "iu" or logits.ndim != 3 or logits.shape[2] != x.shape[1]:
        raise Unusable(f"samples are {list(x.shape)} {x.dtype}, logits {list(logits.shape)}: llama.cpp runs networks that "
                       "predict the next token of a text, for example --model gpt")
    return x, logits


def compare_f16_cache(args, path):
    """Returns the counts and bits per token of some windows with keys and values in f16, the default of llama.cpp."""
    x, logits = windows(path)
    counts, text, engine = Counts(), Text(), Llama(args.home, args.model, x.shape[1], args.threads or 1)
    for row in range(min(len(x), DEFAULT_WINDOWS)):
        one = slice(row, row + 1)
        made = engine.logits(x[row], logits.shape[1]).T[None]
        counts.add_logits(logits[one], made)
        text.add(x[one], logits[one], made)
    return counts, text.each()


def run(args):
    samples, counts, text, engine = 0, Counts(), Text(), None
    for path in args.predictions:
        x, logits = windows(path)
        engine = engine or Llama(args.home, args.model, x.shape[1], args.threads or 1, cache="f32")
        for row in range(len(x)):
            one = slice(row, row + 1)
            made = engine.logits(x[row], logits.shape[1]).T[None]
            counts.add_logits(logits[one], made)
            text.add(x[one], logits[one], made)
        samples += len(x)
    products = compare_products(engine, args.layers) if args.layers else []
    stages = compare_stages(engine, args.layers) if args.layers else []
    if args.flip_tolerance is None:
        args.flip_tolerance = CODED_ANSWERS if products else ANSWERS
    own, made = text.each()
    close = abs(made - own) <= BITS
    exact = all(product["bits_different"] == 0 for product in products)
    lines = [f"bits per token: {own:.5f} in fakequant, {made:.5f} in the engine, over {text.tokens:,} tokens; bound {BITS:g}"]
    lines += [f"{kind} buffers: {sum(p['bits_different'] == 0 for p in of)} of {len(of)} linear layers have the same bits, of "
              f"{sum(p['values'] for p in of):,} values"
              for kind in BUFFERS if (of := [p for p in products if p["buffer"] == kind])]
    default, default_bits = compare_f16_cache(args, args.predictions[0])
    lines.append(f"keys and values are f32 in both (-ctk f32 -ctv f32); with f16, the default of llama.cpp, {default.flips:,} of "
                 f"{default.answers:,} predictions differ, and logits by at most {default.max_abs_diff:.3g}")
    reasons, ways, stage_lines = explain(engine, products, stages)
    if not close:
        reasons = [f"a token has {own:.5f} bits in fakequant and {made:.5f} in the engine", *reasons]
    return finish(args, f"llama.cpp (ggml {engine.version})", [counts], samples, same=close and exact, lines=lines + stage_lines,
                  warnings=version_warning("ggml", engine.version, MEASURED), reasons=reasons, ways=ways,
                  bits_a_token={"own": own, "engine": made, "tokens": text.tokens, "bound": BITS}, layers=products,
                  stages=stages, f16_cache={"answers": default.answers, "flips": default.flips, "bits_a_token": default_bits,
                                            "max_abs_diff": default.max_abs_diff})


if __name__ == "__main__":
    given = arguments(__doc__, LOGITS, None)
    raise SystemExit(ended(lambda: run(given), given.model))
