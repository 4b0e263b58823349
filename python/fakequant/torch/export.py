"""Files of quantized models: export, save, verify. load_quantized reads state dicts of ModelOpt and torchao."""
import numpy as np
import torch

from .. import _fakequant as _fq
from ..verify import compare
from .model_files import export_model_file, file_format
from .modules import Quantized, list_reasons, lowered_modules, require_parts
from .quantize import split_arguments


def export(model, path, target="ort", opset=0, emulate=False, format="", tokenizer=None):
    """Writes a file for engines. `format` is "onnx", "gguf", "modelopt" or "compressed-tensors"; the default follows from the path: .onnx,
    .gguf, and "modelopt" for a folder.

    An ONNX file has QuantizeLinear and DequantizeLinear nodes. `target` is its engine. `opset` 0 is the smallest opset that has the operators.
    `emulate` writes formats that the engine does not have as arithmetic. Raises ArgumentError if torch runs a part of the model.

    A GGUF file for llama.cpp has the codes of Llama, Mistral, Qwen2, Qwen3 or GPT-2 of transformers with the presets q4_0 and q8_0. A folder has
    model.safetensors with the tensors of ModelOpt or compressed-tensors, and the config files; layers that are not quantized stay floats of their
    type. `tokenizer` of transformers is written too. Raises ArgumentError for quantizers that the format does not have, FileError if the path
    cannot be written.
    """
    format = file_format(path, format)
    if format != "onnx":
        if target != "ort" or opset or emulate:
            raise _fq.ArgumentError(f"[export] target, opset and emulate are for ONNX, and the format is {format}")
        return export_model_file(model, path, format, tokenizer)
    if tokenizer is not None:
        raise _fq.ArgumentError("[export] tokenizer is for GGUF files and folders, and the format is onnx")
    _only_module(model, "export").share().export(path, target=target, opset=opset, emulate=emulate)


def save(model, path):
    """Writes a checkpoint that the command reads (`fakequant verify`, `evaluate`, `inspect`). Raises ArgumentError if torch runs a part of
    the model."""
    _only_module(model, "save").share().save(path)


def verify(model, path, x, batch=256):
    """Compares the file of `export` in ONNX Runtime with the model. Returns {"outputs", "different", "flips", "max"}: the number of outputs,
    of outputs with other bits, of samples with another largest output, and the largest difference.

    `x` is an input, or a tuple or dict of inputs. `batch` is the number of samples of a call.
    """
    lowered = _only_module(model, "verify")
    inputs = model.module_inputs(*split_arguments(x))

    def batches(most):
        for chunk in zip(*(value.split(most or batch) for value in inputs)):
            yield lowered.input_rows(chunk).cpu().numpy()
    return compare(lowered.share(), path, batches)


def _only_module(model, function):
    """Returns the LoweredModule that is all of a model. Raises ArgumentError with the reasons if there is none."""
    parts = require_parts(model, function)
    if parts[0] is not model or not isinstance(model, Quantized) or model.only_module() is None:
        reasons = [reason for part in parts for reason in (list_reasons(part.floats), getattr(part, "part_reasons", "")) if reason]
        raise _fq.ArgumentError(f"[{function}] torch runs a part of the model, and the file cannot have this part: "
                                + ("; ".join(dict.fromkeys(reasons)) or "it is in parts") + _transformers_hint(model))
    return model.only_module()


def _transformers_hint(model):
    if not getattr(model, "origin", type(model)).__module__.startswith("transformers."):
        return ""
    return ". For a file, call save_pretrained(FOLDER) on the float model and run fakequant import FOLDER (docs/import.md)"


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
            if name.endswith(".weight") and ref.name == "weight" and ref.rows is None and ref.module in paths}


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
