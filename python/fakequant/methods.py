"""Methods of the classes Model and Dataset that are written in Python."""
import contextlib
import functools
import operator

from . import _fakequant
from ._fakequant import Dataset, Model, Subset
from .notebook import Page, Plan, Sensitivity, model_html
from .progress import Progress
from .verify import verify

_SAMPLES_READ = 64  # samples that an iterator reads at once
_fit, _sensitivity, _auto_quantize = Model.fit, Model.sensitivity, Model.auto_quantize


def _is_silent(ranks):
    """Returns whether another rank prints for this one."""
    return ranks is not None and ranks.rank > 0


@functools.wraps(_fit, updated=())
def fit(self, data, *args, progress=None, on_step=None, **options):
    if _is_silent(options.get("ranks")):
        progress = False
    bar = Progress() if progress is None or progress is True else progress or None
    listeners = [listener for listener in (bar if bar and getattr(bar, "shown", True) else None, on_step) if listener]

    def step(report):
        for listener in listeners:
            listener(report)

    if not listeners:
        return _fit(self, data, *args, **options)
    with bar if isinstance(bar, Progress) else contextlib.nullcontext():
        return _fit(self, data, *args, on_step=step, **options)


def qat(self, data, preset=None, *, epochs=None, batch_size=64, learning_rate=None, optimizer="adamw", weight_decay=0.01,
        schedule="one_cycle", samples=512, edge_bits=None, weight_method=None, keep_batch_norm=False, follow_itself=None,
        target=None, scale=None, validation=None, seed=0, out="", quiet=False, lora=0, lora_alpha=0.0,
        ranks=None, **options):
    """Trains with quantization like `fakequant qat --preset`, with the same bits. Returns a dict for each epoch.

    A float model is quantized: its batch norms are folded, and `samples` samples calibrate it. The format sets the defaults: 8 bits in the
    edge layers, learned ranges, learning rates, and distillation from the float model (`follow_itself`). Two lines report them unless
    `quiet`. `lora` is the rank of low-rank adapters, which are trained instead of all parameters. `ranks` share the calibration and, with
    `micro_batch`, the training. `fit` gets the other options.
    """
    chosen = self.prepare_qat(data, preset, edge_bits=edge_bits, weight_method=weight_method, target=target, scale=scale,
                              keep_batch_norm=keep_batch_norm, samples=samples, batch_size=batch_size, follow_itself=follow_itself,
                              learning_rate=learning_rate, lora=lora, lora_alpha=lora_alpha, ranks=ranks,
                              choice_callback=None if quiet or _is_silent(ranks) else print)
    return self.fit(data, epochs=epochs, batch_size=batch_size, optimizer=optimizer, weight_decay=weight_decay,
                    schedule=schedule, validation=validation, seed=seed, out=out, drop_last=True, lora=lora, lora_alpha=lora_alpha,
                    ranks=ranks, **{**chosen, **options})


def calibration_page(self, data, title="calibration", samples=512):
    """Returns a page with the histogram of each quantizer on `samples` samples, its range, and the range of each calibration method."""
    return Page(self.calibration_html(data, title=title, samples=samples))


@functools.wraps(_sensitivity, updated=())
def sensitivity(self, *args, **options):
    return Sensitivity(_sensitivity(self, *args, **options))


@functools.wraps(_auto_quantize, updated=())
def auto_quantize(self, *args, **options):
    return Plan(_auto_quantize(self, *args, **options))


@contextlib.contextmanager
def quantizers_off(self, pattern="*"):
    """Switches the quantizers of a pattern off in a `with` block: `with model.quantizers_off(): ..`."""
    on = [row["name"] for row in self.quantizers() if row["enabled"]]
    self.disable_quantizer(pattern)
    try:
        yield self
    finally:
        for name in on:
            self.enable_quantizer(name)


@contextlib.contextmanager
def calibrating(self, method="", percentile=None):
    """Calibrates with batches of your own loop: `with model.calibrating() as see: see(x)`.

    `see(x)` observes a batch and returns the number of samples so far. The end of the block sets the ranges. An exception in the block
    leaves them unchanged. Raises ArgumentError if there was no batch.
    """
    seen = 0

    def see(x):
        nonlocal seen
        seen += self.collect_ranges(x, method, keep_collected=seen > 0, batch_size=len(x))["samples"]
        return seen
    yield see
    if not seen:
        raise _fakequant.ArgumentError("[calibrating] no batches: call see(x) with batches in the block")
    self.choose_ranges(method, percentile)


def _sample(self, index):
    """Returns (x, y) of a sample for a number, y None without labels, and a data set for a slice."""
    if isinstance(index, slice):
        return Subset(self, range(*index.indices(len(self))))
    index = operator.index(index)
    if not -len(self) <= index < len(self):
        raise IndexError(f"[Dataset] {index} is not a sample: there are {len(self)}")
    x, y = self.read([index % len(self)])
    return x[0], None if y is None else y[0]


def _iterate(self):
    """Yields (x, y) of each sample."""
    for begin in range(0, len(self), _SAMPLES_READ):
        x, y = self.read(range(begin, min(begin + _SAMPLES_READ, len(self))))
        for i in range(len(x)):
            yield x[i], None if y is None else y[i]


def _describe(self):
    labels = f", {self.classes} classes" if self.classes else ""
    return f"Dataset of {len(self)} samples {self.sample_shape}{labels}"


Dataset.__getitem__, Dataset.__iter__, Dataset.__repr__ = _sample, _iterate, _describe
Model.quantizers_off, Model.calibrating, Model.verify = quantizers_off, calibrating, verify
Model.fit, Model.qat, Model.calibration_page, Model._repr_html_ = fit, qat, calibration_page, model_html
Model.sensitivity, Model.auto_quantize = sensitivity, auto_quantize
