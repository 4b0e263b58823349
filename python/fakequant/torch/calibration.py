"""calibrate: sets ranges from batches. load_quantized: sets parameters and ranges from state dicts of ModelOpt and torchao. Context managers
that calibrate, and that switch quantizers off."""
import collections.abc
import contextlib
import fnmatch
import inspect

import numpy as np
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
        try:
            recorded = [part.record_inputs() for part in parts]
            yield model
        finally:
            for part in parts:
                part.stop_recording()
        for part, calls in zip(parts, recorded):
            for name, lowered in part.lowered_modules().items():
                lowered.calibrate([inputs for inputs, _ in calls[name]], method, [positions for _, positions in calls[name]])
    finally:
        for module, mode in modes.items():
            module.training = mode


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
        raise _fq.ArgumentError(f"[calibrate] data is one batch, a {type(data).__name__}: use a loader or a list of batches, as [batch]")


def _is_array(value):
    return type(value).__module__ == "numpy"


def _check_batch(model, args, named):
    """Raises ArgumentError for a batch that the model cannot be called with."""
    if any(_is_array(value) for value in (*args, *named.values())):
        raise _fq.ArgumentError("[calibrate] a batch is an array of numpy: use a torch tensor, torch.as_tensor(batch)")
    try:
        if isinstance(model, Quantized):
            model.check_arguments(args, named)
        else:
            inspect.signature(model.forward).bind(*args, **named)
    except TypeError as why:
        raise _fq.ArgumentError(f"[calibrate] a batch does not fit the model: {why}. A batch is the input, a tuple that begins with the "
                                "input, or a dict of all arguments of forward. Several inputs are a tuple. For one argument that is a dict "
                                "use {'batch': batch}") from why


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


# State dicts of other tools.

#: {other field of ModelOpt's TensorQuantizer: why it is not supported}.
_UNSUPPORTED = {"_pre_quant_scale": "it multiplies the input before rounding", "_scale": "its weights are packed codes",
                "_double_scale": "its weights are packed codes", "_bias_value": "its grid has an offset",
                "_global_amax": "its scales have a scale of their own", "_hadamard": "it rotates the input"}


class _Rejected(Exception):
    """The model cannot have a value of the state dict. The text is the reason."""


def _require(condition, why):
    if not condition:
        raise _Rejected(why)


def _layers(model):
    """Returns {path of a module of torch: (LoweredModule, name of its layer)}."""
    paths = {module: path for path, module in model.named_modules()}
    return {paths[ref.module]: (lowered, name[:-len(".weight")]) for lowered in lowered_modules(model) for name, ref in lowered.refs.items()
            if name.endswith(".weight") and ref.name == "weight" and ref.rows is None and ref.expression is None and ref.module in paths}


def _quantizer_rows(lowered):
    """Returns {name or alias of a quantizer: its row of Model.quantizers}."""
    out = {}
    for row in lowered.network.quantizers():
        out |= {name: row for name in (row["name"], *row["aliases"])}
    return out


def _is_torchao(value):
    return type(value).__module__.startswith("torchao.") and hasattr(value, "qdata")


def _enabled_row(rows, name):
    row = rows.get(name)
    _require(row is not None and row["enabled"], "there is no such quantizer here, or it is off")
    return row


def _check_format(theirs, row):
    """Raises _Rejected if a quantizer of ModelOpt has another format. `theirs` are its fields."""
    own = row["descriptor"].dict()
    bits = theirs.get("_num_bits", 8)
    ours = own.get("num_bits", 8)
    _require((tuple(bits) if not isinstance(bits, int) else bits) == (tuple(ours) if not isinstance(ours, int) else ours),
             f"it has {bits} bits, and ours {ours}")
    _require(not theirs.get("_disabled"), "it is off there, and on here")
    _require(not theirs.get("_dynamic") and not theirs.get("_block_sizes"), "each input or block sets its range")
    _require(theirs.get("_bias") is None and not theirs.get("_rotate"), "its grid has an offset, or its input is rotated")


