"""LoweredModule: a subgraph of a network of torch that the library runs on codes."""
import contextlib
import json
import math
import warnings

import torch
from torch import nn

from .. import _fakequant as _fq
from .graphs import NO_GRAPH, GraphPart, LoweredFunction, output_shape, register_part
from .ops.refs import Constant
from .state import QuantizerState, RangeLimiter, average, share_growth, split_state
from .tensors import SharedParameters, by_size, checked, concatenate_calls, concatenate_masks, drop_padded_rows, is_managed, make_dense


class LoweredModule(GraphPart, nn.Module):
    """One network of the library in a network of torch.

    Its parameters, running statistics and quantizer states belong to the modules of torch, which are not its children.
    """

    def __init__(self, nodes, refs, sample_shape, classes, config, modes=None, old_names=None):
        """`nodes` and `refs` come from `model_nodes`. `modes` is {layer name: TensorRef of the training mode that the layer has}.
        `old_names` is {layer name in state dicts of version 0.1: layer name}."""
        super().__init__()
        self.nodes, self.refs, self._sample_shape, self._classes = nodes, refs, sample_shape, classes
        self._modes, self._old_names = modes or {}, old_names or {}
        for i, holder in enumerate(dict.fromkeys(ref.module for ref in refs.values() if isinstance(ref.module, Constant))):
            self.add_module(f"constant_{i}", holder)  # moves with the model to other devices
        self._config, self._learned, self._edges = config, None, (True, True)
        self.masked = 0  # number of calls and tensors with padding in the last calibration
        self._is_random = any("drop" in node["type"] for node in nodes)
        self.output_type = torch.float32  # in the example
        self._built = None  # the network without quantizers
        self._network, self._limiter, self._sets_ranges = None, RangeLimiter(), False
        self._seen, self._pushed = {}, None
        self.states = {}  # {name of a quantizer: QuantizerState}, children of the layers
        self._sizes, self.number = {}, register_part(self)  # {sample shape: shape of its output}

    def build(self):
        """Builds the network without quantizers. Raises ArgumentError if the library rejects a layer."""
        self._built = _fq.model_of_nodes(self.nodes, self._sample_shape, self._classes)

    def _build_network(self):
        """Builds the network. After a copy the quantizers get the state of the tensors at their first use."""
        self._network, self._built = self._built or _fq.model_of_nodes(self.nodes, self._sample_shape, self._classes), None
        with warnings.catch_warnings(record=True) as caught:  # quantize warns once for the whole model
            warnings.simplefilter("always")
            self.unmatched, self.quantizer_names = self._network.quantize_part(self._config, *self._edges)
        self.warnings = [str(entry.message) for entry in caught]
        if self._learned is not None:
            self._network.learn_ranges(**self._learned, calibrated=False)
        self._sizes[tuple(self._sample_shape)] = output_shape(self._network)
        self.shared, self._seen, self._pushed = SharedParameters(self._network, self.refs), {}, None
        if not self.states:
            self.states = self._new_states()
            self._freeze_ranges()
            self._mark_pushed()
        self._name_parameters()
        if self.parameter_types() - {torch.float32}:
            for state in self.states.values():
                state.stay_whole()

    @property
    def network(self):
        """The network of the library. Its quantizers have the current state of the tensors."""
        if self._network is None:
            self._build_network()
        self._push()
        return self._network

    def configure(self, config, learned, edges):
        """Builds the network with quantizers. `learned` are keyword arguments of Model.learn_ranges. `edges` says whether the first and
        the last layer of the whole model are in this module."""
        self._config, self._learned, self._edges = config, learned, edges
        self._build_network()

    def redirect(self, redirect):
        """Reads parameters and buffers from other modules. `redirect(refs)` returns the new references."""
        self.refs, self._modes = redirect(self.refs), redirect(self._modes)
        self.shared = SharedParameters(self._network, self.refs)

    def forget_pushed(self):
        """Gives the library the state of all quantizers at the next use, after `states` became others."""
        self._seen, self._pushed = {}, None

    # State of quantizers: tensors of torch, which the library gets when they change.

    def _new_states(self):
        given, out = self._network_state(), {}
        for row in self._network.quantizers():
            if row["enabled"]:
                name, learned = row["name"], row["descriptor"].dict().get("learn_amax", False)
                out[name] = QuantizerState(given[name][0], self._unknown_range(row), learned)
                out[name].take(*given[name])
        return out

    def _unknown_range(self, row):
        """Returns NaN for each range of a quantizer, or None if each input has a range of its own."""
        fields, name = row["descriptor"].dict(), row["name"].removesuffix("_quantizer")
        ref = self.refs.get(name, self.refs.get(name.removesuffix(".weight")))  # RNNs have quantizers below their parameters
        if not row["needs_amax"]:
            return None
        count = _range_count(fields, list(ref.get().shape) if ref is not None else [])
        is_list = fields.get("learn_amax", False) or count > 1
        return torch.full((count,) if is_list else (), float("nan"), dtype=torch.float32, device=self._device())

    def _freeze_ranges(self):
        """Freezes the learned ranges of layers whose parameters are frozen. Checkpoints of peft have trained parameters only."""
        parameters = {name: ref.base() for name, ref in self.refs.items() if isinstance(ref.base(), nn.Parameter)}
        for name, state in self.states.items():
            layer = name.rpartition(".")[0]
            own = [value for key, value in parameters.items() if key.rpartition(".")[0] == layer] or list(parameters.values())
            if state.is_learned and own and not any(value.requires_grad for value in own):
                state.amax.requires_grad_(False)

    def _network_state(self):
        """Returns {name of a quantizer: (settings, {name: array})} of the library."""
        arrays, attributes = self._network.quantizer_state()
        return split_state(arrays, json.loads(attributes))

    def _mark_pushed(self):
        """Remembers that the library has the current state."""
        self._seen = {name: (state.version(), *state.as_library()) for name, state in self.states.items()}
        self._pushed = self._versions()
        self._sets_ranges = any(state.grows() for state in self.states.values())

    def pull(self):
        """Copies ranges and settings from the library, after it changed them."""
        states = self._network_state()
        for name, state in self.states.items():
            state.take(*states[name])
        self._mark_pushed()
        self._limiter.reset()
        self._name_parameters()

    def _push(self):
        """Copies the state of quantizers to the library if their tensors changed."""
        if not self._unused and self._versions() == self._pushed:
            return
        changed = {name: state for name, state in self.states.items() if self._is_new(name, state)}
        self._pushed = self._versions()
        if not changed:
            return
        arrays, attributes = {}, {}
        for name, state in changed.items():
            descriptor, switches = state.settings_of_library()
            attributes |= {f"{name}/descriptor": descriptor, f"{name}/switches": switches}
            arrays |= {f"{name}/{key}": value for key, value in state.arrays().items()}
        self._network.load_quantizer_state(arrays, json.dumps(attributes))
        self._sets_ranges = any(state.grows() for state in self.states.values())
        if self._seen:  # else this is a copy, which limits the next step like the original
            self._limiter.reset()
        self._name_parameters()

    def _versions(self):
        """Returns the write counters of all states. Equal lists mean that no state was written to."""
        states = self.states.values()
        return [state.writes for state in states] + [
            number for state in states for value in state._buffers.values() if value is not None
            for number in (value.data_ptr(), value._version)]

    def _is_new(self, name, state):
        """Returns whether the library has another state. Writes of equal values, for example of a broadcast, change nothing."""
        if name in self._unused and state.is_calibrated():
            return True
        version, known = state.version(), self._seen.get(name)
        if known is not None and known[0] == version:
            return False
        settings, arrays = state.as_library()
        self._seen[name] = version, settings, arrays
        return known is None or known[1] != settings or known[2].keys() != arrays.keys() or any(
            not torch.equal(value, arrays[key]) for key, value in known[2].items())

    def _name_parameters(self):
        """Updates the names of parameters after ranges may have become known. A range that several layers share is one parameter."""
        learned = {f"{name}.amax": name for name, state in self.states.items() if state.is_learned}
        self.parameter_names = [name for name in self._network.parameter_names() if name in self.refs or name in learned]
        known = set(self.parameter_names)
        self._unused = {name for parameter, name in learned.items() if parameter not in known}  # learned ranges before calibration, or off

    # Calibration.

    def calibrate(self, calls, method, masks=()):
        """Sets the ranges from the float inputs of some calls. `calls` is a list of lists of tensors. `masks` has a mask [B, T] for each call,
        0 for padding, or None."""
        network = self.network
        enabled = lambda: any(row["enabled"] for row in network.quantizers())  # noqa: E731
        if not calls and enabled():
            layers = dict.fromkeys(name.rpartition(".")[0] for name in self.states)
            raise _fq.ArgumentError(f"[calibrate] {', '.join(map(repr, layers))}: never called with this data. Use samples that reach these "
                                    "layers")
        if calls and enabled():  # quantizers of attention are off without a rule
            self._choose_ranges(calls, masks or [None] * len(calls), method)
        self.pull()

    def _choose_ranges(self, calls, masks, method):
        network = self.share()
        calls, masks, self.masked = drop_padded_rows(calls, masks)
        sizes = [(self._samples(own), self._sample_mask(own, positions)) for own, positions in by_size(calls, masks)]
        if len(sizes) == 1 and sizes[0][1] is None:
            return network.calibrate(sizes[0][0], method=method)
        self.masked += sum(network.collect_ranges(x, method, i > 0, mask=mask)["masked"] for i, (x, mask) in enumerate(sizes))
        return network.choose_ranges(method)

    def _sample_mask(self, calls, masks):
        """Returns the mask of the samples [N, T], or None."""
        return concatenate_masks(calls, masks)

    def _samples(self, calls):
        return concatenate_calls(calls).float()

    # Parameters.

    def ranges(self):
        """Returns the learned ranges, parameters."""
        return [state.amax for state in self.states.values() if state.is_learned]

    def _device(self):
        return next((ref.base().device for ref in self.refs.values()), torch.device("cpu"))

    def _parameter(self, name):
        return self.refs[name].get() if name in self.refs else self.states[name.removesuffix(".amax")].whole_range()

    def _all_names(self):
        """Returns the names of the parameters of the network, then of the learned ranges that it does not use."""
        return self.parameter_names + [f"{name}.amax" for name in self._unused]

    def _all_parameters(self):
        return [self._parameter(name) for name in self._all_names()]

    def share(self, parameters=None):
        """Gives the library the current values of parameters and buffers. Returns the network."""
        network = self.network if parameters is None else self._network
        self.shared.share(self._named(self._all_parameters() if parameters is None else parameters))
        return network

    def _named(self, parameters):
        """Returns {name in the network: parameter}. One range is a list of one in torch, because fully_shard does not take scalars."""
        given = dict(zip(self.parameter_names, parameters))
        return {name: value if name in self.refs or value.numel() > 1 else value.reshape(()) for name, value in given.items()}

    # Forward.

    def forward(self, *inputs):
        if torch.compiler.is_compiling():
            return self.add_to_graph(self.prepared(inputs)).to(self._output_type(inputs))
        if torch.jit.is_tracing():
            raise _fq.ArgumentError(NO_GRAPH)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise _fq.ArgumentError("[fakequant.torch] functions of torch.func (vmap, grad, jvp) cannot go through a part on codes: call "
                                    "the model on batches, and backward")
        self.check_inputs(inputs)
        read = self.prepared(inputs)
        _ = self.network
        parameters = self._all_parameters()
        self._limit({name.removesuffix(".amax"): value for name, value in zip(self._all_names(), parameters) if name not in self.refs})
        with self.explained_errors():
            return self._run(read, parameters).to(self._output_type(inputs))

    def prepared(self, inputs):
        """Returns the inputs as the network reads them, float32. Masks of attention keep their type."""
        return [x if x.dtype in (torch.bool, torch.uint8) else x.float() for x in inputs]

    def check_inputs(self, inputs):
        """Raises ArgumentError for inputs that are no dense tensors on a device of the library."""
        for x in inputs:
            checked(x, "fakequant.torch")

    def _output_type(self, inputs):
        """Returns the type of the output: the type of autocast, else the type of the parameters, as in torch."""
        device = inputs[0].device.type
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
        types = self.parameter_types()
        if not types:
            return next((x.dtype for x in inputs if x.is_floating_point()), torch.float32)
        return types.pop() if len(types) == 1 else self.output_type

    def parameter_types(self):
        """Returns the set of types of the parameters, without ranges."""
        return {self.refs[name].base().dtype for name in self.parameter_names if name in self.refs}

    def average_gradients(self, gradients):
        """Averages the gradients ({name: tensor}) of ranges that fully_shard leaves out over the processes, in place."""
        if self.shared.is_managed():
            average([gradient for name, gradient in gradients.items() if name not in self.refs and gradient is not None
                     and not is_managed(self.states[name.removesuffix(".amax")])])

    def _limit_ranges(self):
        self._limit({name: state.whole_range() for name, state in self.states.items() if state.is_learned})

    def _limit(self, ranges):
        """Limits learned ranges, {name of a quantizer: whole range}."""
        self._limiter.limit({name: (self.states[name], value) for name, value in ranges.items()})

    def _run(self, inputs, parameters):
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*inputs, *parameters)):
            return LoweredFunction.apply(self, len(inputs), *inputs, *parameters)
        return self.run_without_gradient(inputs, parameters)

    @torch.no_grad()
    def run_without_gradient(self, inputs, parameters):
        """Returns the output. `inputs` are tensors as the network reads them."""
        if self.training or self._layers_in_other_mode():
            return self.record(inputs, parameters, [False] * len(inputs))[0]
        self.share(parameters).eval()
        y = self._evaluated([make_dense(x) for x in inputs])
        self.shared.release(self._named(parameters))
        return y

    def record(self, inputs, parameters, wants_gradient):
        """Returns (outputs, Recording) for a batch. `wants_gradient` has a bool for each input."""
        network = self.share(parameters)
        other_mode, self._trains = self._layers_in_other_mode(), self.training
        network.train(self.training)
        if other_mode:
            network.set_training(other_mode, not self.training)
            self._trains = True
        growing = network.growing_quantizers() if self._sets_ranges and self._trains else []
        y, recording = self._recorded([make_dense(x) for x in inputs], list(wants_gradient))
        self.shared.release(self._named(parameters))
        if self._trains:
            self.shared.update_statistics()
        if growing:
            share_growth(network, growing, self._device(), self.shared.is_managed())
            self.pull()
            self._limit_ranges()  # the next step is limited from here
        return y, recording

    def _layers_in_other_mode(self):
        """Returns the layers in another mode than this module: frozen batch norms, dropout in evaluation."""
        return [name for name, mode in self._modes.items() if mode.base() != self.training]

    def _recorded(self, inputs, wants_gradient):
        seed = int(torch.randint(2**62, (1,))) if self._is_random and self._trains else 0
        return self._network.record(*inputs, *wants_gradient, seed)

    def _evaluated(self, inputs):
        return self._network(*inputs)

    def input_rows(self, inputs):
        """Returns the inputs as the one array that the network reads."""
        return self.prepared(inputs)[0].contiguous()

    @contextlib.contextmanager
    def explained_errors(self):
        """Names the remedy if the library misses a range."""
        try:
            yield
        except _fq.ArgumentError as error:
            if "has no amax" in str(error):
                self.check_calibrated("fakequant.torch", error)
            raise

    def check_calibrated(self, function, cause=None):
        """Raises ArgumentError if a quantizer has no range. `function` is the name for the message."""
        missing = [name for name, state in self.states.items() if not state.is_calibrated()]
        if missing:
            raise _fq.ArgumentError(f"[{function}] '{missing[0]}' has no range: call fakequant.torch.calibrate(model, loader) before the first "
                                    "use of the model, or load the state dict of a calibrated one") from cause

    # Protocols of torch.

    def __prepare_scriptable__(self):
        raise _fq.ArgumentError(NO_GRAPH)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        if torch.onnx.is_in_onnx_export():
            raise _fq.ArgumentError(NO_GRAPH)
        if self._network is not None and not self.shared.is_managed():
            self._limit_ranges()  # as the next forward, because a resumed run does not know the ranges before the last step

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        """Reads the quantizers of state dicts of version 0.1, one dict. Newer state dicts have tensors at each layer."""
        state = state_dict.get(prefix + "_extra_state")
        if state is None:
            return
        for old, (settings, arrays) in split_state(state["arrays"], json.loads(state["attributes"])).items():
            layer, _, role = old.partition(".")
            name, learned = f"{self._old_names.get(layer, layer)}.{role}", state_dict.get(f"{prefix}_ranges.{old.replace('.', '__')}__amax")
            if name not in self.states:
                continue
            try:
                self.states[name].load(settings, arrays if learned is None else arrays | {"amax": learned})
            except ValueError as why:
                errors.append(f"'{name}': {why}")

    def __getstate__(self):
        return {**self.__dict__, "_network": None, "_built": None, "shared": None, "_seen": {}, "_pushed": None}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.number = register_part(self)

    def extra_repr(self):
        return f"{len(self.nodes)} layers"


def _range_count(fields, shape):
    """Returns the number of ranges of a quantizer for a tensor. `shape` is empty if it is not known."""
    axes, blocks = fields.get("axis"), fields.get("block_sizes", {})
    if blocks and shape and blocks.get("type") != "dynamic":
        sizes = {int(axis) % len(shape): size for axis, size in blocks.items() if axis.lstrip("-").isdigit()}
        return math.prod(-(-size // sizes.get(axis, 1)) for axis, size in enumerate(shape))
    kept = [] if axes is None or not shape else [axes] if isinstance(axes, int) else axes
    return math.prod(shape[axis] for axis in kept)
