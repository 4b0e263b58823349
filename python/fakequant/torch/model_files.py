"""Files of trained transformers: GGUF for llama.cpp, and safetensors folders with the names of ModelOpt and compressed-tensors."""
import json
import os
import shutil
import tempfile

from torch import nn

from .. import _fakequant as _fq
from ..verify import file_error, require_folder
from .modules import lowered_modules, require_parts
from .state import QuantizerState, describe

_FORMATS = "onnx", "gguf", "modelopt", "compressed-tensors"
_CONFIGS = {"modelopt": "hf_quant_config.json", "compressed-tensors": "config.json"}
_WEIGHTS = "model.safetensors"
#: Architectures that the writer of GGUF files supports.
_GGUF_NETWORKS = "GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
_GGUF_PRESETS = "quantize with the preset 'q4_0' or 'q8_0'"
#: Words of the command in messages of the library, and the words for Python.
_WORDS = {"--target tensorrt": '"target": "tensorrt"', "--target none": '"target": "none"', "--format safetensors": 'format="modelopt"'}

#: {class of a wrapper: its attribute with the model}.
_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}


def file_format(path, format=""):
    """Returns the format of an exported file: `format`, else by the ending of the path."""
    path, (_, ending) = os.fspath(path), os.path.splitext(path)
    if format and format not in _FORMATS:
        raise _fq.ArgumentError(f"[export] format is {format!r}: use {', '.join(_FORMATS)}")
    if format in _CONFIGS and ending == ".safetensors":
        raise _fq.ArgumentError(f"[export] path is {path}: use the folder for model.safetensors and its config files")
    if format:
        return format
    if os.path.isdir(path) or not ending:
        return "modelopt"
    if ending not in (".onnx", ".gguf"):
        raise _fq.ArgumentError(f"[export] path is {path}: use a file that ends in .onnx or .gguf, or a folder. format= sets another format")
    return ending[1:]


def export_model_file(model, path, format, tokenizer=None):
    """Writes the GGUF file or the folder of `export`."""
    require_parts(model, "export")
    if type(model).__name__ in _WRAPPERS:
        raise _fq.ArgumentError(f"[export] model is a {type(model).__name__}: use model.{_WRAPPERS[type(model).__name__]}")
    if hasattr(model, "peft_config"):
        raise _fq.ArgumentError(f"[export] model is a {type(model).__name__} with adapters, which the file cannot have: call "
                                "merge_and_unload() and calibrate first")
    for lowered in lowered_modules(model):
        lowered.check_calibrated("export")
    if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
        raise _fq.ArgumentError(f"[export] tokenizer is a {type(tokenizer).__name__}: use a tokenizer of transformers")
    require_folder("export", path)
    if format == "gguf":
        _export_gguf(model, os.fspath(path), tokenizer)
    else:
        _export_folder(model, os.fspath(path), format, tokenizer)


# Float weights and configs.

def _safetensors():
    try:
        import safetensors.torch
    except ImportError:
        raise _fq.ArgumentError("[export] this Python has no safetensors: pip install safetensors") from None
    return safetensors.torch


def _float_tensors(model):
    """Returns {name: tensor} of the parameters and persistent buffers, without the state of quantizers."""
    states = tuple(f"{path}." for path, module in model.named_modules() if isinstance(module, QuantizerState))
    out = {name: value.detach() for name, value in model.state_dict().items() if not name.startswith(states)}
    sharded = [name for name, value in out.items() if hasattr(value, "placements")]
    if sharded:
        raise _fq.ArgumentError(f"[export] '{sharded[0]}' is sharded over processes: gather the state dict in a model of one process")
    return out


