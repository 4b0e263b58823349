"""Runs a GGUF file that fakequant exported in llama.cpp and compares it with fakequant's own evaluation.

PREDICTIONS are HDF5 files with x, token ids, and logits, as `fakequant verify` writes them. Each window is a text of its
own. With --layers each linear layer is also multiplied alone by ggml, on the file's codes and the inputs that it had in
fakequant, in repacked and plain buffers. Exit status: 0 within the bounds, 1 not, 2 a file that cannot be used, 3
something is not installed."""
from .comparison import Unusable, arguments, ended, finish, required_packages, version_warning

with required_packages(__name__, "numpy h5py"):
    import h5py
    import numpy as np

    from .counts import Counts
    from .llama import BUFFERS, Llama
    from .llama_layers import compare_products, compare_stages, explain

MEASURED = "0.25.3"  # of ggml, as llama-cpp-python 0.3.36 has it
BITS = 1e-3  # allowed difference of bits a token
LOGITS = 0.03  # of the largest logit
# Shares of all answers, without codes and with codes. Without codes, GELU is a table of f16 in gpt2 of llama.cpp and not in the
# checkpoint. With codes, inputs near a tie become other codes if floats between layers differ in their last bits.
ANSWERS, CODED_ANSWERS = 2e-3, 1e-3
DEFAULT_WINDOWS = 32  # that are also run with keys and values in f16


class Text:
    """Cross entropy of the windows in bits a token, for both sides."""

    def __init__(self):
        self.tokens, self.bits = 0, np.zeros(2)

    def add(self, x, own, engine):
        """x [N, T] ids, both sides [N, classes, T]."""
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
        raise Unusable(f"samples are {list(x.shape)} {x.dtype}, answers {list(logits.shape)}: llama.cpp runs networks that "
                       "predict the next token of a text, for example --model gpt")
    return x, logits


def compare_f16_cache(args, path):
    """Returns counts and bits a token of some windows with keys and values in f16, llama.cpp's default."""
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
    lines = [f"bits a token: {own:.5f} here, {made:.5f} in the engine, over {text.tokens:,} tokens; bound {BITS:g}"]
    lines += [f"{kind} buffers: {sum(p['bits_different'] == 0 for p in of)} of {len(of)} linear layers with every bit of "
              f"{sum(p['values'] for p in of):,} values"
              for kind in BUFFERS if (of := [p for p in products if p["buffer"] == kind])]
    default, default_bits = compare_f16_cache(args, args.predictions[0])
    lines.append(f"keys and values are f32 there as they are here (-ctk f32 -ctv f32); in f16, its default, {default.flips:,} of "
                 f"{default.answers:,} answers are others, logits by {default.max_abs_diff:.3g} at most")
    reasons, ways, stage_lines = explain(engine, products, stages)
    if not close:
        reasons = [f"a token costs {own:.5f} bits here and {made:.5f} in the engine", *reasons]
    return finish(args, f"llama.cpp (ggml {engine.version})", [counts], samples, same=close and exact, lines=lines + stage_lines,
                  warnings=version_warning("ggml", engine.version, MEASURED), reasons=reasons, ways=ways,
                  bits_a_token={"own": own, "engine": made, "tokens": text.tokens, "bound": BITS}, layers=products,
                  stages=stages, f16_cache={"answers": default.answers, "flips": default.flips, "bits_a_token": default_bits,
                                            "max_abs_diff": default.max_abs_diff})


if __name__ == "__main__":
    given = arguments(__doc__, LOGITS, None)
    raise SystemExit(ended(lambda: run(given), given.model))
