"""quantize: a model of torch with quantized layers. parameter_groups: the groups for its optimizer."""
import collections.abc
import contextlib
import dataclasses
import difflib
import inspect
import json
import warnings

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized
from torch.utils._pytree import tree_map_only

from .. import _fakequant as _fq
from .attention import MultiheadCall, dot_product, quantized_multihead, redirect_calls
from .capture.example import ExampleCalls
from .capture.nodes import LayerNames, join_path
from .capture.trace import is_torch_layer
from .modules import Quantized, lowered_modules, quantized, quantized_parts, require_parts
from .ops.layers import has_hooks, has_matrix
from .ops.products import Products
from .ops.refs import Unsupported, require
from .report import FLOAT_MESSAGE, FLOAT_REASON, count_multiply_adds, float_reasons, floats_warning
from .state import StateTree, note_missing, shallow_copy
from .tensors import PARAMETER_TYPES

#: Attribute of a quantized model: the arguments of quantize. `example` is (args, kwargs), and `excluded` are the paths of layers for which
#: filter_fn returned False.
RECIPE = "_fakequant_recipe"
_UNKNOWN_STEPS = 150  # the rate for this number of steps is better for short runs, and nearly as good for long ones


def quantize(model, config="int8", example_input=None, whole=True, filter_fn=None):
    """Returns a model whose layers compute on codes. It shares the parameters of `model`, which does not change.

    `config` is the name of a preset, or a config as a dict or JSON text. `example_input` is an input, a tuple of inputs, or a dict of
    arguments; it sets the shapes. Torch runs operations that the library does not have: `floats` of each `Quantized` has the reasons. If
    torch.fx cannot trace the forward of the model, its submodules are quantized one by one. Call `calibrate` before the first use.

    A model of several inputs becomes one part if the library can run all of it. Its lengths are the lengths of `example_input`. The forward of
    a model of images may depend on their size. `whole=False` makes attention of several inputs a part by itself, whose lengths may change,
    and leaves operators to torch whose layers would have sizes of the example.

    `filter_fn(module, path)` returns whether a layer with a matrix is quantized, as in torchao. The default is every layer.

    A preset of few bits has the choices of `fakequant qat`: 8 bits in the first and the last layer, ranges of least squared error, and
    learned ranges. `parameter_groups` has its rates.

    Parameters are float32, bfloat16 or float16 on one device. Raises ArgumentError for other parameters, an invalid config, an input that
    does not fit the model, and a model without a supported layer. Warns of products that stay in floats.
    """
    if not isinstance(model, nn.Module):
        raise _fq.ArgumentError(f"[quantize] model is a {type(model).__name__}: use an nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise _fq.ArgumentError("[quantize] model is a ScriptModule, which cannot be read: use its original nn.Module")
    if quantized_parts(model):
        raise _fq.ArgumentError("[quantize] the model is already quantized: use the float model")
    given = _config_dict(config)
    config, learned = _complete_config(given)
    excluded = _exclude_layers(config, model, filter_fn)
    if example_input is None:
        raise _fq.ArgumentError("[quantize] example_input is None: use an input of the model, for example next(iter(loader))[0]")
    args, named = split_arguments(example_input)
    with _fixed_parametrizations(model):
        _check_parameters((name, module) for name, module in model.named_modules() if has_matrix(module))
        out = _quantized_model(model, args, named, config, learned, whole)
        count_multiply_adds(out, model, args, named)
    out.__dict__[RECIPE] = {"config": given, "whole": whole, "excluded": [pattern.removesuffix(".*") for pattern in excluded],
                            "example": (_without_values(args), _without_values(named))}
    for message in [*_library_warnings(out, excluded), *_attention_weights_warning(model, out), *floats_warning(out)]:
        warnings.warn(message, _fq.FakequantWarning, stacklevel=2)
    return out


def quantize_(model, config="int8", example_input=None, whole=True, filter_fn=None):
    """Quantizes a model in place, with the arguments of `quantize`. Returns None, as the function of this name of torchao.

    The model keeps its identity. Its class becomes Quantized if torch.fx can read all of it.
    """
    out = quantize(model, config, example_input, whole, filter_fn)
    model.__class__, model.__dict__ = type(out), out.__dict__
    for lowered in lowered_modules(model):  # `out` is left to the garbage collector
        lowered.redirect(lambda refs: {name: dataclasses.replace(ref, module=model) if ref.module is out else ref for name, ref in refs.items()})
    for module in model.modules():
        if isinstance(module, Quantized):
            module.remember_structure()


def parameter_groups(model, lr=None, weight_decay=0.01, steps=None):
    """Returns the parameter groups of a quantized model for an optimizer of torch.

    `lr` is the learning rate of the weights; the default is the rate of `fakequant qat` for the format. Learned ranges have their share of
    it and no weight decay, biases and norms have no weight decay. Formats of few bits have a lower rate in runs of fewer than 300 steps:
    give the number of optimizer `steps`, 1 or more. The default is the rate of 150 steps.

        optimizer = torch.optim.AdamW(fqt.parameter_groups(model, steps=1000))
    """
    require_parts(model, "parameter_groups")
    if steps is not None and steps < 1:
        raise _fq.ArgumentError(f"[parameter_groups] steps is {steps}: use the number of optimizer steps, 1 or more")
    lowered = lowered_modules(model)
    configs = [module.network.config for module in lowered]
    defaults = [_fq.training_defaults(config, None, lr)[0] for config in configs]
    rate, range_share = max(d["learning_rate"] for d in defaults), max(d["amax_rate"] for d in defaults)
    if lr is None:
        rate = _fq.short_run_rate(rate, _UNKNOWN_STEPS if steps is None else steps, max(map(_fq.full_rate_steps, configs)))
    ranges = [parameter for module in lowered for parameter in module.ranges()]
    known = {id(parameter) for parameter in ranges}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": [p for p in others if p.dim() > 1], "lr": rate, "weight_decay": weight_decay},
              {"params": [p for p in others if p.dim() <= 1], "lr": rate, "weight_decay": 0.0},
              {"params": ranges, "lr": rate * range_share, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


# Configs.

def _complete_config(config):
    """Returns the config that the library gets, a dict, and the keyword arguments of Model.learn_ranges or None.

    A config with a preset gets the choices of the preset (edges, calibration). The keys of the config replace them, and the rules
    of the config come after them. A config without a preset is unchanged.
    """
    if not isinstance(config.get("preset"), str):
        return dict(config), None
    chosen, own = _fq.preset_config(config["preset"]), config.get("rules", [])
    rules = chosen.get("rules", []) + own if isinstance(own, list) else own
    config = chosen | config | ({"rules": rules} if rules else {})
    training, _ = _fq.training_defaults(config)
    learned = {"activations": training["amax"] == "learned", "weights": training["learn_weight_ranges"],
               "gradient": training["amax_gradient"]}
    return config, learned if learned["activations"] or learned["weights"] else None


def _exclude_layers(config, model, filter_fn):
    """Adds rules to a config that switch the layers off for which `filter_fn` returns False. Returns the patterns."""
    if filter_fn is None:
        return []
    patterns = [f"{path}.*" for path, module in model.named_modules() if has_matrix(module) and not filter_fn(module, path)]
    config["rules"] = [*config.get("rules", []), *({"pattern": pattern, "enable": False} for pattern in patterns)]
    return patterns


def _config_dict(config):
    """Returns a config as a dict, from the name of a preset, a dict or JSON text. Its rules are a list."""
    if isinstance(config, str):
        config = _parse_json(config) if "{" in config else {"preset": config}
    if not isinstance(config, collections.abc.Mapping):
        raise _fq.ArgumentError(f"[quantize] config is a {type(config).__name__}: use the name of a preset (fakequant.presets() lists "
                                "them), or a config as a dict or JSON text: quantize(model, \"int8\", example_input)")
    try:
        config = json.loads(json.dumps(dict(config)))
    except TypeError as why:
        raise _fq.ArgumentError(f"[quantize] config is not JSON ({why}): use the name of a preset, or a dict of names, numbers and "
                                "lists: quantize(model, \"int8\", example_input)") from why
    rules = config.get("rules")
    if isinstance(rules, dict) and all(isinstance(fields, dict) for fields in rules.values()):
        config["rules"] = [{"pattern": pattern} | fields for pattern, fields in rules.items()]
    return config


def _parse_json(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as why:
        raise _fq.ArgumentError(f"[quantize] config is not valid JSON: {why}") from why


# Example inputs.

def split_arguments(batch):
    """Returns (positional arguments, keyword arguments) of an input: a tensor, a tuple of tensors, or a dict of arguments."""
    if isinstance(batch, collections.abc.Mapping):
        return (), dict(batch)
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {}


def _without_values(value):
    """Returns nested arguments whose floating-point tensors are zeros that need no memory. Others keep their elements."""
    return tree_map_only(torch.Tensor, lambda x: torch.zeros((), dtype=x.dtype, device=x.device).expand(x.shape)
                         if x.is_floating_point() else x.detach().clone(), value)


def _bind(model, inputs, named):
    """Returns the arguments of a call of the model. Raises ArgumentError if its forward has others."""
    try:
        return inspect.signature(model.forward).bind(*inputs, **named)
    except TypeError as why:
        if named:
            raise _fq.ArgumentError(f"[quantize] example_input is a dict of {', '.join(named)}, {type(model).__name__}.forward: {why}. Keys are "
                                    "the names of arguments; for one argument that is a dict use {'batch': batch}") from why
        raise _fq.ArgumentError(f"[quantize] example_input is {len(inputs)} inputs of {type(model).__name__}, {why}: use an input, or a "
                                "tuple of inputs; for one input that is a list use ([..],)") from why


def _check_parameters(modules):
    """Raises ArgumentError for parameters and buffers of (path, module) with a type or a device that the library does not have."""
    devices = {}
    for path, module in modules:
        for name, value in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            name = join_path(path, name)
            if (value.is_floating_point() or value.is_complex()) and value.dtype not in PARAMETER_TYPES:
                raise _fq.ArgumentError(f"[quantize] '{name}' is {value.dtype}: parameters of quantized layers are float32, bfloat16 or "
                                        "float16. Call model.float() first")
            if value.is_meta:
                raise _fq.ArgumentError(f"[quantize] '{name}' is on the meta device and has no values: load the weights first")
            devices.setdefault(value.device, name)
    if len(devices) > 1:
        found = " and ".join(f"'{name}' on {device}" for device, name in devices.items())
        raise _fq.ArgumentError(f"[quantize] the model has {found}: move it to one device with model.to(device)")


# The quantized model.

@contextlib.contextmanager
def _fixed_parametrizations(model):
    """Sets parametrizations to evaluation: in training, spectral_norm changes its buffers when a weight is read."""
    trained = [own for module in model.modules() if isinstance(module, ParametrizationList) for own in module.modules() if own.training]
    try:
        for module in trained:
            module.training = False
        yield
    finally:
        for module in trained:
            module.training = True


def _quantized_model(model, args, named, config, learned, whole):
    """Returns the quantized model with its states."""
    out, replacements, calls = _quantized(model, args, named, config, whole)
    lowered_layers = {ref.module for lowered in lowered_modules(out) for ref in lowered.refs.values() if ref.expression is None}
    _check_parameters((name, module) for name, module in model.named_modules() if module in lowered_layers)
    for lowered, edges in _edges(out, replacements, calls):
        lowered.configure(config, learned, edges)
    _add_states(out, replacements)
    return out


def _quantized(model, inputs, named, config, whole):
    """Returns (quantized model, {module of the float model: its replacement}, ExampleCalls or None). The calls are given if the submodules
    are quantized one by one."""
    try:
        bound = _bind(model, inputs, named)
        if bound.kwargs:
            raise Unsupported("the model is called with keyword arguments only")
        inputs, named = bound.args, {}
        out = quantized(model, inputs, config, whole)
        return out, {model: out}, None
    except Unsupported as why:
        submodules = _Submodules(ExampleCalls(model, inputs, named), config)
        out = submodules.copy(model, str(why))
        if not quantized_parts(out):
            raise _fq.ArgumentError(": ".join(["[quantize] the model has no layer that can be quantized", *float_reasons(out)])) from why
        return out, submodules.replacements, submodules.calls


@dataclasses.dataclass
class _Submodules:
    """Quantizes the submodules of a model one by one. `replacements` is {module of the float model: its replacement}."""
    calls: ExampleCalls
    config: dict
    replacements: dict = dataclasses.field(default_factory=dict)

    def copy(self, model, why, path=""):
        """Returns a copy of a module that torch.fx cannot trace, with the same parameters and quantized submodules."""
        out = self.replacements[model] = shallow_copy(model)
        out.__dict__[FLOAT_REASON] = why
        if is_parametrized(model):
            return out
        children = {child: self._replace(child, join_path(path, name)) for name, child in model.named_children()}
        out._modules = {name: children.get(child) for name, child in model._modules.items()}
        if isinstance(out, nn.TransformerEncoderLayer):
            out.activation_relu_or_gelu = 0  # switches off the fast path, which does not call the children
        names, attention, products = LayerNames(model, path), self.calls.attention.get(model, ()), self._products(model, path)
        if attention or products is not None:
            redirect_calls(out, [dot_product(shapes, scale, self.config, names.module_call("")) for shapes, scale in attention], products)
        return out

    def _products(self, model, path):
        """Returns the Products of a module that is no layer of torch, or None."""
        found = self.calls.products.get(model)
        return Products(model, found, self.config, path) if found and not is_torch_layer(model) and not has_hooks(model) else None

    def _replace(self, child, path):
        calls = self.calls
        try:
            require(not is_parametrized(child) or is_torch_layer(child), "torch computes its weight again in each call (parametrize)")
            if type(child) is nn.MultiheadAttention and child in calls.arguments:
                self.replacements[child] = quantized_multihead(child, *calls.arguments[child], self.config, path)
                return self.replacements[child]
            if child in calls.inputs:
                self.replacements[child] = quantized(child, calls.inputs[child], self.config, path=path)
                return self.replacements[child]
            why = "it is called with other arguments than tensors" if child in calls.arguments else "example_input does not call it"
        except Unsupported as reason:
            why = str(reason)
        return self.copy(child, why, path)


def _edges(model, replacements, calls):
    """Yields (LoweredModule, (whether it has the first layer of the whole model, whether it has the last one)). Attention has neither."""
    originals = {id(now): before for before, now in replacements.items()}
    for part in quantized_parts(model):
        if calls is None:
            has_ends = True, True
        else:
            inside = set(originals[id(part)].modules()) if id(part) in originals else ()
            has_ends = calls.first in inside, calls.last in inside
        for name, lowered in part.lowered_modules().items():
            first, last = part.edges[name] if isinstance(part, Quantized) else (False, False)
            yield lowered, (first and has_ends[0], last and has_ends[1])


def _add_states(model, replacements):
    """Adds the quantizer states below the modules of their layers. Files and optimizers name them by these paths."""
    tree, lowered = StateTree(model, replacements), lowered_modules(model)
    for module in lowered:
        for path, state in module.states.items():
            tree.add(path, state)
    for module in lowered:
        module.redirect(tree.redirect)
    model.register_load_state_dict_post_hook(note_missing)
    for module in model.modules():
        if isinstance(module, Quantized):
            module.remember_structure()


# Warnings.

def _library_warnings(model, excluded):
    """Returns the warnings of the library if the model is one part, and a warning for each pattern that matches in no part. `excluded` are
    patterns of layers that may have no quantizer."""
    lowered = lowered_modules(model)
    found = [message for message in lowered[0].warnings if FLOAT_MESSAGE not in message] if len(lowered) == 1 else []
    names = list(dict.fromkeys(name for module in lowered for name in module.quantizer_names))
    for pattern in lowered[0].unmatched:
        if pattern not in excluded and all(pattern in module.unmatched for module in lowered) and not pattern.startswith(("@first", "@last", "@sums", "@residual")):
            found.append(f"the pattern '{pattern}' matches no quantizer: the nearest are {', '.join(nearest_names(pattern, names))}")
    return found


def nearest_names(pattern, names):
    """Returns the three names that are most like a pattern."""
    return difflib.get_close_matches(pattern.strip("*"), names, 3, 0)


def _attention_weights_warning(model, out):
    """Returns a list of at most one warning, about attention whose weights the model may read."""
    modules = [module for m in (model, out) for module in m.named_modules()]
    read = [call.module for call in out.modules() if isinstance(call, MultiheadCall) and call.weights_read]
    names = list(dict.fromkeys(name for name, module in modules if module in read))
    return [f"[quantize] {', '.join(map(repr, names))}: the attention weights are None. Call attention with need_weights=False if the model "
            "does not read them"] if names else []
