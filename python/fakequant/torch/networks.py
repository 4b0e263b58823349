"""quantize: networks of torch on the library's codes."""
import collections.abc
import dataclasses
import difflib
import inspect
import warnings

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from .. import _fakequant as _fq
from .attach import Attaching
from .attention import Attention, dot_product
from .codes import Codes
from .defaults import completed
from .functions import checked
from .layers import NoLayer, has_matrix, require
from .multihead import MultiheadCall, quantized_multihead
from .names import Names, joined
from .nodes import has_hooks
from .part_codes import codes_of
from .parts import Layers, is_torchs_own, read
from .program import check_arguments, run, steps_of
from .quantizer_state import QuantizerState, note_missing
from .routes import Calls, lead
from .steps import attention_calls, hidden, stay_with_torch, with_codes


#: What a module that is quantized by its children says of itself.
STAYS = "_fakequant_stays"
#: In the library's messages, between the name of a layer and the reason.
STAYS_IN_FLOATS = "' stays in floats: "


class Quantized(nn.Module):
    """What `quantize` makes: the model's own children and parameters under their own names, and a forward that runs the parts
    that the library has as `Codes`, everything else by torch.

    `floats` says of each operation that stays with torch why it does, `in_parts` why a network of several inputs is not one part.
    """

    def __init__(self, model, inputs, config, whole=False, path=""):
        """`path`: path of `model` in the whole model."""
        super().__init__()
        for name, child in model._modules.items():
            self.add_module(name, child)
        for name, parameter in model._parameters.items():  # `bias` may be None
            self.register_parameter(name, parameter)
        for name, buffer in model._buffers.items():
            self.register_buffer(name, buffer, name not in model._non_persistent_buffers_set)
        if has_hooks(model):
            raise NoLayer("it has hooks, which torch runs")
        self.origin, self._own = type(model), {name: value for name, value in vars(model).items()
                                                if name not in self.__dict__ and not name.startswith("_")}
        self._held = []
        graph = read(model, inputs)
        layers = Layers(model, graph, path)
        parts, self.in_parts = layers.whole(graph) if whole else ([], "")
        parts = parts or layers.parts(graph)
        attends = attention_calls(model, graph, layers, parts, config)
        self.floats, own = stay_with_torch(layers, attends)
        self.why = {path: why for node, why in layers.reasons.items() if node not in attends for path in layers.modules_of(node)}
        self.in_parts = "; ".join(filter(None, [self.in_parts, *(f"{name} is a part of its own: {why}" for name, why in own.items())]))
        inner = hidden(model, graph, layers, attends)
        if inner or not (parts or attends):
            raise NoLayer(f"{inner} has layers of its own" if inner else _why_nothing(model, layers))
        self._in_float = steps_of(list(graph.nodes))
        self._sources, self.edges = {}, {}
        first, last = layers.edges(graph)
        for i, part in enumerate(parts):
            self.add_module(f"codes_{i}", codes_of(part, layers, config))
            self._sources[f"codes_{i}"] = [source.name for source in part.sources]
            self.edges[f"codes_{i}"] = first in part.nodes, last in part.nodes
        for i, (node, attend) in enumerate(attends.items()):
            self.add_module(f"attends_{i}", attend)
        self._steps = with_codes(graph, {f"codes_{i}": part for i, part in enumerate(parts)}, list(attends))
        self._watched = with_codes(graph, {}, list(attends))
        self.absent = layers.absent()
        self.train(model.training)
        self.watch = self._token_mask = None  # what calibration sees the values with, and the mask of their positions

    def hold(self):
        """Remembers the modules: a layer that is replaced later is an error."""
        self._held = [(parent, name, child) for parent in self.modules() if not isinstance(parent, Codes)
                      for name, child in parent._modules.items() if not isinstance(child, QuantizerState)]

    def forward(self, *inputs, **named):
        for parent, name, child in self._held:
            if parent._modules.get(name) is not child:
                raise _fq.ArgumentError(f"[fakequant.torch] '{name}' of {type(parent).__name__} is another module than the one that was "
                                        "quantized: change the model before quantize")
        return run(self, self._steps if self.watch is None else self._watched, inputs, named, self.watch)

    def __getattr__(self, name):
        """Values of the model's own; what its methods would run are modules in floats."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
        if name in self._own:
            return self._own[name]
        if hasattr(self.origin, name):
            raise AttributeError(f"[fakequant.torch] a quantized model has the forward of {self.origin.__name__} alone: call "
                                 f"{self.origin.__name__}.{name}(model, ..) where that is to call the model")
        raise AttributeError(f"the quantized {self.origin.__name__} has no attribute '{name}'")

    def __getitem__(self, index):
        """A layer of a Sequential, as torch has it."""
        if not issubclass(self.origin, nn.Sequential):
            raise TypeError(f"a quantized {self.origin.__name__} has no items")
        return [child for name, child in self.named_children() if name.isdigit()][index]

    def __prepare_scriptable__(self):
        raise _fq.ArgumentError("[fakequant.torch] torch.jit cannot compile parts on codes: fakequant.torch.export writes the file")

    def check_arguments(self, inputs, named):
        """Raises TypeError for arguments that the forward does not have."""
        check_arguments(self, self._steps, inputs, named)

    def in_float(self, *inputs, **named):
        """What the model gives without quantizers."""
        return run(self, self._in_float, inputs, named)

    def one_part(self):
        """The codes that are all of the model, or None."""
        own = [step.target for step in self._steps if step.kind not in ("placeholder", "output")]
        return getattr(self, own[0]) if len(own) == 1 and own[0] in self._sources else None

    def inputs_of_part(self, args, named):
        """What `one_part` reads of the model's arguments."""
        names = {step.name: step.target for step in self._steps if step.kind == "placeholder"}
        given = dict(zip(names.values(), args)) | named
        ((*sources,),) = self._sources.values()
        return [given[names[source]] for source in sources]

    def codes(self):
        """The parts that the library runs, by name, but for attention of several inputs."""
        return {name: getattr(self, name) for name in self._sources}

    def watching(self):
        """Computes in floats and keeps the inputs of the parts: {name of codes: list of (inputs of a call, mask of positions)}."""
        kept, seen = {name: [] for name in self._sources}, {}

        def keep(value_name, value):
            readers = {name: sources for name, sources in self._sources.items() if value_name in sources}
            if not readers:
                return value
            value = value.float() if checked(value, "calibrate").is_floating_point() else value  # as the parts take it
            seen[value_name] = value.detach().clone()  # torch may write to it
            for name, sources in readers.items():
                if value_name == sources[-1]:
                    kept[name].append(([seen[source] for source in sources], self._token_mask))
            return value
        self.watch = keep
        return kept

    def stop_watching(self):
        self.watch = None

    def extra_repr(self):
        return listed(self.floats)


