"""Quantized: a module of torch whose subgraphs the library runs."""
import dataclasses
import functools
import warnings

import torch
from torch import nn

from .. import _fakequant as _fq
from .attention import Attention, attention_module
from .capture.interpreter import check_arguments, make_steps, run_steps
from .capture.nodes import is_tensor, node_shape
from .capture.rewrite import rewrite
from .capture.trace import is_torch_layer, is_wrapped, trace
from .ops.layers import has_hooks, has_matrix
from .ops.products import Products
from .ops.refs import Unsupported
from .parts import LoweredModule
from .passes import Partition, SizeCheck, lower
from .state import QuantizerState, shallow_copy
from .tensors import as_float32, checked


def _trace(model, inputs, whole):
    """Returns (graph, whether it has the sizes of the inputs as numbers). The forward of a whole model of images may depend on their size."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    may_fix = whole and len(tensors) == len(inputs) and all(x.dim() > 3 for x in tensors)
    try:
        graph = trace(model, inputs)
        if not may_fix or not any(is_wrapped(node.op, node.target) for node in graph.nodes):
            return graph, False
    except Unsupported:
        if not may_fix:
            raise
        return trace(model, inputs, fixed_sizes=True), True
    try:
        return trace(model, inputs, fixed_sizes=True), True
    except Unsupported:
        return graph, False


class Quantized(nn.Module):
    """The result of `quantize`: a module with the children and parameters of the model under their own names. The library runs its
    subgraphs, and torch runs the other operations.

    `floats` is {operation: why torch runs it}. `part_reasons` is why a model of several inputs is not one part.
    """

    def __init__(self, model, inputs, config, whole=False, path=""):
        """`path` is the path of `model` in the whole model. Raises Unsupported if the library can run nothing of it."""
        nn.Module.__init__(self)  # not of the class of a layer
        self._take_members(model)
        graph, has_sizes = _trace(model, inputs, whole)
        self._float_steps = make_steps(graph)
        rewrite(graph, model, any_size=not whole)
        partition, subgraphs, lowered = self._build_parts(model, graph, config, whole, path)
        self._layers, self._alone = _layer_inputs(graph, partition), {}
        attention = {}
        for node in partition.attention_nodes(subgraphs):
            try:
                attention[node] = attention_module(node, partition, config)
            except Unsupported as why:
                partition.unsupported[node] = str(why)
        self._set_reasons(partition, attention)
        parent = partition.unsupported_parent(attention)
        if parent or not (subgraphs or attention):
            raise Unsupported(f"{parent} has layers of its own" if parent else _no_layer_reason(model, partition))
        self._inputs, self.edges = {}, {}  # {name of a lowered module: names of values}, {name: (has first layer, has last layer)}
        first, last = partition.edge_nodes()
        for i, subgraph in enumerate(subgraphs):
            self.add_module(f"codes_{i}", lowered[i])
            self._inputs[f"codes_{i}"] = [node.name for node in subgraph.inputs]
            self.edges[f"codes_{i}"] = first in subgraph.nodes, last in subgraph.nodes
        for i, module in enumerate(attention.values()):
            self.add_module(f"attends_{i}", module)
        self.fixed_shapes = {node.target: node_shape(node)[1:] for node in graph.nodes if node.op == "placeholder"} if has_sizes else {}
        self._sizes = SizeCheck(graph, partition, subgraphs)
        self._recording_steps = make_steps(graph, attention=list(attention))
        self._steps = make_steps(graph, {f"codes_{i}": subgraph for i, subgraph in enumerate(subgraphs)}, list(attention))
        self.fixed_inputs = partition.fixed_inputs()
        self.training = model.training
        for own in (*self.lowered_modules().values(), *attention.values()):
            own.train(model.training)

    def _build_parts(self, model, graph, config, whole, path):
        """Returns the Partition, its subgraphs and their LoweredModules. Torch runs a node whose layer the library rejects."""
        rejected = {}
        while True:
            partition = Partition(model, graph, path, any_size=not whole, rejected=rejected)
            subgraphs, self.part_reasons = partition.whole() if whole else ([], "")
            subgraphs, lowered = subgraphs or partition.subgraphs(), []
            hidden = {node: "its value is not a tensor" for node in partition.readers_of_hidden_values(subgraphs)}
            if hidden.keys() - rejected.keys():
                rejected |= hidden
                continue
            for subgraph in subgraphs:
                try:
                    lowered.append(lower(subgraph, partition, config))
                    lowered[-1].build()
                except _fq.ArgumentError as why:
                    node = partition.find_node(subgraph, str(why))
                    if node is None or node in rejected:
                        raise
                    rejected[node] = str(why).partition(": ")[2]
                    break
            else:
                return partition, subgraphs, lowered

    def _take_members(self, model):
        """Registers the children, parameters and buffers of the model, which both share."""
        for name, child in model._modules.items():
            self.add_module(name, child)
        for name, parameter in model._parameters.items():  # `bias` may be None
            self.register_parameter(name, parameter)
        for name, buffer in model._buffers.items():
            self.register_buffer(name, buffer, name not in model._non_persistent_buffers_set)
        if has_hooks(model):
            raise Unsupported("it has hooks, which torch runs")
        self.origin, self._own = type(model), {name: value for name, value in vars(model).items()
                                               if name not in self.__dict__ and not name.startswith("_")}
        self._structure, self._frozen = [], _kept_in_evaluation(model)
        self._observe = self._token_mask = None  # function that records inputs, and the mask of their positions, in calibration

    def _set_reasons(self, partition, attention):
        self.floats, by_itself = partition.reasons(attention)
        self.module_reasons = {path: why for node, why in partition.unsupported.items() if node not in attention
                               for path in partition.parameter_modules(node)}
        self.part_reasons = "; ".join(filter(None, [
            self.part_reasons, *(f"{name} is a separate part: {why}" for name, why in by_itself.items())]))

    def remember_structure(self):
        """Remembers the modules. A layer that is replaced later is an error."""
        self._structure = [(parent, name, child) for parent in self.modules() if not isinstance(parent, LoweredModule)
                           for name, child in parent._modules.items() if not isinstance(child, QuantizerState)]

    def follow_structure(self):
        """Runs each layer by itself while a module wraps one of them, as adapters of peft do, because the wrapper calls the layer."""
        is_wrapped = False
        for parent, name, child in self._structure:
            now = parent._modules.get(name)
            if now is child:
                continue
            is_wrapped = True
            if now is None or all(module is not child for module in now.modules()):
                raise _fq.ArgumentError(f"[fakequant.torch] '{name}' of {type(parent).__name__} is another module than the one that was "
                                        "quantized: change the model before quantize, or wrap the layer in a module that calls it")
        if is_wrapped and not self._alone:
            self._separate_layers()
        elif self._alone and not is_wrapped:
            self._join_layers()

    def _separate_layers(self):
        """Makes each layer with a matrix a Quantized of its own, with the quantizers that it has in its part."""
        originals, used = {}, set()
        for parent, name, child in self._structure:
            originals.setdefault(id(parent._modules[name]), child)
        parts = [lowered for name in self._inputs for lowered in [getattr(self, name)]]
        for path, (full_path, shape) in self._layers.items():
            now = self.get_submodule(path)
            layer = originals.get(id(now), now)
            copies = [module for module in now.modules() if type(module) is type(layer) and "weight_quantizer" in module._modules]
            for module in dict.fromkeys([layer, *copies]):
                for lowered in parts:
                    if any(ref.module is layer for ref in lowered.refs.values()):
                        self._alone[module] = type(module), module.__dict__
                        used |= make_layer_part(module, lowered, full_path, torch.zeros(shape, dtype=torch.float32))
        unused = [name for lowered in parts for name in lowered.states if name not in used]
        if unused:
            warnings.warn(f"[fakequant.torch] a layer is wrapped, so torch runs the operations between the layers in floats. Without "
                          f"quantizers: {', '.join(unused[:3])}{', ..' if len(unused) > 3 else ''}", _fq.FakequantWarning, stacklevel=4)

    def _join_layers(self):
        """Makes the layers modules of torch again, which the parts of this module run."""
        for layer, (kind, members) in self._alone.items():
            members["training"] = layer.training
            layer.__class__, layer.__dict__ = kind, members
        self._alone = {}

    def train(self, mode=True):
        """Sets the mode as `train` of the model, which may leave modules in evaluation (frozen batch norms)."""
        super().train(mode)
        for module in self._frozen if mode else ():
            module.training = False
        return self

    def forward(self, *inputs, **named):
        self.follow_structure()
        if self._observe is not None or self._alone:
            return run_steps(self, self._recording_steps, inputs, named, self._observe)
        if not torch.compiler.is_compiling() and self._sizes.differs(inputs, named):
            self._sizes.check(self, inputs, named)
        return self.run_layers(inputs, named)

    def run_layers(self, inputs, named):
        """Returns the output of the forward, whose parts the library runs."""
        return run_steps(self, self._steps, inputs, named)

    def run_float(self, *inputs, **named):
        """Returns the output of the model without quantizers."""
        self.follow_structure()
        for layer in self._alone:
            layer._observe = lambda name, value: value
        try:
            return run_steps(self, self._float_steps, inputs, named)
        finally:
            for layer in self._alone:
                layer._observe = None

    def check_arguments(self, inputs, named):
        """Raises TypeError for arguments that the forward does not have."""
        check_arguments(self, self._steps, inputs, named)

    def lowered_modules(self):
        """Returns {name: LoweredModule}, without attention. Wrapped layers are parts by themselves."""
        return {name: getattr(self, name) for name in self._inputs if not self._alone}

    def only_module(self):
        """Returns the LoweredModule that is all of the model, or None."""
        called = [step.target for step in self._steps if step.op not in ("placeholder", "output") and not self._alone]
        return getattr(self, called[0]) if len(called) == 1 and called[0] in self._inputs else None

    def argument_names(self):
        """Returns the names of the arguments of the forward. `*` precedes names of *args and **kwargs."""
        return [step.target for step in self._steps if step.op == "placeholder"]

    def module_inputs(self, args, named):
        """Returns the arguments of the model that `only_module` reads."""
        targets = {step.name: step.target for step in self._steps if step.op == "placeholder"}
        given = dict(zip(targets.values(), args)) | named
        ((*names,),) = self._inputs.values()
        return [given[targets[name]] for name in names]

    def record_inputs(self):
        """Computes in floats until `stop_recording`. Returns {name of a lowered module: list of (inputs of a call, mask of positions)}, which
        grows with each call."""
        parts = {} if self._alone else self._inputs
        recorded, seen = {name: [] for name in parts}, {}

        def observe(value_name, value):
            readers = {name: inputs for name, inputs in parts.items() if value_name in inputs}
            if not readers:
                return value
            seen[value_name] = as_float32(checked(value, "calibrate").detach()).clone()  # torch may write to it
            for name, inputs in readers.items():
                if value_name == inputs[-1]:
                    recorded[name].append(([seen[used] for used in inputs], self._token_mask))
            types = {kind for name in readers for kind in getattr(self, name).parameter_types()} if value.is_floating_point() else ()
            return value.to(*types) if len(types) == 1 else value  # torch's layers do not take other types than their parameters'
        self._observe = observe
        return recorded

    def stop_recording(self):
        self._observe = None

    def __getattr__(self, name):
        """Returns an attribute of the model. Methods of its class would call modules in floats, and raise AttributeError."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
        if name in self._own:
            return self._own[name]
        if name in self._modules.get("parametrizations", ()):
            return self.parametrizations[name]()
        if hasattr(self.origin, name):
            raise AttributeError(f"[fakequant.torch] a quantized model has only the forward of {self.origin.__name__}: call "
                                 f"{self.origin.__name__}.{name}(model, ..) if the method calls the model")
        raise AttributeError(f"the quantized {self.origin.__name__} has no attribute '{name}'")

    def __getitem__(self, index):
        """Returns a layer of a Sequential."""
        if not issubclass(self.origin, nn.Sequential):
            raise TypeError(f"a quantized {self.origin.__name__} has no items")
        return [child for name, child in self.named_children() if name.isdigit()][index]

    def __prepare_scriptable__(self):
        raise _fq.ArgumentError("[fakequant.torch] torch.jit cannot compile parts on codes: fakequant.torch.export writes the file")

    def extra_repr(self):
        return list_reasons(self.floats)


