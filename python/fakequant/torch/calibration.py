"""calibrate: ranges from the batches of a loader."""
import torch

from .. import _fakequant as _fq
from .networks import parts_of


def calibrate(model, data, samples=512, method=""):
    """Chooses the ranges of all quantizers from `samples` samples of `data`: batches of a loader, tensors or tuples of which the
    first is the input. `method` is max, entropy, mse, ..; that of the config by default. Gives the model itself.
    """
    parts = parts_of(model)
    if not parts:
        raise _fq.ArgumentError("[calibrate] the model has nothing quantized: give what fakequant.torch.quantize made")
    seen, modes = 0, {module: module.training for module in model.modules()}
    watched = [{source: [] for source in part._parts.values()} for part in parts]
    try:
        model.eval()
        for part, values in zip(parts, watched):
            part.watch = lambda name, value, values=values: values[name].append(value) if name in values else None
        with torch.no_grad():
            for batch in data:
                x = batch[0] if isinstance(batch, (tuple, list)) else batch
                model(x[:samples - seen])
                seen += len(x)
                if seen >= samples:
                    break
    finally:
        for part in parts:
            part.watch = None
        for module, mode in modes.items():
            module.training = mode
    if seen == 0:
        raise _fq.ArgumentError("[calibrate] data has no batch")
    for part, values in zip(parts, watched):
        for name, codes in part.codes().items():
            codes.calibrate(torch.cat(values[part._parts[name]]).contiguous(), method)
    return model