def _why_nothing(model, layers):
    """Why no operator of a module is on codes. Only a module with matrices has a reason to be."""
    text = f"{type(model).__name__} is not quantized"
    if is_torchs_own(model) or all(parameter.dim() < 2 for parameter in model.parameters()):
        return text
    of_weights = [why for node, why in layers.reasons.items() if layers.modules_of(node)]
    return ": ".join([text, *(of_weights or list(layers.reasons.values()))[:1]])


def listed(floats):
    return "; ".join(f"{name} stays with torch: {why}" for name, why in floats.items())


@dataclasses.dataclass
class _Children:
    """Facts about a model that is quantized by its children."""
    calls: Calls
    config: dict
    stands_for: dict = dataclasses.field(default_factory=dict)  # {module of the float model: module of the quantized one}


def _by_children(model, known, why, path=""):
    """A copy of a module that torch.fx cannot read, of the same parameters, in which those below are quantized that it can."""
    out = known.stands_for[model] = _shallow_copy(model)
    out.__dict__[STAYS] = why
    if is_parametrized(model):
        return out
    made = {child: _quantized_child(child, known, joined(path, name)) for name, child in model.named_children()}
    out._modules = {name: made.get(child) for name, child in model._modules.items()}
    if isinstance(out, nn.TransformerEncoderLayer):
        out.activation_relu_or_gelu = 0  # or it would pass by its children in evaluation
    if model in known.calls.attention:
        names = Names(model, path)
        lead(out, [dot_product(shapes, scale, known.config, names.of_module("")) for shapes, scale in known.calls.attention[model]])
    return out