def _kept_in_evaluation(model):
    """Returns the submodules that `train` of the model leaves in evaluation."""
    if type(model).train is nn.Module.train:
        return []
    modes = {module: module.training for module in model.modules()}
    try:
        model.train()
        return [module for module in modes if not module.training and module is not model]
    finally:
        for module, mode in modes.items():
            module.training = mode


# Quantized layers are layers of torch too, because users and peft look for nn.Linear.

@functools.cache
def _layer_class(origin):
    """Returns a subclass of Quantized and of the class of a layer."""
    return type(f"Quantized{origin.__name__}", (Quantized, origin), {
        "__module__": __name__, "__reduce_ex__": lambda self, protocol: (_new_layer, (origin,), self.__dict__),
        "extra_repr": lambda self: ", ".join(filter(None, [origin.extra_repr(self), list_reasons(self.floats)]))})


def _new_layer(origin):
    kind = _layer_class(origin)
    return kind.__new__(kind)


def quantized(model, inputs, config, whole=False, path=""):
    """Returns a Quantized with the arguments of its constructor. Of one layer it is an instance of the class of the layer too."""
    return (_layer_class(type(model)) if _is_layer(model) else Quantized)(model, inputs, config, whole, path)


def _is_layer(module):
    """Returns whether a module is one layer with a matrix. nn.MultiheadAttention is several."""
    return has_matrix(module) and all(isinstance(child, QuantizerState) for child in module.children())


