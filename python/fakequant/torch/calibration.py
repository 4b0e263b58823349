"""calibrate: ranges from the batches of a loader."""
import torch

from .. import _fakequant as _fq
from .networks import arguments_of, parts_of


def calibrate(model, data, samples=512, method=""):
    """Chooses the ranges of all quantizers from `samples` samples of `data`: batches of a loader, tensors, tuples of which the
    first is the input, or dicts of arguments; several inputs are a tuple in place of one, or a dict. `method` is max, entropy, mse, ..; that of the config by default. Gives the model itself.
    """
    parts = parts_of(model)
    if not parts:
        raise _fq.ArgumentError("[calibrate] the model has nothing quantized: give what fakequant.torch.quantize made")
    seen, modes, kept = 0, {module: module.training for module in model.modules()}, []
    try:
        model.eval()
        kept = [part.watching() for part in parts]
        with torch.no_grad():
            for batch in data:
                seen += _run(model, batch, samples - seen)
                if seen >= samples:
                    break
    finally:
        for part in parts:
            part.stop_watching()
        for module, mode in modes.items():
            module.training = mode
    if seen == 0:
        raise _fq.ArgumentError("[calibrate] data has no batch")
    for part, values in zip(parts, kept):
        for name, codes in part.codes().items():
            codes.calibrate(values[name], method)
    return model


def _run(model, batch, most):
    """The model on at most so many samples of a batch; gives how many."""
    args, named = arguments_of(batch[0] if isinstance(batch, (tuple, list)) else batch)
    samples = [len(value) for value in (*args, *named.values()) if isinstance(value, torch.Tensor) and value.dim()]
    count = max(samples, default=most)
    first = lambda value: (value[:most] if isinstance(value, torch.Tensor) and value.dim() and len(value) == count  # noqa: E731
                           else value)
    model(*map(first, args), **{name: first(value) for name, value in named.items()})
    return count
