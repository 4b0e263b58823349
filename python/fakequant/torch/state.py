"""State of quantizers as tensors below their layers (`layers.0.fc.weight_quantizer.amax`), and learned ranges in training."""
import json

import torch
from torch import nn
from torch.distributed._composable.contract import REGISTRY_KEY
from torch.nn.parallel import DistributedDataParallel

from .. import _fakequant as _fq
from .tensors import gathered, is_managed, is_sharded

#: Settings that calibration decides.
_CALIBRATED = ("enabled", "zero_point")
#: Settings that change the codes. They and the descriptor are the format.
_FORMAT = ("pow2", "reference", "engine_grid", "binary")
#: Fields of a descriptor that are not part of the format.
_OTHERS = ("amax", "calib_method", "learn_amax", "name", "unsigned")
#: Arrays that not every quantizer has. `extreme_codes` are the codes of the largest weights of ggml's blocks, chosen in calibration.
_ARRAYS = ("scale", "growing", "pre_quant_scale", "extreme_codes")
_BLOCK = 256  # bytes. The length of settings is a multiple, so that calibration does not change it.
_LEAST_RANGE = 2.0**-23


class QuantizerState(nn.Module):
    """Range and settings of one quantizer.

    `amax` is the range, or a list of ranges, NaN before calibration: a parameter if ranges are learned, else a buffer, and None
    if each input has a range of its own. `growing` marks the ranges that training sets. State dicts also have `settings`, the bytes of a
    JSON text. fully_shard makes a learned range a DTensor, except in models of other types than float32.
    """

    def __init__(self, settings, amax, is_learned):
        super().__init__()
        for name in _ARRAYS:
            self.register_buffer(name, None)
        self._settings, self.writes, self.loads, self.is_loaded = settings, 0, 0, False
        self._sharded = None  # the DTensor of the learned range
        if is_learned:
            self.amax = nn.Parameter(amax)
        else:
            self.register_buffer("amax", amax)

    @property
    def settings(self):
        """The settings as bytes of a JSON text."""
        longest = _with_calibrated(self._settings, {"descriptor": {"unsigned": True}, "switches": {"enabled": False, "zero_point": 128}})
        size = -(-len(_text(longest)) // _BLOCK) * _BLOCK
        return torch.frombuffer(bytearray(_text(self._settings).ljust(size)), dtype=torch.uint8)

    @property
    def is_learned(self):
        return "amax" in self._parameters

    def __setattr__(self, name, value):
        if name == "amax" and is_sharded(value):  # fully_shard sets this parameter, and its whole for each forward
            self.__dict__["_sharded"] = value
        super().__setattr__(name, value)

    def whole_range(self):
        """Returns the range in float32, gathered if it is sharded. A MixedPrecisionPolicy rounds the range that fully_shard gathers."""
        is_rounded = self._sharded is not None and self.amax.dtype != torch.float32
        return gathered(self._sharded if is_rounded else self.amax)

    def stay_whole(self):
        """Keeps fully_shard from sharding the range, because it requires one type for all parameters of a module."""
        setattr(self, REGISTRY_KEY, {"replicate": None})

    def is_calibrated(self):
        """Returns whether the range is known or not needed."""
        return self.amax is None or not bool(self.whole_range().isnan().any())

    def version(self):
        """Returns a value that changes with each write to settings and buffers. The library shares a learned range, so that is not included."""
        return self.writes, [(value.data_ptr(), value._version) for value in self._buffers.values() if value is not None]

    def arrays(self):
        """Returns {name: tensor} for the library, copies."""
        values = {"amax": self.whole_range() if self.is_calibrated() and self.amax is not None else None}
        values |= {name: getattr(self, name) for name in _ARRAYS}
        return {name: value.detach().cpu().clone() for name, value in values.items() if value is not None}

    def as_library(self):
        """Returns ((settings, number of loads), {name: tensor}) for the library, without a learned range, which the library shares.

        After a load the library gets the range too, because it keeps flags of zero ranges.
        """
        arrays = {name: value for name, value in self.arrays().items() if name != "amax" or not self.is_learned}
        return (self._settings, self.loads), arrays

    def settings_of_library(self):
        """Returns (descriptor, switches) for the library."""
        return self._settings["descriptor"], self._settings["switches"]

    def take(self, settings, arrays):
        """Sets settings and arrays from the library. Parameters keep their identity, and equal values are not written."""
        self.writes += settings != self._settings
        self._settings = settings
        if self.amax is not None and "amax" in arrays:
            self._set_amax(arrays["amax"])
        for name in _ARRAYS:
            setattr(self, name, arrays[name].clone() if name in arrays else None)

    def grows(self):
        """Returns whether some of the range was zero at calibration, so that training sets it."""
        return self.growing is not None or self.amax is not None and bool((self.whole_range() <= 2.0**-24).any())

    def _set_amax(self, value):
        """Sets the range, in place if its shape is the same."""
        value = value.reshape(-1) if self.is_learned else value
        with torch.no_grad():
            if value.shape == self.amax.shape:
                if not torch.equal(value, self.whole_range().cpu()):
                    self.write_range(value)
            else:
                value = value.clone().to(self.amax.device)
                self.amax = nn.Parameter(value, self.amax.requires_grad) if self.is_learned else value

    def write_range(self, value):
        """Writes to the range, and to its shard."""
        if not is_sharded(self.amax):
            self.amax.copy_(value)
        if self._sharded is not None:
            from torch.distributed.tensor import distribute_tensor
            sharded = self._sharded
            sharded.copy_(distribute_tensor(value.to(sharded.device), sharded.device_mesh, sharded.placements))

    def load(self, settings, arrays):
        """Sets the state from a quantizer of the same format. Raises ValueError with both formats if they differ."""
        own, given = describe(self._settings), describe(settings)
        if format_settings(self._settings) != format_settings(settings):
            raise ValueError(f"the state dict has {given}, and the model {own}: quantize the model with the config of the state dict")
        self.take(_with_calibrated(self._settings, settings), arrays)
        self.is_loaded = True

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "settings"] = self.settings

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        own = {name[len(prefix):]: value for name, value in state_dict.items() if name.startswith(prefix)}
        if not own:  # a float state dict has none
            return
        self.is_loaded = True
        self.loads += 1
        self.writes += 1
        text = own.pop("settings", None)
        try:
            settings = self._settings if text is None else json.loads(bytes(text.to(torch.uint8).cpu().tolist()))
            self._prepare(own, settings)
        except (ValueError, KeyError, TypeError) as why:
            errors.append(f"'{prefix[:-1]}': {why}")
            return
        values = {prefix + name: value for name, value in own.items()}
        super()._load_from_state_dict(values, prefix, metadata, strict, [], unexpected, errors)

    def _prepare(self, given, settings):
        """Checks the format, and replaces tensors of other shapes."""
        self.load(settings, {})
        if "amax" in given and self.amax is not None:
            if self.is_learned:
                given["amax"] = given["amax"].reshape(-1)
            elif given["amax"].shape != self.amax.shape:
                self.amax = torch.empty_like(given["amax"], device=self.amax.device)
        for name in _ARRAYS:
            if name in given:
                setattr(self, name, torch.empty_like(given[name]))

    def _apply(self, fn, recurse=True):
        """Moves the tensors to a device. `model.bfloat16()` does not change ranges, whose bits decide all codes."""
        def moved(tensor):
            out = fn(tensor)
            if out.dtype == tensor.dtype:
                return out
            self.stay_whole()
            return tensor.to(out.device)
        return super()._apply(moved, recurse)

    def extra_repr(self):
        amax = None if self.amax is None or is_sharded(self.amax) or not self.is_calibrated() else self.amax.detach()
        span = "" if amax is None else f", amax {amax.min():.4g}" + (f" .. {amax.max():.4g}" if amax.numel() > 1 else "")
        learned, off = ", learned" if self.is_learned else "", "" if self._settings["switches"]["enabled"] else ", off"
        return describe(self._settings) + span + learned + off


