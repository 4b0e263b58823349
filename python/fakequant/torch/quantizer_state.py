"""State of quantizers as tensors at the paths of their layers: `layers.0.fc.weight_quantizer.amax`."""
import json

import torch
from torch import nn

#: Settings that calibration decides.
_CALIBRATED = ("enabled", "zero_point")
#: Settings that say how codes are made. Together with the descriptor they are the format.
_FORMAT = ("pow2", "reference", "engine_grid", "binary")
#: Fields of a descriptor that are no format.
_OTHERS = ("amax", "calib_method", "learn_amax", "name", "unsigned")
_BLOCK = 256  # bytes: settings keep their length when calibration changes some of them


class QuantizerState(nn.Module):
    """Range and settings of one quantizer.

    `amax` is the range, or a list of ranges, NaN before calibration: a parameter where ranges are learned, else a buffer, and None
    where each input has a range of its own. `growing` marks the ranges that training chooses. State dicts also have `settings`, the
    bytes of a JSON text.
    """

    def __init__(self, settings, amax, is_learned):
        super().__init__()
        self.register_buffer("pre_quant_scale", None)
        self.register_buffer("scale", None)
        self.register_buffer("growing", None)
        self._settings, self.writes, self.is_loaded = settings, 0, False
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

    def is_calibrated(self):
        """Whether the range is known or not needed."""
        return self.amax is None or not bool(self.amax.isnan().any())

    def version(self):
        """Changes with each write to settings and buffers. A learned range is a parameter, which the library shares."""
        return self.writes, [(value.data_ptr(), value._version) for value in self._buffers.values() if value is not None]

    def arrays(self):
        """{name: tensor} for the library, copies."""
        values = {"amax": self.amax if self.is_calibrated() else None, "scale": self.scale, "growing": self.growing,
                  "pre_quant_scale": self.pre_quant_scale}
        return {name: value.detach().cpu().clone() for name, value in values.items() if value is not None}

    def as_library(self):
        """(settings, {name: tensor}) for the library. A learned range is a parameter, which it shares."""
        arrays = {name: value for name, value in self.arrays().items() if name != "amax" or not self.is_learned}
        return self._settings, arrays

    def settings_of_library(self):
        """(descriptor, switches) for the library."""
        return self._settings["descriptor"], self._settings["switches"]

    def take(self, settings, arrays):
        """Takes settings and arrays from the library. Parameters keep their identity, and equal values are not written."""
        self.writes += settings != self._settings
        self._settings = settings
        if self.amax is not None and "amax" in arrays:
            self._set_amax(arrays["amax"])
        for name in ("scale", "growing", "pre_quant_scale"):
            setattr(self, name, arrays[name].clone() if name in arrays else None)

    def grows(self):
        """Whether some of the range was zero at calibration, so that training chooses it."""
        return self.growing is not None or self.amax is not None and bool((self.amax <= 2.0**-24).any())

    def _set_amax(self, value):
        """In place where its shape stays."""
        value = value.reshape(-1) if self.is_learned else value
        with torch.no_grad():
            if value.shape == self.amax.shape:
                if not torch.equal(value, self.amax.cpu()):
                    self.amax.copy_(value)
            else:
                value = value.clone().to(self.amax.device)
                self.amax = nn.Parameter(value) if self.is_learned else value

    def load(self, settings, arrays):
        """Takes the state of a quantizer of the same format. Raises ValueError naming both formats where they differ."""
        own, given = describe(self._settings), describe(settings)
        if format_of(self._settings) != format_of(settings):
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
        """Checks the format and makes room for values of other shapes."""
        self.load(settings, {})
        if "amax" in given and self.amax is not None:
            if self.is_learned:
                given["amax"] = given["amax"].reshape(-1)
            elif given["amax"].shape != self.amax.shape:
                self.amax = torch.empty_like(given["amax"], device=self.amax.device)
        for name in ("scale", "growing", "pre_quant_scale"):
            if name in given:
                setattr(self, name, torch.empty_like(given[name]))

    def extra_repr(self):
        amax = None if self.amax is None or not self.is_calibrated() else self.amax.detach()
        span = "" if amax is None else f", amax {amax.min():.4g}" + (f" .. {amax.max():.4g}" if amax.numel() > 1 else "")
        return describe(self._settings) + span + (", learned" if self.is_learned else "") + ("" if self._settings["switches"]["enabled"] else ", off")


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
        if name in out and field in ("amax", "scale", "growing", "pre_quant_scale"):
            out[name][1][field] = torch.as_tensor(value)
    return out


def _text(settings):
    return json.dumps(settings, separators=(",", ":")).encode()


def note_missing(model, keys):
    """Adds missing keys after a model has loaded a state dict. A state dict without any quantizer is a float one and lacks none."""
    states = {path: module for path, module in model.named_modules() if isinstance(module, QuantizerState)}
    if any(state.is_loaded for state in states.values()):
        keys.missing_keys.extend(f"{path}.{'settings' if state.amax is None else 'amax'}" for path, state in states.items() if not state.is_loaded)
    for state in states.values():
        state.is_loaded = False


def format_of(settings):
    """Returns the settings that decide the codes. The range is not among them."""
    descriptor, switches = settings["descriptor"], settings["switches"]
    out = {name: value for name, value in descriptor.items() if name not in _OTHERS}
    out |= {name: switches[name] for name in _FORMAT if switches.get(name) not in (None, False, "none")}
    return out if switches.get("may_become_unsigned") else out | {"unsigned": bool(descriptor.get("unsigned"))}


def describe(settings):
    """A format in words: "int4, axis 0, narrow_range"."""
    fields = format_of(settings)
    bits = fields.pop("num_bits", 8)
    words = [f"int{bits}" if isinstance(bits, int) else "e{}m{}".format(*bits)]
    for name, value in fields.items():
        if value is not False:
            words.append(name if value is True else f"{name} {json.dumps(value)}")
    return ", ".join(words)


def _with_calibrated(own, given):
    """Returns the settings `own` with the fields of `given` that calibration decides."""
    descriptor = {name: value for name, value in own["descriptor"].items() if name != "unsigned"}
    if given["descriptor"].get("unsigned"):
        descriptor["unsigned"] = True
    switches = own["switches"] | {name: given["switches"][name] for name in _CALIBRATED if name in given["switches"]}
    return {"descriptor": descriptor, "switches": switches}