def _shallow_copy(module):
    """A module of the same parameters and children. copy.copy refuses parametrized modules."""
    out = object.__new__(type(module))
    out.__dict__.update(module.__dict__)
    return out


def _quantized_child(child, known, path):
    calls = known.calls
    try:
        require(not is_parametrized(child), "torch computes its weight again in each call (parametrize)")
        if type(child) is nn.MultiheadAttention and child in calls.arguments:
            known.stands_for[child] = quantized_multihead(child, *calls.arguments[child], known.config, path)
            return known.stands_for[child]
        if child in calls.inputs:
            known.stands_for[child] = Quantized(child, calls.inputs[child], known.config, path=path)
            return known.stands_for[child]
        why = "it is called with other arguments than tensors" if child in calls.arguments else "example_input does not call it"
    except NoLayer as reason:
        why = str(reason)
    return _by_children(child, known, why, path)


def parts_of(model):
    """What is quantized in a model, in the order of its modules."""
    return [part for part in model.modules() if isinstance(part, (Quantized, Attention))]


def quantize(model, config="int8", example_input=None, whole=True):
    """The model with its layers on codes: the name of a preset or a config (a dict or JSON), and an input, or a tuple of them, by
    which shapes are known. Parameters are shared with `model`, which is not changed; what the library has not stays with torch
    (`floats` of each `Quantized` says why). Where torch.fx cannot read the model's forward, its submodules are quantized one by
    one. Calibrate it before its first use.

    Where all of a model of several inputs is layers of the library, it becomes one part, of which those of `example_input` are the
    lengths; `export` and `verify` want that. `whole` = False leaves attention of inputs of its own as parts whose lengths may change.

    A preset of few bits gets what `fakequant qat` gives it: 8 bits in the first and the last layer of the model, ranges of least
    squared error, and ranges that are parameters; rates are those of `parameter_groups`.
    """
    if not isinstance(model, nn.Module):
        raise _fq.ArgumentError(f"[quantize] model is a {type(model).__name__}: give an nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise _fq.ArgumentError("[quantize] model is a ScriptModule, which cannot be read: give the module that it was made of")
    if parts_of(model):
        raise _fq.ArgumentError("[quantize] the model is quantized already: give the model of before")
    config, learned = completed(config)
    if example_input is None:
        raise _fq.ArgumentError("[quantize] example_input is None: give an input of the model, such as next(iter(loader))[0]")
    _check_types((name, module) for name, module in model.named_modules() if has_matrix(module))
    out, stands_for, calls = _quantized(model, *arguments_of(example_input), config, whole)
    on_codes = {place.module for codes in codes_of_model(out) for place in codes.places()}
    _check_types((name, module) for name, module in model.named_modules() if module in on_codes)
    for codes, edges in _codes_and_edges(out, stands_for, calls):
        codes.configure(config, learned, edges)
    _attach_states(out, stands_for)
    from .report import floats_warning  # which imports this module
    for message in [*_told(out), *_without_weights(model, out), *floats_warning(out, model, *arguments_of(example_input))]:
        warnings.warn(message, _fq.FakequantWarning, stacklevel=2)
    return out


def _without_weights(model, out):
    """Returns the warning of attention whose weights the model may read, in a list."""
    modules = [module for m in (model, out) for module in m.named_modules()]
    read = [call._module[0] for call in out.modules() if isinstance(call, MultiheadCall) and call.weights_read]
    names = list(dict.fromkeys(name for name, module in modules if module in read))
    return [f"[quantize] {', '.join(map(repr, names))}: the attention weights are None. Call attention with need_weights=False if the model "
            "does not read them"] if names else []


def codes_of_model(model):
    """Returns the parts of a model that run on codes, attention included, in the order of its modules."""
    return [codes for part in parts_of(model) for codes in part.codes().values()]


def _codes_and_edges(model, stands_for, calls):
    """(Codes, (whether the first layer of the whole model is in it, whether the last one is)). Attention has neither."""
    was = {id(now): before for before, now in stands_for.items()}
    for part in parts_of(model):
        inside = set(was[id(part)].modules()) if id(part) in was and calls is not None else None
        ends = (True, True) if calls is None else (inside is not None and calls.first in inside, inside is not None and calls.last in inside)
        for name, codes in part.codes().items():
            first, last = part.edges[name] if isinstance(part, Quantized) else (False, False)
            yield codes, (first and ends[0], last and ends[1])


def _attach_states(model, stands_for):
    """State of quantizers belongs to the modules of their layers: files and optimizers know it by the paths of these."""
    attaching, all_codes = Attaching(model, stands_for), codes_of_model(model)
    for codes in all_codes:
        for path, state in codes.states.items():
            attaching.attach(path, state)
    for codes in all_codes:
        codes.move(attaching.moved)
    model.register_load_state_dict_post_hook(note_missing)
    for module in model.modules():
        if isinstance(module, Quantized):
            module.hold()


def _told(model):
    """Returns the warnings of the library about a model that is one part, and a warning for each pattern that matches in no part."""
    parts = codes_of_model(model)
    told = [message for message in parts[0].told if STAYS_IN_FLOATS not in message] if len(parts) == 1 else []  # floats_warning tells it
    names = list(dict.fromkeys(name for codes in parts for name in codes.names))
    for pattern in parts[0].unmatched:
        if all(pattern in codes.unmatched for codes in parts) and not pattern.startswith(("@first", "@last", "@residual")):
            told.append(f"the pattern '{pattern}' matches no quantizer: the nearest are {', '.join(nearest(pattern, names))}")
    return told


def nearest(pattern, names):
    """The names that are most like a pattern."""
    return difflib.get_close_matches(pattern.strip("*"), names, 3, 0)


def arguments_of(batch):
    """(positional, by name) of an input: a tensor, a tuple of them, or a dict of arguments."""
    if isinstance(batch, collections.abc.Mapping):
        return (), dict(batch)
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {}


def _bound(model, inputs, named):
    """The arguments of a call of the model. Raises ArgumentError where its forward has others."""
    try:
        return inspect.signature(model.forward).bind(*inputs, **named)
    except TypeError as why:
        if named:
            raise _fq.ArgumentError(f"[quantize] example_input is a dict of {', '.join(named)}, {type(model).__name__}.forward: {why}. Keys are "
                                    "the names of arguments; a dict that is one argument is {'batch': batch}") from why
        raise _fq.ArgumentError(f"[quantize] example_input is {len(inputs)} inputs of {type(model).__name__}, {why}: give an input, or a "
                                "tuple of them; a list that is one input is ([..],)") from why


def _check_types(modules):
    """Raises ArgumentError for parameters and statistics of (name, module) that the library cannot compute with."""
    for path, module in modules:
        for name, value in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if value.is_floating_point() and value.dtype != torch.float32:
                raise _fq.ArgumentError(f"[quantize] '{path + '.' if path else ''}{name}' is {value.dtype}: parameters of quantized layers are "
                                        "torch.float32. Call model.float() first; autocast computes the other layers in fewer bits")


def _quantized(model, inputs, named, config, whole):
    """Returns (quantized model, {module of the float model: its replacement}, Calls or None). Calls is given where the children are
    quantized one by one."""
    try:
        bound = _bound(model, inputs, named)
        if bound.kwargs:
            raise NoLayer("the model is called with arguments by name alone")
        inputs, named = bound.args, {}
        out = Quantized(model, inputs, config, whole)
        return out, {model: out}, None
    except NoLayer as why:
        known = _Children(Calls(model, inputs, named), config)
        out = _by_children(model, known, str(why))
        if not parts_of(out):
            from .report import reasons
            raise _fq.ArgumentError(": ".join(["[quantize] the model has no layer that can be quantized", *reasons(out)])) from why
        return out, known.stands_for, known.calls