def split_state(arrays, attributes):
    """Returns {name of a quantizer: (settings, {name: tensor})} from the arrays and attributes of Model.quantizer_state, without the
    data of calibrators."""
    out = {}
    for key, value in attributes.items():
        name, _, field = key.rpartition("/")
        if field in ("descriptor", "switches"):
            out.setdefault(name, ({}, {}))[0][field] = value
    for key, value in arrays.items():
        name, _, field = key.rpartition("/")
        if name in out and field in ("amax", *_ARRAYS):
            out[name][1][field] = torch.as_tensor(value)
    return out


def _text(settings):
    return json.dumps(settings, separators=(",", ":")).encode()


def note_missing(model, keys):
    """Adds missing keys after a model has loaded a state dict. A float state dict has no quantizers, so no key is missing."""
    states = {path: module for path, module in model.named_modules() if isinstance(module, QuantizerState)}
    if any(state.is_loaded for state in states.values()):
        keys.missing_keys.extend(f"{path}.{'settings' if state.amax is None else 'amax'}" for path, state in states.items() if not state.is_loaded)
    for state in states.values():
        state.is_loaded = False


def format_settings(settings):
    """Returns the settings that change the codes, without the range."""
    descriptor, switches = settings["descriptor"], settings["switches"]
    out = {name: value for name, value in descriptor.items() if name not in _OTHERS}
    out |= {name: switches[name] for name in _FORMAT if switches.get(name) not in (None, False, "none")}
    return out if switches.get("may_become_unsigned") else out | {"unsigned": bool(descriptor.get("unsigned"))}