def _tied_groups(tensors):
    """Returns lists of names whose tensors are the same memory."""
    groups = {}
    for name, value in tensors.items():
        if value.numel():
            groups.setdefault((value.data_ptr(), tuple(value.shape), value.stride()), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def own_memory(value):
    """Returns a tensor that is all of its memory. A part of a larger tensor is copied."""
    return value.clone() if value.untyped_storage().nbytes() > value.numel() * value.element_size() else value


def _write_weights(tensors, folder):
    _safetensors().save_file({name: own_memory(value.cpu().contiguous()) for name, value in tensors.items()}, os.path.join(folder, _WEIGHTS),
                             {"format": "pt"})


def _model_class(model):
    """Returns the class before quantize."""
    return getattr(model, "origin", type(model))


def _write_config(model, folder, **changes):
    """Writes config.json with other values of some keys. A model without a config of transformers has only these keys."""
    path, values = os.path.join(folder, "config.json"), {}
    if hasattr(getattr(model, "config", None), "save_pretrained"):
        model.config.save_pretrained(folder)
        values = _read_json(path) | {"architectures": [_model_class(model).__name__]}
    if values or changes:
        _write_json(path, values | changes)


def _read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _write_json(path, values):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
        file.write("\n")


# GGUF.

def _export_gguf(model, path, tokenizer):
    name = _model_class(model).__name__
    if name not in _GGUF_NETWORKS or not hasattr(model, "config"):
        raise _fq.ArgumentError(f"[export] a GGUF file of {name} is not supported: {', '.join(_GGUF_NETWORKS)} of transformers are. Export an "
                                "ONNX file, or a folder")
    formats = _gguf_formats(model)
    network = _library_model(model, tokenizer)
    _copy_weight_formats(network, formats)
    with tempfile.TemporaryDirectory(dir=require_folder("export", path), prefix=".fakequant-") as drafts:
        draft = os.path.join(drafts, os.path.basename(path))
        network.export(draft, format="gguf")
        if _gguf_architecture(draft) == "fakequant":
            raise _fq.ArgumentError(f"[export] llama.cpp has no architecture for the config of this {name}: it has other biases or another "
                                    "activation. Export an ONNX file, or a folder")
        os.replace(draft, path)


def _gguf_formats(model):
    """Returns {path of a layer: (settings of its weight quantizer, codes of the largest weights of blocks [N, K / 32] or None)}. Raises
    ArgumentError for quantizers that llama.cpp does not compute."""
    out = {}
    for lowered in lowered_modules(model):
        for row in lowered.network.quantizers():
            if row["enabled"]:
                path, _, role = row["name"].rpartition(".")
                state = lowered.states[row["name"]]
                _check_gguf_quantizer(row["name"], role, *state.settings_of_library())
                if role == "weight_quantizer":
                    out[path] = state.settings_of_library(), state.arrays().get("extreme_codes")
    if not out:
        raise _fq.ArgumentError(f"[export] all quantizers are off: {_GGUF_PRESETS}")
    return out


def _check_gguf_quantizer(name, role, descriptor, switches):
    """Raises ArgumentError unless a weight has blocks of ggml, and an input has llama.cpp's blocks of 8 bits."""
    if role == "weight_quantizer":
        fits = switches.get("engine_grid") in ("q4_0", "q8_0")
    else:
        fits = role == "input_quantizer" and descriptor == {"block_sizes": {"-1": 32, "type": "dynamic"}}
    if not fits:
        raise _fq.ArgumentError(f"[export] '{name}' is {describe({'descriptor': descriptor, 'switches': switches})}, which llama.cpp does not "
                                f"compute: {_GGUF_PRESETS}")


def _library_model(model, tokenizer):
    """Returns the model of the library with the float weights of a model of transformers, and its tokenizer."""
    tensors = _float_tensors(model)
    for names in _tied_groups(tensors):
        for name in names[1:]:
            del tensors[name]
    with tempfile.TemporaryDirectory() as folder:
        _write_config(model, folder)
        _write_weights({name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}, folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        try:
            return _fq.load(folder, input_shape=[model.config.max_position_embeddings])
        except _fq.FileError as error:
            reason = str(error).removeprefix("[import] ").replace(folder, "").replace("/config.json", "config.json")
            raise _fq.ArgumentError(f"[export] the library cannot read this {_model_class(model).__name__}: {reason}") from error


def _library_layers(path):
    """Returns the names of the layers in the library that have the weight of a layer of transformers. They have the rows of a Conv1D in
    equal parts."""
    parent, _, name = path.rpartition(".")
    attention = parent.endswith((".attn", ".self_attn"))
    if attention and name == "c_attn":
        return [f"{parent}.{own}" for own in ("q_proj", "k_proj", "v_proj")]
    return [f"{parent}.out_proj"] if attention and name in ("c_proj", "o_proj") else [path]


def _copy_weight_formats(network, formats):
    """Quantizes the weights of a model of the library with the formats of the layers of torch, and no other weights."""
    network.quantize("int8")  # any preset adds the quantizers, and int8 does not search the weights
    attributes, arrays = json.loads(network.quantizer_state()[1]), {}
    for key, value in attributes.items():
        if key.endswith("/switches"):
            value["enabled"] = False  # the table of tokens stays in floats, as in torch
    for path, ((descriptor, switches), codes) in formats.items():
        layers = _library_layers(path)
        for layer, part in zip(layers, [None] * len(layers) if codes is None else codes.chunk(len(layers))):
            name = f"{layer}.weight_quantizer"
            if f"{name}/switches" not in attributes:
                raise _fq.ArgumentError(f"[export] '{path}.weight_quantizer' has no place in a GGUF file. Switch it off by a rule of the config")
            attributes |= {f"{name}/descriptor": descriptor, f"{name}/switches": switches}
            arrays |= {} if part is None else {f"{name}/extreme_codes": part.contiguous()}
    network.load_quantizer_state(arrays, json.dumps(attributes))


def _gguf_architecture(path):
    """Returns the value of the first key of a file of the library, general.architecture."""
    def text(file):
        return file.read(int.from_bytes(file.read(8), "little")).decode()
    with open(path, "rb") as file:
        file.seek(24)  # magic, version, and the numbers of tensors and keys
        text(file)
        file.read(4)  # the type of the value
        return text(file)


# Folders of safetensors.

def _export_folder(model, folder, format, tokenizer):
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise file_error("export", folder, "is a file: use a folder")
    packed, layers = _packed_layers(model, format)
    tensors, changes = _float_tensors(model), {}
    groups = _tied_groups(tensors)
    for names in groups:
        if any(name.removesuffix(".weight") in layers for name in names):
            changes["tie_word_embeddings"] = False  # codes and floats of one matrix are two tensors of the file
    for names in groups:
        for name in names[1:]:
            tensors[name] = tensors[name].clone()
            if not changes:
                del tensors[name]
    for layer in layers:
        del tensors[f"{layer}.weight"]
    floats = [path for path, module in model.named_modules() if _is_matrix_layer(_model_class(module)) and path not in layers]
    with tempfile.TemporaryDirectory(dir=require_folder("export", folder), prefix=".fakequant-") as drafts:
        if format == "modelopt":
            config = _modelopt_config(layers, floats)
            _write_json(os.path.join(drafts, _CONFIGS[format]), config)
            changes["quantization_config"] = {"quant_method": "modelopt", "producer": config["producer"], **config["quantization"]}
        else:
            changes["quantization_config"] = _compressed_config(layers, floats)
        _write_config(model, drafts, **changes)
        _write_weights(tensors | packed, drafts)
        if getattr(model, "generation_config", None) is not None:
            model.generation_config.save_pretrained(drafts)
        if tokenizer is not None:
            tokenizer.save_pretrained(drafts)
        _move_files(drafts, folder)


def _is_matrix_layer(kind):
    is_conv1d = kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")
    return is_conv1d or issubclass(kind, (nn.Linear, nn.modules.conv._ConvNd))


def _move_files(drafts, folder):
    """Moves files into a folder, the weights last. Removes files of the same names and the config of another format."""
    os.makedirs(folder, exist_ok=True)
    stale = os.path.join(folder, _CONFIGS["modelopt"])
    if os.path.exists(stale):
        os.remove(stale)
    for name in sorted(os.listdir(drafts), key=lambda name: (name == _WEIGHTS, name)):
        source, target = os.path.join(drafts, name), os.path.join(folder, name)
        if os.path.isdir(source):
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            os.replace(source, target)


def _packed_layers(model, format):
    """Returns ({name: tensor} of the quantized layers, {path of a layer: its entry of the config})."""
    tensors, layers, parameters = {}, {}, dict(model.named_parameters(remove_duplicate=False))
    for lowered in lowered_modules(model):
        enabled = [row for row in lowered.network.quantizers() if row["enabled"]]
        if not enabled:
            continue
        _check_places(lowered, enabled, parameters, format)
        found, config = _part_file(lowered, format)
        own = _layer_names(found, lowered)
        names = sorted({own[name] for name in found if name.endswith(".weight_scale")})
        for name, value in found.items():
            layer, last = own[name], name.rpartition(".")[2]
            if layer in names and last == "weight" and value.numel() == parameters[f"{layer}.weight"].numel() and value.dim() != 2:
                value = value.reshape(parameters[f"{layer}.weight"].shape)
            if f"{layer}.{last}" not in lowered.refs or (last == "weight" and layer in names):
                tensors[f"{layer}.{last}"] = value
        layers |= _layer_entries(config, names, own, format)
    if not layers:
        raise _fq.ArgumentError("[export] no weight is quantized: save the float model with save_pretrained")
    return tensors, layers


def _layer_names(tensors, lowered):
    """Returns {name of a tensor in the file of a part: path of its layer}. The library writes Llama's `o_proj` for `out_proj`."""
    known, out = {node["name"] for node in lowered.nodes}, {}
    for name in tensors:
        layer = name.rpartition(".")[0]
        renamed = layer.removesuffix("o_proj") + "out_proj"
        out[name] = renamed if layer.endswith(".self_attn.o_proj") and layer not in known and renamed in known else layer
    return out


def _check_places(lowered, enabled, parameters, format):
    """Raises ArgumentError for quantizers that have no name in these formats."""
    types = {node["name"]: node["type"] for node in lowered.nodes}
    if "batch_norm" in types.values():
        raise _fq.ArgumentError(f"[export] '{next(name for name in types if types[name] == 'batch_norm')}' is a batch norm, which engines fold "
                                f"into other weights: fold it before quantize, for example with torch.fx.experimental.optimization.fuse, or "
                                "export an ONNX file")
    for row in enabled:
        layer, _, role = row["name"].rpartition(".")
        if not role.startswith(("weight_quantizer", "input_quantizer", "output_quantizer")):
            raise _fq.ArgumentError(f"[export] '{row['name']}' quantizes attention, which {format} has no names for: switch it off by a rule, "
                                    "or export an ONNX file")
        if role != "weight_quantizer":
            continue
        ref = lowered.refs.get(f"{layer}.weight")
        if ref is None or ref.rows is not None or parameters.get(f"{layer}.weight") is not getattr(ref.module, ref.name):
            raise _fq.ArgumentError(f"[export] '{row['name']}' quantizes a matrix that is not '{layer}.weight' (a part of a parameter, or "
                                    f"another call), which {format} has no name for: switch it off by a rule, or export an ONNX file")
        kind = _model_class(ref.module)
        if format == "compressed-tensors" and not issubclass(kind, nn.Linear):
            raise _fq.ArgumentError(f"[export] '{layer}' is a {kind.__name__}, and compressed-tensors has linear layers only: switch it off by a "
                                    "rule, or use format=\"modelopt\"")


def _part_file(lowered, format):
    """Returns ({name: tensor}, config) of the file of one part."""
    with tempfile.TemporaryDirectory() as folder:
        draft = os.path.join(folder, _WEIGHTS)
        try:
            lowered.share().export(draft, format=format)
        except _fq.ArgumentError as error:
            message = str(error).partition("] ")[2] or str(error)
            for word, own in _WORDS.items():
                message = message.replace(word, own)
            raise _fq.ArgumentError(f"[export] {message}") from error
        return _safetensors().load_file(draft), _read_json(os.path.join(folder, _CONFIGS[format]))


def _layer_entries(config, names, own, format):
    """Returns {path of a layer: its settings} from the config of a part."""
    if format == "modelopt":
        found = config["quantization"]
        theirs = {layer: name.removesuffix(".weight_scale") for name, layer in own.items() if name.endswith(".weight_scale")}
        shared = {key: value for key, value in found.items() if key not in ("kv_cache_quant_algo", "exclude_modules", "quantized_layers")}
        return {name: found.get("quantized_layers", {}).get(theirs[name], shared) for name in names}
    groups = config["quantization_config"]["config_groups"].values()
    by_name = {target: {key: value for key, value in group.items() if key != "targets"} for group in groups for target in group["targets"]}
    return {layer: by_name[name.removesuffix(".weight_scale")] for name, layer in own.items() if name.endswith(".weight_scale")}


def _modelopt_config(layers, floats):
    """Returns hf_quant_config.json. Equal layers share one algorithm, else each layer is listed."""
    forms = {json.dumps(entry, sort_keys=True) for entry in layers.values()}
    own = json.loads(*forms) if len(forms) == 1 else {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    producer = {"name": "fakequant", "version": _fq.__version__}
    return {"producer": producer, "quantization": own | {"kv_cache_quant_algo": None, "exclude_modules": floats}}


def _compressed_config(layers, floats):
    """Returns quantization_config of config.json. Layers with equal settings are one group."""
    groups = {}
    for layer, entry in layers.items():
        groups.setdefault(json.dumps(entry, sort_keys=True), []).append(layer)
    formats = {entry["format"] for entry in layers.values()}
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed",
            "format": formats.pop() if len(formats) == 1 else "mixed-precision", "ignore": floats, "kv_cache_scheme": None,
            "config_groups": {f"group_{i}": json.loads(text) | {"targets": names} for i, (text, names) in enumerate(groups.items())}}