def _modelopt_range(row, amax, unsigned):
    """Returns the range in the shape of our quantizer."""
    fields = row["descriptor"].dict()
    _require(not fields.get("dynamic"), "each input sets its range here")
    _require(bool(fields.get("unsigned", False)) == unsigned,
             "it is unsigned here, with other steps. Quantize for the target 'tensorrt', which has signed activations")
    amax = amax.detach().float().cpu()
    _require("block_sizes" not in fields, "it has blocks here")
    _require(amax.numel() == 1 or fields.get("axis") is not None, f"it has {amax.numel()} ranges, and ours one for the tensor")
    _require(fields.get("axis") is None or amax.numel() > 1 or row["amax"] is None or row["amax"][0] == row["amax"][1],
             "it has one range for the tensor, and ours one a channel")
    return amax.flatten().numpy() if amax.numel() > 1 else amax.flatten()[:1].numpy()[0]


def _nearest_range(scale, bound):
    """Returns (amax, amax / bound), where amax / bound is as near to the scale as float32 allows."""
    amax = scale * np.float32(bound)
    candidates = np.stack([amax, np.nextafter(amax, np.float32(np.inf)), np.nextafter(amax, np.float32(0))])
    best = np.abs(candidates / np.float32(bound) - scale).argmin(0)[None]
    amax = np.take_along_axis(candidates, best, 0)[0]
    return amax, amax / np.float32(bound)


def _torchao_weight(row, value):
    """Returns (weights as floats, ranges) of a weight of torchao."""
    fields = row["descriptor"].dict()
    bits, narrow = fields.get("num_bits", 8), fields.get("narrow_range", False)
    _require(isinstance(bits, int), "it is not an integer format here")
    codes, zero = value.qdata, value.zero_point
    _require(zero is None or not bool(zero.any()), "it has a zero point, and our weights are symmetric")
    high = 2 ** (bits - 1) - 1
    low = -high if narrow else -high - 1
    groups = fields.get("block_sizes", {}).get("-1")
    _require(groups is not None or fields.get("axis") == 0, "its scales are one a row, and ours one for the tensor")
    block, wide = list(value.block_size), codes.shape[-1] if groups is None else groups
    _require(block == [1, wide], f"its blocks are {block}, and ours [1, {wide}]")
    outside = int(((codes < low) | (codes > high)).sum())
    _require(outside == 0, f"{outside} of its codes are outside of {low} .. {high}, the range of our {bits} bits"
             f"{' with narrow_range' if narrow else ''} have")
    amax, scale = _nearest_range(value.scale.float().cpu().numpy(), high)
    floats = codes.cpu().float() * torch.from_numpy(scale).repeat_interleave(wide, 1)
    return floats, amax.ravel() if groups is None else amax