def describe(settings):
    """Returns a format in words: "int4, axis 0, narrow_range"."""
    fields = format_settings(settings)
    bits = fields.pop("num_bits", 8)
    words = [f"int{bits}" if isinstance(bits, int) else "e{}m{}".format(*bits)]
    for name, value in fields.items():
        if value is not False:
            words.append(name if value is True else f"{name} {json.dumps(value)}")
    return ", ".join(words)


def _with_calibrated(own, given):
    """Returns the settings `own` with the calibrated fields of `given`."""
    descriptor = {name: value for name, value in own["descriptor"].items() if name != "unsigned"}
    if given["descriptor"].get("unsigned"):
        descriptor["unsigned"] = True
    switches = own["switches"] | {name: given["switches"][name] for name in _CALIBRATED if name in given["switches"]}
    return {"descriptor": descriptor, "switches": switches}


class _Container(nn.Module):
    """Parent module for the quantizers of a layer that torch computes by a function, for example attention."""


class StateTree:
    """Adds quantizer states below the modules of their layers, without a change of the float model.

    `replacements` is {module of the float model: module in `root` that replaces it and has its parameters}.
    """

    def __init__(self, root, replacements):
        self._root, self._replacements, self._copies = root, replacements, {}
        self._own = {id(module) for module in (root, *replacements.values())}

    def add(self, path, state):
        """Makes `state` the child at a path. Modules of the float model on the way are replaced by copies."""
        *parents, last = path.split(".")
        at = self._root
        for name in parents:
            at = self._child(at, name)
        if at._modules.get(last) is not None:
            raise _fq.ArgumentError(f"[quantize] the model has a module '{path}' of its own: quantize a model without quantizers")
        state.train(at.training)
        at._modules[last] = state

    def _child(self, parent, name):
        child = parent._modules.get(name)
        if child is None:
            child = _Container().train(parent.training)
            self._own.add(id(child))
        elif id(child) not in self._own:
            child = self._copy(child)
        parent._modules[name] = child
        return child

    def _copy(self, module):
        """Returns a module with the same parameters and a dict of children of its own."""
        if module not in self._copies:
            twin = shallow_copy(module)
            twin._modules = dict(module._modules)
            self._copies[module] = twin
            self._own.add(id(twin))
        return self._copies[module]

    def redirect(self, refs):
        """Returns the TensorRefs with the modules of the quantized model instead of the modules of the float model."""
        now = self._replacements | self._copies
        return {name: ref.redirected(now) for name, ref in refs.items()}


def shallow_copy(module):
    """Returns a module with the same parameters and children. copy.copy rejects parametrized modules."""
    out = object.__new__(type(module))
    out.__dict__.update(module.__dict__)
    return out


# Learned ranges in training.

def _is_within(value, last):
    """Returns whether the step from `last` to `value` is within the limits. Most steps are, and this check is cheap."""
    lowest, highest = torch.aminmax(value / last.to(value.device))
    return float(lowest) >= 0.5 and float(highest) <= 2.0 and float(value.min()) >= _LEAST_RANGE


class RangeLimiter:
    """Limits the steps of learned ranges like the library's own loop: a step at most halves or doubles a range, and a range is at least
    2^-23."""

    def __init__(self):
        self._before = {}

    def limit(self, values):
        """Limits ranges that changed since the last call. `values` is {name: (QuantizerState, its whole range)}."""
        with torch.no_grad():
            for name, (state, value) in values.items():
                last, version = self._before.get(name, (None, None))
                if value._version == version and not is_managed(state):  # fully_shard gathers without a new version
                    continue
                if last is not None and not _is_within(value, last):
                    last = last.to(value.device)
                    limited = value.clamp(last / 2, last * 2).clamp_(min=_LEAST_RANGE)
                    value.copy_(torch.where(last > 2.0**-24, limited, value))  # training sets a range of zeros without a limit
                    if is_managed(state):
                        state.write_range(value)
                self._before[name] = value.detach().clone(), value._version

    def reset(self):
        """Forgets the last values, after ranges were calibrated or loaded."""
        self._before = {}


def share_growth(network, quantizers, device, is_managed):
    """Sets quantizers that grow (their range was zero) to the largest range in any process of DistributedDataParallel or fully_shard.

    `is_managed` says whether fully_shard manages the parameters.
    """
    model = DistributedDataParallel._get_active_ddp_module()
    if (model is None and not is_managed) or not torch.distributed.is_initialized():
        return
    growth = torch.as_tensor(network.range_growth(quantizers)).to(device)
    torch.distributed.all_reduce(growth, torch.distributed.ReduceOp.MAX, group=None if model is None else model.process_group)
    network.set_range_growth(quantizers, growth.cpu().numpy())


def average(gradients):
    """Averages tensors over the processes in place."""
    for gradient in gradients:
        torch.distributed.all_reduce(gradient)
        gradient /= torch.distributed.get_world_size()
