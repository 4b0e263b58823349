"""calibrate: sets ranges from batches. Context managers that calibrate, and that switch quantizers off."""
import collections.abc
import contextlib
import fnmatch
import inspect

import torch

from .. import _fakequant as _fq
from .modules import Quantized, lowered_modules, require_parts
from .quantize import nearest_names, split_arguments


@contextlib.contextmanager
def calibrating(model, method=""):
    """Calibrates with the calls of the model in a `with` block: `with calibrating(model): model(x)`.

    In the block the model computes in floats, in evaluation mode. At its end the ranges are set, unless it raises. `method` is the
    calibration method (`max`, `entropy`, `mse`, ..); the default is the method of the config.
    """
    parts = require_parts(model, "calibrating")
    modes, recorded = {module: module.training for module in model.modules()}, []
    try:
        model.eval()
        recorded = [part.record_inputs() for part in parts]
        yield model
    finally:
        for part in parts:
            part.stop_recording()
        for module, mode in modes.items():
            module.training = mode
    for part, calls in zip(parts, recorded):
        for name, lowered in part.lowered_modules().items():
            lowered.calibrate([inputs for inputs, _ in calls[name]], method, [positions for _, positions in calls[name]])


def calibrate(model, data, samples=512, method="", mask=None):
    """Sets the ranges of all quantizers from the first `samples` samples of `data`. Returns the model.

    `data` is a loader or a list of batches, or a function that calls the model (`forward_loop` of ModelOpt). A batch is a tensor, a tuple that starts with the input, or a dict of arguments. Several inputs
    are a tuple instead of the input, or a dict. `method` is the calibration method (`max`, `entropy`, `mse`, ..); the default is the
    method of the config. `mask` is a function of a batch. It returns a bool tensor [B, T], false at positions of padding, which do not
    enter ranges. The default is the `attention_mask` [B, T] of batches that are dicts.

    Raises ArgumentError if `data` has no batch, if a batch does not fit the model, and if no tensor has the positions of the mask.
    """
    parts = require_parts(model, "calibrate")
    if _is_function(data):
        return _calibrate_by_function(model, data, method, mask)
    _check_data(data)
    seen, interrupts = 0, _fq.Interrupts()
    try:
        with calibrating(model, method), torch.no_grad():
            for batch in data:
                interrupts.check()
                seen += _run_batch(model, parts, batch, samples - seen, mask)
                if seen >= samples:
                    break
            if seen == 0:
                raise _fq.ArgumentError("[calibrate] data has no batch")
    finally:
        for part in parts:
            part._token_mask = None
    if mask is not None and not any(lowered.masked for lowered in lowered_modules(model)):
        raise _fq.ArgumentError("[calibrate] mask: no input of a quantizer has its positions. Return [B, T] for sequences of T positions")
    return model


@contextlib.contextmanager
def quantizers_off(model, pattern="*"):
    """Switches the quantizers of a pattern off in a `with` block. `quantizers` lists their names ("layer1.0.conv1.weight_quantizer").

    Raises ArgumentError if the pattern matches no quantizer.
    """
    require_parts(model, "quantizers_off")
    networks = [lowered.network for lowered in lowered_modules(model)]
    names = {network: [name for row in network.quantizers() for name in (row["name"], *row["aliases"])] for network in networks}
    found = [network for network in networks if fnmatch.filter(names[network], pattern)]
    if not found:
        likely = nearest_names(pattern, [name for some in names.values() for name in some])
        raise _fq.ArgumentError(f"[quantizers_off] the pattern '{pattern}' matches no quantizer: the nearest are {', '.join(likely)}")
    with contextlib.ExitStack() as stack:
        for network in found:
            stack.enter_context(network.quantizers_off(pattern))
        yield model