class _Changes:
    """Changes of a model by a state dict: parameters, ranges, weights of torchao, and the reasons for rejected values."""

    def __init__(self, model, state, formats):
        self.formats, self.state = formats, state
        self.layers = _layers(model)
        self.rows = {lowered: _quantizer_rows(lowered) for lowered, _ in self.layers.values()}
        self.parameters, self.ranges, self.weights, self.rejected = {}, {}, {}, []
        for name, value in state.items():
            try:
                self._add(name, value)
            except _Rejected as why:
                self.rejected.append(f"'{name}': {why}")

    def _quantizer(self, path, kind):
        """Returns (LoweredModule, row of the quantizer)."""
        lowered, node = self.layers.get(path, (None, None))
        _require(lowered is not None, "the library does not run its layer")
        row = _enabled_row(self.rows[lowered], f"{node}.{kind}")
        return lowered, row

    def _add(self, name, value):
        head, _, last = name.rpartition(".")
        path, _, kind = head.rpartition(".")
        if not kind.endswith("_quantizer"):
            return self._add_parameter(name, value)
        _require(last not in _UNSUPPORTED, _UNSUPPORTED.get(last))
        _require(last == "_amax", "it is not a range")
        lowered, row = self._quantizer(path, kind)
        theirs = self.formats.get(head, {})
        _check_format(theirs, row)
        if kind == "weight_quantizer":
            self._check_narrow(path, row, value)
        self.ranges.setdefault(lowered, {})[row["name"]] = _modelopt_range(row, value, bool(theirs.get("_unsigned")))

    def _check_narrow(self, path, row, amax):
        """Raises _Rejected if a weight has the code -128 in ModelOpt, and our narrow grid ends at -127."""
        weight = self.state.get(f"{path}.weight")
        if weight is None or not row["descriptor"].dict().get("narrow_range"):
            return
        high = 2 ** (row["descriptor"].dict().get("num_bits", 8) - 1) - 1
        _require(not bool((weight < -amax * (high + 0.5) / high).any()),
                 f"some weights are below -amax, where it has the code {-high - 1}, which our grid does not have")

    def _add_parameter(self, name, value):
        if not _is_torchao(value):
            self.parameters[name] = value
            return
        path, _, last = name.rpartition(".")
        _require(last == "weight", "it is not the weight of a layer")
        lowered, row = self._quantizer(path, "weight_quantizer")
        floats, amax = _torchao_weight(row, value)
        self.parameters[name] = floats
        self.ranges.setdefault(lowered, {})[row["name"]] = amax
        self.weights[name] = lowered, self.layers[path][1], floats


def _check_rejected(rejected):
    if rejected:
        raise _fq.ArgumentError("[load_quantized] not supported, and nothing was changed: " + "; ".join(rejected))


def _split_state(state):
    """Returns (state dict, {quantizer: its fields}) of a state dict or of a file of modelopt.torch.opt.save."""
    if set(state) != {"modelopt_state", "model_state_dict"}:
        return state, {}
    formats = {}
    for _, step in state["modelopt_state"]["modelopt_state_dict"]:
        formats |= step.get("metadata", {}).get("quantizer_state", {})
    return state["model_state_dict"], formats


def load_quantized(model, state_dict):
    """Loads parameters and ranges from a state dict of another tool into a quantized model. Returns the names of the ranges.

    It reads ranges of ModelOpt's TensorQuantizer (`<layer>.input_quantizer._amax`), and weights of torchao (Int8Tensor,
    IntxUnpackedToInt8Tensor), whose codes stay the same. A scale of torchao may change in its last bit, because a scale here is amax / bound.
    A file of `modelopt.torch.opt.save` has the formats of its quantizers, which are compared; a state dict does not have them. ModelOpt's
    activations are signed: quantize with {"preset": "int8", "target": "tensorrt"}.

    Raises ArgumentError, without a change of the model, if a value has no equal in the grids of the model. The message names it.
    """
    require_parts(model, "load_quantized")
    changes = _Changes(model, *_split_state(state_dict))
    known = set(model.state_dict())
    changes.rejected += [f"'{name}': the model has no such parameter" for name in changes.parameters if name not in known]
    _check_rejected(changes.rejected)
    kept = {name: value.detach().clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    states = {lowered: lowered.network.quantizer_state() for lowered in changes.ranges}
    try:
        model.load_state_dict(changes.parameters, strict=False)
        for lowered, ranges in changes.ranges.items():
            lowered.share().set_amax(ranges)
            lowered.pull()
        for name, (lowered, layer, floats) in changes.weights.items():
            given = torch.as_tensor(lowered.share().weights_on_grid([layer])[layer])
            if not torch.equal(given, floats):
                wrong = int((given != floats).sum())
                changes.rejected.append(f"'{name}': {wrong} of its {floats.numel()} weights are not on our grid")
        _check_rejected(changes.rejected)
    except Exception:
        model.load_state_dict(kept, strict=False)
        for lowered, state in states.items():
            lowered.network.load_quantizer_state(*state)
            lowered.pull()
        raise
    return [name for ranges in changes.ranges.values() for name in ranges]