def _layer_inputs(graph, partition):
    """Returns {path of a layer with a matrix: (its path in the whole model, shape of its input)}."""
    out = {}
    for node in graph.nodes:
        if node.op != "call_module" or node not in partition.lowered or not _is_layer(partition.module(node)):
            continue
        if node.args and is_tensor(node.args[0]):
            out.setdefault(node.target, (partition.layer_names.full_path(node.target), node_shape(node.args[0])))
    return out


def make_layer_part(layer, lowered, path, x):
    """Makes a layer of a part a Quantized in place. It shares the quantizers that the layer has in the part `lowered`.

    `path` is the path of the layer in the whole model, `x` an input in float32. Returns the names of the quantizers.
    """
    # Without hooks, and with plain parameters, because fully_shard may have sharded the parameters or converted their type.
    twin = shallow_copy(layer)
    twin.__dict__ |= {name: value for name, value in vars(nn.Module()).items() if "_hooks" in name}
    twin._parameters = {name: None if value is None else nn.Parameter(torch.zeros(value.shape, dtype=torch.float32))
                        for name, value in layer._parameters.items()}
    part = quantized(twin, (x,), lowered._config, path=path)
    (own,) = part.lowered_modules().values()
    known = {alias: row["name"] for row in lowered.network.quantizers() if row["enabled"] for alias in (row["name"], *row["aliases"])}
    own.configure(lowered._config, lowered._learned, (False, False))
    off = [name for name in own.states if name not in known]
    if off:
        own.states = {}
        rules = [*lowered._config.get("rules", []), *({"pattern": name, "enable": False} for name in off)]
        own.configure({**lowered._config, "rules": rules}, lowered._learned, (False, False))
    used = {name: known[name] for name in own.states}
    own.states = {name: layer._modules.get(name.rpartition(".")[2], lowered.states[source]) for name, source in used.items()}
    others = {name: value for name, value in vars(layer).items() if "_hooks" in name or (name[0] == "_" and name not in vars(part))}
    part.__dict__ |= {"_parameters": layer._parameters, "_buffers": layer._buffers, "training": layer.training, **others}
    own.train(layer.training).output_type = lowered.output_type
    layer.__class__, layer.__dict__ = type(part), part.__dict__
    own.redirect(lambda refs: {name: dataclasses.replace(ref, module=layer) for name, ref in refs.items()})
    own.forget_pushed()
    return set(used.values())


