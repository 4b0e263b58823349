"""save and load: a quantized model in one file, with its config, weights, ranges and example input."""
import collections.abc
import importlib
import json
import os
import pickle
import tempfile
import warnings
import zipfile

import torch

from .. import _fakequant as _fq
from ..verify import file_error, require_folder
from .model_files import own_memory
from .modules import list_reasons, lowered_modules, only_module, require_parts
from .quantize import RECIPE, quantize

_FORMAT, _VERSION = "fakequant.torch", 1
_KEYS = {"format", "version", "description", "example", "tensors", "buffers"}
_DESCRIPTION = {"config", "whole", "excluded", "class", "network", "frozen", "training"}
_LIBRARY = "transformers."
_OTHER_FILES = ".onnx", ".gguf", ".safetensors"
#: Private attributes of a config of transformers that choose its implementations.
_IMPLEMENTATIONS = "_attn_implementation", "_experts_implementation"


# Save.

def save(model, path):
    """Writes a quantized model to one file for `load`: config, weights, ranges, example input, frozen parameters and training modes.

    The file is a dict of torch.save with tensors, numbers and texts only, which `torch.load(path, weights_only=True)` reads. Optimizers have
    state dicts of their own. A path that ends in .h5 gets a checkpoint of the command (`fakequant verify`, `evaluate`, `inspect`), which
    requires a model that is one part.

    Raises ArgumentError for a model that is not the result of quantize, FileError if the path cannot be written.
    """
    path = os.fspath(path)
    if path.endswith(_OTHER_FILES):
        raise _fq.ArgumentError(f"[save] path is {path}: export writes files for engines. save writes one file of any other ending for load")
    if path.endswith(".h5"):
        return _save_for_command(model, path)
    require_parts(model, "save")
    recipe = vars(model).get(RECIPE)
    if recipe is None:
        raise _fq.ArgumentError(f"[save] the {type(model).__name__} is not the result of quantize: use the model that quantize returned, "
                                "without wrappers")
    tensors = {name: value.detach() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    sharded = [name for name, value in tensors.items() if hasattr(value, "placements")]
    if sharded:
        raise _fq.ArgumentError(f"[save] '{sharded[0]}' is sharded over processes: use torch.distributed.checkpoint, or gather the model first")
    for lowered in lowered_modules(model):
        lowered._limit_ranges()  # as the next forward would, because load starts without the ranges of the last step
    description = {name: recipe[name] for name in ("config", "whole", "excluded")} | {
        "class": _class_name(model), "network": _network(model), "training": _modes(model),
        "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad]}
    content = {"format": _FORMAT, "version": _VERSION, "description": json.dumps(description),
               "example": [_encode(value, "example_input") for value in recipe["example"]],
               "tensors": {name: own_memory(value) for name, value in tensors.items()},
               "buffers": {name: own_memory(value.detach()) for name, value in _hidden_buffers(model, tensors)}}
    _write(content, path)


def _save_for_command(model, path):
    parts, only = require_parts(model, "save"), only_module(model)
    if only is None:
        reasons = [reason for part in parts for reason in (list_reasons(part.floats), getattr(part, "part_reasons", "")) if reason]
        raise _fq.ArgumentError("[save] torch runs a part of the model, and the checkpoint of the command cannot have this part: "
                                + ("; ".join(dict.fromkeys(reasons)) or "it is in parts") + ". export writes an ONNX file")
    only.share().save(path)


def _write(content, path):
    folder = require_folder("save", path)
    if os.path.isdir(path):
        raise file_error("save", path, "is a folder: use the name of a file")
    file, draft = tempfile.mkstemp(dir=folder, prefix=".fakequant-")
    try:
        with os.fdopen(file, "wb") as stream:
            torch.save(content, stream)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(draft, 0o666 & ~mask)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _hidden_buffers(model, tensors):
    """Returns a list of (name, value) of the floating-point buffers that state dicts do not have. `model.bfloat16()` rounds them."""
    return [(name, value) for name, value in model.named_buffers() if name not in tensors and value.is_floating_point()]


def _class_name(model):
    original = getattr(model, "origin", type(model))
    return f"{original.__module__}.{original.__qualname__}"


def _network(model):
    """Returns the config and the generation config of a model of transformers, or None for other models."""
    config = getattr(model, "config", None)
    if not _class_name(model).startswith(_LIBRARY) or not hasattr(config, "to_json_string"):
        return None
    generation = getattr(model, "generation_config", None)
    return {"config": json.loads(config.to_json_string(use_diff=False)),
            "generation": None if generation is None else json.loads(generation.to_json_string(use_diff=False)),
            "implementations": {name: getattr(config, name) for name in _IMPLEMENTATIONS if isinstance(getattr(config, name, None), str)}}


def _modes(model):
    """Returns {"": training mode of the model, path of a module in the other mode: its mode}."""
    return {path: module.training for path, module in model.named_modules() if not path or module.training != model.training}


def _encode(value, path):
    """Returns a nested value as lists of plain values: floating-point tensors by shape and type, others with their elements."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() or value.is_complex():
            return ["floats", list(value.shape), str(value.dtype).removeprefix("torch.")]
        return ["tensor", value.detach().cpu().clone()]
    if isinstance(value, collections.abc.Mapping) and all(isinstance(key, str) for key in value):
        return ["dict", {key: _encode(item, f"{path}[{key!r}]") for key, item in value.items()}]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_encode(item, f"{path}[{i}]") for i, item in enumerate(value)]]
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    raise _fq.ArgumentError(f"[save] {path} is a {type(value).__name__}, which the file cannot have: quantize with an example of tensors, "
                            "numbers, texts, lists, tuples and dicts")


# Load.

def load(path, model=None):
    """Returns the quantized model of a file of `save`, with the same bits, on the CPU.

    The class of transformers builds its model by the config in the file. Other models need `model`, the float model of the same structure and
    types; its parameters get the values of the file. Optimizers are made for the result.

    Raises FileError for a file that is missing, damaged, of another kind or of an unknown version, ArgumentError for a `model` that does not
    fit the file.
    """
    path = os.fspath(path)
    content = _read(path)
    description = _description(content, path)
    try:
        args, named = map(_decode, content["example"])
        example = dict(named) or tuple(args)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as why:
        raise file_error("load", path, f"is damaged: its example input is invalid ({why})") from why
    given = model is not None
    if given and not isinstance(model, torch.nn.Module):
        raise _fq.ArgumentError(f"[load] model is a {type(model).__name__}: use the float nn.Module")
    with torch.random.fork_rng(devices=[]):  # does not change the caller's generator
        out = _quantized_again(content, description, example, path, _build(description, path) if model is None else model, given)
    try:
        out.load_state_dict(content["tensors"])
    except RuntimeError as why:
        reason = " ".join(str(why).partition(":")[2].split())
        raise _misfit(given, path, reason) from why
    _restore_modes(out, description)
    return out


def _quantized_again(content, description, example, path, model, given):
    """Returns the quantized model of a float model, with the arguments of quantize in the file."""
    _match_types(model.state_dict(keep_vars=True), content["tensors"], given, path)
    buffers = _hidden_buffers(model, content["tensors"])
    _match_types(dict(buffers), content["buffers"], given, path)
    for name, value in buffers:
        value.copy_(content["buffers"][name])
    with torch.no_grad():  # the example reaches the experts that these weights choose
        for name, value in model.state_dict(keep_vars=True).items():
            value.copy_(content["tensors"][name])
    excluded = set(description["excluded"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", _fq.FakequantWarning)  # quantize warned before save
        return quantize(model, description["config"], _on_device(example, model), description["whole"],
                        (lambda module, path: path not in excluded) if excluded else None)


def _read(path):
    """Returns the checked content of a file."""
    if not os.path.isfile(path):
        raise file_error("load", path, "is not a file: use a file of save")
    with open(path, "rb") as file:
        if b"\x89HDF\r\n\x1a\n" in file.read(1024):
            raise file_error("load", path, "is a checkpoint of the command: use fakequant.load")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError, zipfile.BadZipFile, OSError) as why:
        reason = str(why).strip().partition("\n")[0]
        raise file_error("load", path, f"is damaged, or not a file of save: {reason}") from why
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise file_error("load", path, "is not a file of save. A state dict is loaded by load_state_dict of the quantized model")
    version = content.get("version")
    if version != _VERSION:
        raise file_error("load", path, f"has the version {version}, and this fakequant reads version {_VERSION}: update fakequant")
    _check_keys(content, _KEYS, path)
    if not all(isinstance(content[key], dict) and all(isinstance(value, torch.Tensor) for value in content[key].values())
               for key in ("tensors", "buffers")):
        raise file_error("load", path, "is damaged: its tensors are invalid")
    return content


def _check_keys(found, known, path):
    if set(found) != known:
        names = ", ".join(sorted(map(str, set(found) ^ known)))
        raise file_error("load", path, f"has unknown or missing keys: {names}. Write it again with this version of fakequant")


def _description(content, path):
    try:
        found = json.loads(content["description"])
    except (TypeError, ValueError) as why:
        raise file_error("load", path, f"is damaged: its description is not JSON ({why})") from why
    if not isinstance(found, dict):
        raise file_error("load", path, "is damaged: its description is not an object")
    _check_keys(found, _DESCRIPTION, path)
    return found


def _decode(value):
    """Returns the value that `_encode` wrote. Floating-point tensors are zeros."""
    kind, content, *rest = value
    if kind == "floats":
        return torch.zeros(content, dtype=getattr(torch, *rest))
    if kind == "dict":
        return {key: _decode(item) for key, item in content.items()}
    if kind in ("list", "tuple"):
        items = [_decode(item) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind not in ("tensor", "value"):
        raise ValueError(f"unknown kind {kind}")
    return content


def _on_device(value, model):
    """Returns an example on the device of the model."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), value)


def _build(description, path):
    """Returns the float model of a class of transformers, with random weights."""
    name, network = description["class"], description["network"]
    if network is None:
        raise _fq.ArgumentError(f"[load] model is None, and {path} has a {name}, which is not a model of transformers: use the float model, "
                                f"load(path, model={name.rpartition('.')[2]}(..))")
    module, _, last = name.rpartition(".")
    try:
        import transformers

        found = getattr(importlib.import_module(module), last, None) if module.startswith(_LIBRARY) else None
    except ImportError as why:
        raise _fq.ArgumentError(f"[load] {path} has a {name}, which this Python does not have ({why}): install transformers, or use the float "
                                "model") from why
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel) or found.config_class is None:
        raise _fq.ArgumentError(f"[load] transformers has no model {name}: use the float model, load(path, model=..)")
    config = found.config_class.from_dict(network["config"])
    for key, value in network["implementations"].items():
        setattr(config, key, value)
    out = found(config)
    if network["generation"] is not None:
        out.generation_config = transformers.GenerationConfig.from_dict(network["generation"])
    return out


def _match_types(values, tensors, given, path):
    """Gives the parameters and buffers of a model the types in the file. A model of the user has to have them."""
    for name, own in values.items():
        theirs = tensors.get(name)
        if theirs is None or own.shape != theirs.shape:
            what = "is missing" if theirs is None else f"is {list(theirs.shape)} in the file, and {list(own.shape)} in the model"
            raise _misfit(given, path, f"'{name}' {what}")
        if own.dtype == theirs.dtype:
            continue
        if given:
            kind = str(theirs.dtype).removeprefix("torch.")
            raise _fq.ArgumentError(f"[load] model: '{name}' is {own.dtype}, and {theirs.dtype} in {path}: call model.to(torch.{kind}) first")
        own.data = own.data.to(theirs.dtype)


def _misfit(given, path, reason):
    """Returns the ArgumentError for a model that does not fit a file."""
    if given:
        return _fq.ArgumentError(f"[load] model does not fit {path}: {reason}. Use the float model that was quantized")
    return _fq.ArgumentError(f"[load] the class and the config in {path} give another model: {reason}. The model was changed before quantize: "
                             "use the float model, load(path, model=..)")


def _restore_modes(model, description):
    """Sets training modes and frozen parameters as they were."""
    frozen, modes = set(description["frozen"]), description["training"]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    model.train(modes.get("", True))
    for path, module in model.named_modules():
        if path in modes:
            module.training = modes[path]
