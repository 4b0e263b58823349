"""Codes: a part of a network that the library runs."""
import json
import math
import warnings

import torch
from torch import nn

from .. import _fakequant as _fq
from .functions import checked, rows
from .passes import Pass
from .quantizer_state import QuantizerState, split_state
from .ranges import Guard, share_growth
from .samples import mask_of, samples_of, without_padded_rows
from .shared import Shared


_NO_GRAPH = "[fakequant.torch] torch cannot trace or export a part on codes: fakequant.torch.export writes the file"


class Codes(nn.Module):
    """One network of the library inside of a network of torch.

    Parameters, running statistics and states of quantizers are those of torch's modules, which are not children of this one.
    """

    def __init__(self, nodes, places, sample_shape, classes, config, modes=None, before=None):
        """`modes`: modules of torch whose own modes layers have, by their names. `before`: names of layers by those of state dicts of
        0.1."""
        super().__init__()
        self._modes, self._before = modes or {}, before or {}
        self._nodes, self._places, self._sample_shape, self._classes = nodes, places, sample_shape, classes
        self._config, self._learned, self._edges = config, None, (True, True)
        self.masked = 0  # calls and tensors that had the positions of a mask in the last calibration
        self._random = any("drop" in node["type"] for node in nodes)
        self._network, self._guard, self._finds_ranges = None, Guard(), False
        self._seen, self._pushed = {}, None
        self.states = {}  # QuantizerState by the names of quantizers, children of the layers

    def _make(self):
        """Builds the network. After a copy the quantizers get the state of the tensors at their first use."""
        self._network = _fq.model_of_nodes(self._nodes, self._sample_shape, self._classes)
        with warnings.catch_warnings(record=True) as told:  # of a part: what is so of the whole model, quantize says
            warnings.simplefilter("always")
            self.unmatched, self.names = self._network.quantize_part(self._config, *self._edges)
        self.told = [str(entry.message) for entry in told]
        if self._learned is not None:
            self._network.learn_ranges(**self._learned, calibrated=False)
        self.shared, self._seen, self._pushed = Shared(self._network, self._places), {}, None
        if not self.states:
            self.states = self._new_states()
            self._note()
        self._name_parameters()

    @property
    def network(self):
        """The network of the library, whose quantizers have the state that the tensors have now."""
        if self._network is None:
            self._make()
        self._push()
        return self._network

    def configure(self, config, learned, edges):
        """Puts quantizers in. `learned`: keyword arguments of Model.learn_ranges. `edges`: whether the first and the last layer of the
        whole model are in this part."""
        self._config, self._learned, self._edges = config, learned, edges
        self._make()

    def move(self, moved):
        """Looks up parameters and buffers in other modules: `moved(places)` gives the places there."""
        self._places = moved(self._places)
        self.shared = Shared(self._network, self._places)

    def _new_states(self):
        given, out = self._network_state(), {}
        for row in self._network.quantizers():
            if row["enabled"]:
                name, learned = row["name"], row["descriptor"].dict().get("learn_amax", False)
                out[name] = QuantizerState(given[name][0], self._no_range(row), learned)
                out[name].take(*given[name])
        return out

    def _no_range(self, row):
        """NaN for each range of a quantizer, None for one that takes its range from each input."""
        fields, place = row["descriptor"].dict(), self._places.get(row["name"].split("_quantizer")[0])
        if not row["needs_amax"]:
            return None
        shape = list(place.get().shape) if place is not None else []
        count = _range_count(fields, shape)
        learned = fields.get("learn_amax", False)
        return torch.full((count,) if learned or count > 1 else (), float("nan"), device=self._device())

    def _network_state(self):
        """{name of a quantizer: (settings, {name: array})}, as the library has it."""
        arrays, attributes = self._network.quantizer_state()
        return split_state(arrays, json.loads(attributes))

    def _note(self):
        """Remembers that the library has this state."""
        self._seen = {name: (state.version(), *state.as_library()) for name, state in self.states.items()}
        self._pushed = self._versions()
        self._finds_ranges = any(state.grows() for state in self.states.values())

    def pull(self):
        """Takes ranges and settings from the library, after these were calibrated or set."""
        states = self._network_state()
        for name, state in self.states.items():
            state.take(*states[name])
        self._note()
        self._guard.forget()
        self._name_parameters()

    def _push(self):
        """Gives the library the state of quantizers whose tensors were written to."""
        if not self._idle and self._versions() == self._pushed:
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
        self._finds_ranges = any(state.grows() for state in self.states.values())
        if self._seen:  # else this is a copy, which limits the last step as the original does
            self._guard.forget()
        self._name_parameters()

    def _versions(self):
        """Returns the write counters of all states. Equal lists mean that no state was written to."""
        states = self.states.values()
        return [state.writes for state in states] + [
            number for state in states for value in state._buffers.values() if value is not None
            for number in (value.data_ptr(), value._version)]

    def _is_new(self, name, state):
        """Whether the library has another state. Writes of the same values, as of a broadcast, change nothing."""
        if name in self._idle and state.is_calibrated():
            return True
        version, known = state.version(), self._seen.get(name)
        if known is not None and known[0] == version:
            return False
        settings, arrays = state.as_library()
        self._seen[name] = version, settings, arrays
        return known is None or known[1] != settings or known[2].keys() != arrays.keys() or any(
            not torch.equal(value, arrays[key]) for key, value in known[2].items())

    def _name_parameters(self):
        """After ranges may have become known. A range that several layers share is one parameter."""
        learned = {f"{name}.amax": name for name, state in self.states.items() if state.is_learned}
        self.parameter_names = [name for name in self._network.parameter_names() if name in self._places or name in learned]
        known = set(self.parameter_names)
        self._idle = {name for parameter, name in learned.items() if parameter not in known}  # before calibration, or off

    def calibrate(self, batches, method, masks=()):
        """Chooses the ranges by the float inputs of some batches, a list of tensors each. `masks` has one for each batch: [B, T], 0 for
        padding, or None."""
        network = self.network
        enabled = lambda: any(row["enabled"] for row in network.quantizers())  # noqa: E731
        if not batches and enabled():
            layers = dict.fromkeys(name.rpartition(".")[0] for name in self.states)
            raise _fq.ArgumentError(f"[calibrate] {', '.join(map(repr, layers))}: never called with this data. Give samples that reach these "
                                    "layers")
        if batches and enabled():  # attention has none, unless rules switch them on
            self._choose_ranges(batches, masks or [None] * len(batches), method)
        self.pull()

    def _choose_ranges(self, batches, masks, method):
        network = self.share()
        batches, masks, self.masked = without_padded_rows(batches, masks)
        batches, mask = self._masked(batches, masks)
        if mask is None:
            network.calibrate(self._samples(batches), method=method)
        else:
            self.masked += network.collect_ranges(self._samples(batches), method, mask=mask)["masked"]
            network.choose_ranges(method)

    def _masked(self, batches, masks):
        """Batches, and the mask of their samples or None."""
        return batches, mask_of(batches, masks)

    def rows_of(self, inputs):
        """Inputs as the network reads them."""
        return inputs[0].contiguous()

    def _samples(self, batches):
        return samples_of(batches)

    def places(self):
        """Where torch has its parameters and running statistics."""
        return list(self._places.values())

    def ranges(self):
        """The learned ranges, parameters."""
        return [state.amax for state in self.states.values() if state.is_learned]

    def _device(self):
        """That of torch's modules."""
        return next((place.get().device for place in self._places.values()), torch.device("cpu"))

    def _source(self, name):
        return self._places[name].get() if name in self._places else self.states[name.removesuffix(".amax")].amax

    def _sources(self):
        """Parameters of the network, then learned ranges that it does not use."""
        return [self._source(name) for name in self.parameter_names] + [self.states[name].amax for name in self._idle]

    def share(self, sources=None):
        """Gives the library the values that parameters and buffers have now."""
        network = self.network if sources is None else self._network
        given = dict(zip(self.parameter_names, self._sources() if sources is None else sources))
        # A range alone is a list of one in torch, because fully_shard takes no scalars.
        self.shared.give({name: value if name in self._places or value.numel() > 1 else value.reshape(()) for name, value in given.items()})
        return network

    def record(self, inputs, sources, wants_gradient):
        """(outputs, Recording) for a batch."""
        network = self.share(sources)
        others, self._trains = self._of_another_mode(), self.training
        network.train(self.training)
        if others:
            network.set_training(others, not self.training)
            self._trains = True
        growing = network.growing_quantizers() if self._finds_ranges and self._trains else []
        y, recording = self._recorded([rows(x) for x in inputs], list(wants_gradient))
        if self._trains:
            self.shared.take_buffers()
        if growing:
            share_growth(network, growing, self._device())
            self.pull()
            self._limit_ranges()  # the next step is limited from here
        return y, recording

    def _of_another_mode(self):
        """Layers whose mode is not that of the part: frozen batch norms, dropout in evaluation."""
        return [name for name, module in self._modes.items() if module.training != self.training]

    def _recorded(self, inputs, wants_gradient):
        seed = int(torch.randint(2**62, (1,))) if self._random and self._trains else 0
        return self._network.record(*inputs, *wants_gradient, seed)

    def _evaluated(self, inputs):
        return self._network(*inputs)

    @torch.compiler.disable
    def forward(self, *inputs):
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            raise _fq.ArgumentError(_NO_GRAPH)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise _fq.ArgumentError("[fakequant.torch] functions of torch.func (vmap, grad, jvp) cannot go through a part on codes: call "
                                    "the model on batches, and backward")
        inputs = [x.float() if checked(x, "fakequant.torch").is_floating_point() else x for x in inputs]
        _ = self.network
        self._limit_ranges()
        try:
            return self._run(inputs, self._sources())
        except _fq.ArgumentError as error:
            self._check_calibrated(error)
            raise

    def _limit_ranges(self):
        self._guard.limit({name: state.amax for name, state in self.states.items() if state.is_learned})

    def _run(self, inputs, sources):
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*inputs, *sources)):
            return Pass.apply(self, len(inputs), *inputs, *sources)
        with torch.no_grad():
            if self.training or self._of_another_mode():
                return self.record(inputs, sources, [False] * len(inputs))[0]
            return self._evaluate(inputs, sources)

    def _evaluate(self, inputs, sources):
        self.share(sources).eval()
        return self._evaluated([rows(x) for x in inputs])

    def _check_calibrated(self, error):
        missing = [name for name, state in self.states.items() if not state.is_calibrated()]
        if missing and "has no amax" in str(error):
            raise _fq.ArgumentError(f"[fakequant.torch] '{missing[0]}' has no range: call fakequant.torch.calibrate(model, loader) before "
                                    "the first use of the model, or load the state dict of a calibrated one") from error

    def __prepare_scriptable__(self):
        raise _fq.ArgumentError(_NO_GRAPH)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        if torch.onnx.is_in_onnx_export():
            raise _fq.ArgumentError(_NO_GRAPH)

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        """Reads the quantizers of old state dicts (version 0.1), which are a dict here. Newer ones have tensors at each layer."""
        state = state_dict.get(prefix + "_extra_state")
        if state is None:
            return
        for old, (settings, arrays) in split_state(state["arrays"], json.loads(state["attributes"])).items():
            name, learned = self._name_now(old), state_dict.get(f"{prefix}_ranges.{old.replace('.', '__')}__amax")
            if name not in self.states:
                continue
            try:
                self.states[name].load(settings, arrays if learned is None else arrays | {"amax": learned})
            except ValueError as why:
                errors.append(f"'{name}': {why}")

    def _name_now(self, quantizer):
        layer, _, role = quantizer.partition(".")
        return f"{self._before.get(layer, layer)}.{role}"

    def __getstate__(self):
        return {**self.__dict__, "_network": None, "shared": None, "_seen": {}, "_pushed": None}

    def extra_repr(self):
        return f"{len(self._nodes)} layers"


def _range_count(fields, shape):
    """How many ranges a quantizer has for a tensor of that shape, which is empty where it is not known."""
    axes, blocks = fields.get("axis"), fields.get("block_sizes", {})
    if blocks and shape and blocks.get("type") != "dynamic":
        sizes = {int(axis) % len(shape): size for axis, size in blocks.items() if axis.lstrip("-").isdigit()}
        return math.prod(-(-size // sizes.get(axis, 1)) for axis, size in enumerate(shape))
    kept = [] if axes is None or not shape else [axes] if isinstance(axes, int) else axes
    return math.prod(shape[axis] for axis in kept)