def _no_layer_reason(model, partition):
    """Returns why the library runs no operator of a module. Only a module with matrices has a specific reason."""
    text = f"{type(model).__name__} is not quantized"
    if is_torch_layer(model) or all(parameter.dim() < 2 for parameter in model.parameters()):
        return text
    with_parameters = [why for node, why in partition.unsupported.items() if partition.parameter_modules(node)]
    return ": ".join([text, *(with_parameters or list(partition.unsupported.values()))[:1]])


def list_reasons(floats):
    return "; ".join(f"{name} stays with torch: {why}" for name, why in floats.items())


def quantized_parts(model):
    """Returns the Quantized, Attention and Products modules of a model, in the order of its modules."""
    for module in list(model.modules()):
        if isinstance(module, Quantized):
            module.follow_structure()
    return [part for part in model.modules() if isinstance(part, (Quantized, Attention, Products))]


def lowered_modules(model):
    """Returns the LoweredModules of a model, attention included, in the order of its modules."""
    return [lowered for part in quantized_parts(model) for lowered in part.lowered_modules().values()]


def only_module(model):
    """Returns the LoweredModule that is all of a model, or None."""
    return model.only_module() if isinstance(model, Quantized) else None


def require_parts(model, function):
    """Returns `quantized_parts`. Raises ArgumentError if there are none. `function` is the name for the message."""
    parts = quantized_parts(model)
    if not parts:
        raise _fq.ArgumentError(f"[{function}] no part of the model is quantized: use the result of fakequant.torch.quantize")
    return parts
