"""calibrate: ranges from the batches of a loader; blocks of `with` that calibrate and that switch quantizers off."""
import collections.abc
import contextlib
import fnmatch
import inspect

import torch

from .. import _fakequant as _fq
from .networks import Quantized, arguments_of, nearest, parts_of


@contextlib.contextmanager
def calibrating(model, method=""):
    """`with calibrating(model): ..`: the model computes in floats in the block, in evaluation mode, and is shown what it is called
    with; at its end ranges are chosen, unless it ends by an exception."""
    parts = _parts(model, "calibrating")
    modes, kept = {module: module.training for module in model.modules()}, []
    try:
        model.eval()
        kept = [part.watching() for part in parts]
        yield model
    finally:
        for part in parts:
            part.stop_watching()
        for module, mode in modes.items():
            module.training = mode
    for part, values in zip(parts, kept):
        for name, codes in part.codes().items():
            codes.calibrate(values[name], method)


def calibrate(model, data, samples=512, method=""):
    """Chooses the ranges of all quantizers from `samples` samples of `data`: batches of a loader, tensors, tuples of which the
    first is the input, or dicts of arguments; several inputs are a tuple in place of one, or a dict. `method` is max, entropy, mse, ..; that of the config by default. Gives the model itself.
    """
    _parts(model, "calibrate")
    _check_data(data)
    seen, interrupts = 0, _fq.Interrupts()
    with calibrating(model, method), torch.no_grad():
        for batch in data:
            interrupts.check()
            seen += _run(model, batch, samples - seen)
            if seen >= samples:
                break
        if seen == 0:
            raise _fq.ArgumentError("[calibrate] data has no batch")
    return model


@contextlib.contextmanager
def quantizers_off(model, pattern="*"):
    """`with quantizers_off(model): ..`: the quantizers of a pattern are off in the block, and then as they were. Names are paths of
    modules, "layer1.0.conv1.weight_quantizer", as `quantizers` lists them."""
    networks = [codes.network for part in _parts(model, "quantizers_off") for codes in part.codes().values()]
    names = {network: [name for row in network.quantizers() for name in (row["name"], *row["aliases"])] for network in networks}
    found = [network for network in networks if fnmatch.filter(names[network], pattern)]
    if not found:
        likely = nearest(pattern, [name for some in names.values() for name in some])
        raise _fq.ArgumentError(f"[quantizers_off] the pattern '{pattern}' matches no quantizer: the nearest are {', '.join(likely)}")
    with contextlib.ExitStack() as stack:
        for network in found:
            stack.enter_context(network.quantizers_off(pattern))
        yield model


def _parts(model, function):
    parts = parts_of(model)
    if not parts:
        raise _fq.ArgumentError(f"[{function}] the model has nothing quantized: give what fakequant.torch.quantize made")
    return parts


def _check_data(data):
    """Raises ArgumentError for other than batches."""
    if callable(data) and not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise _fq.ArgumentError("[calibrate] data is a function: give batches, or call it with the model in a block of "
                                "`with fakequant.torch.calibrating(model):`")
    tensors = data if isinstance(data, (tuple, list)) and all(isinstance(x, torch.Tensor) for x in data) else ()
    if isinstance(data, (torch.Tensor, collections.abc.Mapping)) or _is_array(data) or (
            len({(x.dim(), x.is_floating_point()) for x in tensors}) > 1):
        raise _fq.ArgumentError(f"[calibrate] data is one batch, a {type(data).__name__}: give a loader or a list of batches, as [batch]")


def _is_array(value):
    return type(value).__module__ == "numpy"


def _check_batch(model, args, named):
    """Raises ArgumentError for a batch that the model cannot be called with."""
    if any(_is_array(value) for value in (*args, *named.values())):
        raise _fq.ArgumentError("[calibrate] a batch is an array of numpy: give tensors of torch, as torch.as_tensor(batch) makes them")
    try:
        if isinstance(model, Quantized):
            model.check_arguments(args, named)
        else:
            inspect.signature(model.forward).bind(*args, **named)
    except TypeError as why:
        raise _fq.ArgumentError(f"[calibrate] a batch does not fit the model: {why}. A batch is the input, a tuple that begins with the "
                                "input, or a dict of arguments of forward alone. Several inputs are a tuple instead of one. A dict that is one "
                                "argument is {'batch': batch}") from why


def _run(model, batch, most):
    """The model on at most so many samples of a batch; gives how many."""
    args, named = arguments_of(batch[0] if isinstance(batch, (tuple, list)) else batch)
    _check_batch(model, args, named)
    samples = [len(value) for value in (*args, *named.values()) if isinstance(value, torch.Tensor) and value.dim()]
    count = max(samples, default=most)
    first = lambda value: (value[:most] if isinstance(value, torch.Tensor) and value.dim() and len(value) == count  # noqa: E731
                           else value)
    model(*map(first, args), **{name: first(value) for name, value in named.items()})
    return count