def set_amax(model, ranges):
    """Sets ranges of quantizers, {name or pattern: range}. `quantizers` lists the names.

    A range is a number above 0, or a tensor or list with a range for each channel. Raises ArgumentError for a pattern that matches no
    enabled quantizer and for a range of another shape.
    """
    require_parts(model, "set_amax")
    lowered = lowered_modules(model)
    names = {module: [row["name"] for row in module.network.quantizers() if row["enabled"]] for module in lowered}
    given = {module: {} for module in lowered}
    for pattern, amax in ranges.items():
        found = [(module, name) for module in lowered for name in fnmatch.filter(names[module], pattern)]
        if not found:
            likely = nearest_names(pattern, [name for some in names.values() for name in some])
            raise _fq.ArgumentError(f"[set_amax] '{pattern}' matches no enabled quantizer: the nearest are {', '.join(likely)}")
        for module, name in found:
            given[module][name] = amax.detach().cpu().float().numpy() if isinstance(amax, torch.Tensor) else amax
    for module, values in given.items():
        if values:
            module.share().set_amax(values)
            module.pull()


def _is_function(data):
    return callable(data) and not hasattr(data, "__iter__") and not hasattr(data, "__getitem__")


def _calibrate_by_function(model, forward_loop, method, mask):
    """Calibrates with the calls that `forward_loop(model)` makes. Returns the model."""
    if mask is not None:
        raise _fq.ArgumentError("[calibrate] mask needs batches, and data is a function: use a loader or a list of batches")
    with calibrating(model, method), torch.no_grad():
        forward_loop(model)
    return model


def _check_data(data):
    """Raises ArgumentError if `data` is one batch."""
    tensors = data if isinstance(data, (tuple, list)) and all(isinstance(x, torch.Tensor) for x in data) else ()
    if isinstance(data, (torch.Tensor, collections.abc.Mapping)) or _is_array(data) or (
            len({(x.dim(), x.is_floating_point()) for x in tensors}) > 1):
        raise _fq.ArgumentError(f"[calibrate] data is one batch, a {type(data).__name__}: give a loader or a list of batches, as [batch]")


def _is_array(value):
    return type(value).__module__ == "numpy"


def _check_batch(model, args, named):
    """Raises ArgumentError for a batch that the model cannot be called with."""
    if any(_is_array(value) for value in (*args, *named.values())):
        raise _fq.ArgumentError("[calibrate] a batch is an array of numpy: give a torch tensor, torch.as_tensor(batch)")
    try:
        if isinstance(model, Quantized):
            model.check_arguments(args, named)
        else:
            inspect.signature(model.forward).bind(*args, **named)
    except TypeError as why:
        raise _fq.ArgumentError(f"[calibrate] a batch does not fit the model: {why}. A batch is the input, a tuple that begins with the "
                                "input, or a dict of all arguments of forward. Several inputs are a tuple. For one argument that is a dict "
                                "give {'batch': batch}") from why


def _positions(batch, named, mask, count):
    """Returns the mask of a batch as floats [B, T], or None."""
    if mask is None:
        found = named.get("attention_mask")
        return found.cpu().float() if isinstance(found, torch.Tensor) and found.dim() == 2 and len(found) == count else None
    found = mask(batch)
    if not isinstance(found, torch.Tensor) or found.dim() != 2 or len(found) != count:
        what = f"{str(found.dtype)} {list(found.shape)}" if isinstance(found, torch.Tensor) else f"a {type(found).__name__}"
        raise _fq.ArgumentError(f"[calibrate] mask returns {what} for a batch of {count}: return a bool tensor [{count}, T], false for padding")
    return found.cpu().float()


def _run_batch(model, parts, batch, most, mask):
    """Runs the model on at most `most` samples of a batch. Returns the number of samples of the batch."""
    args, named = split_arguments(batch[0] if isinstance(batch, (tuple, list)) else batch)
    _check_batch(model, args, named)
    samples = [len(value) for value in (*args, *named.values()) if isinstance(value, torch.Tensor) and value.dim()]
    count = max(samples, default=most)
    positions = _positions(batch, named, mask, count)
    for part in parts:
        part._token_mask = None if positions is None else positions[:most]
    first = lambda value: (value[:most] if isinstance(value, torch.Tensor) and value.dim() and len(value) == count  # noqa: E731
                           else value)
    model(*map(first, args), **{name: first(value) for name, value in named.items()})
    return count
