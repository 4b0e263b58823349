"""Methods of Model that are made of others: qat, fit with a progress bar, blocks of `with`, and what notebooks show."""
import contextlib
import functools

from . import _fakequant
from ._fakequant import Model
from .progress import Progress
from .verify import verify
from .tables import Page, Plan, Sensitivity, model_html

def _is_another(ranks):
    """Whether another process of a run prints."""
    return ranks is not None and ranks.rank > 0


_fit, _sensitivity, _auto_quantize = Model.fit, Model.sensitivity, Model.auto_quantize


@functools.wraps(_fit, updated=())
def fit(self, data, *args, progress=None, on_step=None, **options):
    if _is_another(options.get("ranks")):
        progress = False
    bar = Progress() if progress is None or progress is True else progress or None
    listeners = [listener for listener in (bar if bar and getattr(bar, "shown", True) else None, on_step) if listener]

    def step(report):
        for listener in listeners:
            listener(report)

    if not listeners:
        return _fit(self, data, *args, **options)
    if not isinstance(bar, Progress):
        return _fit(self, data, *args, on_step=step, **options)
    with bar:
        return _fit(self, data, *args, on_step=step, **options)


def qat(self, data, preset=None, *, epochs=None, batch_size=64, learning_rate=None, optimizer="adamw", weight_decay=0.01,
        schedule="one_cycle", samples=512, edge_bits=None, weight_method=None, keep_batch_norm=False, follow_itself=None,
        target=None, scale=None, validation=None, seed=0, out="", quiet=False, lora=0, lora_alpha=0.0,
        ranks=None, **options):
    """Quantization-aware training as `fakequant qat --preset` does it, with the same bits: a float model has its batch norms
    folded, and is quantized and calibrated on `samples` samples; then what QatDefaults chooses for the format (edges in 8 bits,
    learned ranges, rates, whether the model follows its own float outputs), told in two lines unless `quiet`. With a rank `lora`
    low-rank adapters are trained in place of all parameters. Other options are those of `fit`; `ranks` share out calibration and,
    with `micro_batch`, the training. Returns a dict for each epoch.
    """
    chosen = self.prepare_qat(data, preset, edge_bits=edge_bits, weight_method=weight_method, target=target, scale=scale,
                              keep_batch_norm=keep_batch_norm, samples=samples, batch_size=batch_size, follow_itself=follow_itself,
                              learning_rate=learning_rate, lora=lora, lora_alpha=lora_alpha, ranks=ranks,
                              on_choice=None if quiet or _is_another(ranks) else print)
    return self.fit(data, epochs=epochs, batch_size=batch_size, optimizer=optimizer, weight_decay=weight_decay,
                    schedule=schedule, validation=validation, seed=seed, out=out, drop_last=True, lora=lora, lora_alpha=lora_alpha,
                    ranks=ranks, **{**chosen, **options})


def calibration_page(self, data, title="calibration", samples=512):
    """What each quantizer sees of data, as a page of histograms: its range, and what each method would choose."""
    return Page(self.calibration_html(data, title=title, samples=samples))


@functools.wraps(_sensitivity, updated=())
def sensitivity(self, *args, **options):
    return Sensitivity(_sensitivity(self, *args, **options))


@functools.wraps(_auto_quantize, updated=())
def auto_quantize(self, *args, **options):
    return Plan(_auto_quantize(self, *args, **options))


@contextlib.contextmanager
def quantizers_off(self, pattern="*"):
    """`with model.quantizers_off(): ..`: the quantizers of a pattern are off in the block, and then as they were."""
    on = [row["name"] for row in self.quantizers() if row["enabled"]]
    self.disable_quantizer(pattern)
    try:
        yield self
    finally:
        for name in on:
            self.enable_quantizer(name)


@contextlib.contextmanager
def calibrating(self, method="", percentile=None):
    """`with model.calibrating() as see: ..`: `see(x)` shows quantizers a batch, in a loop of one's own, and gives how many samples it
    has; ranges are chosen at the end of the block, and stay as they were where that ends by an exception."""
    seen = 0

    def see(x):
        nonlocal seen
        seen += self.collect_ranges(x, method, keep_collected=seen > 0, batch_size=len(x))["samples"]
        return seen
    yield see
    if not seen:
        raise _fakequant.ArgumentError("[calibrating] nothing was seen: call it with batches")
    self.choose_ranges(method, percentile)


Model.quantizers_off, Model.calibrating, Model.verify = quantizers_off, calibrating, verify
Model.fit, Model.qat, Model.calibration_page, Model._repr_html_ = fit, qat, calibration_page, model_html
Model.sensitivity, Model.auto_quantize = sensitivity, auto_quantize
