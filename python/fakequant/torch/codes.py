"""Codes: a part of a network that the library runs."""
import json
import warnings

import torch
from torch import nn

from .. import _fakequant as _fq
from .functions import checked, rows
from .passes import Pass
from .ranges import Ranges
from .samples import samples_of
from .shared import Shared


_NO_GRAPH = "[fakequant.torch] torch cannot trace or export a part on codes: fakequant.torch.export writes the file"


class Codes(nn.Module):
    """One network of the library inside of a network of torch.

    Parameters and running statistics are those of torch's modules, which are not children of this one; ranges of quantizers are
    its own, in the extra state of state dicts.
    """

    def __init__(self, json_text, places, sample_shape, classes, config, modes=None):
        """`modes`: modules of torch whose own modes layers have, by their names."""
        super().__init__()
        self._modes = modes or {}
        self._json, self._places, self._sample_shape, self._classes = json_text, places, sample_shape, classes
        self._config, self._learned = config, None
        self._off = []  # quantizers of weights that were 0 when they were calibrated
        self._random = any("drop" in node["type"] for node in json.loads(json_text)["nodes"])
        self._make()

    def _make(self):
        self.network = _fq.model_of_nodes(self._json, self._sample_shape, self._classes)
        with warnings.catch_warnings(record=True) as told:  # of a part: what is so of the whole model, quantize says
            warnings.simplefilter("always")
            self.network.quantize(self._config)
        self.told = [str(entry.message) for entry in told]
        self.shared = Shared(self.network, self._places)
        self._refresh()

    def take_defaults(self, config, learned):
        """Another config, and how ranges are learned once they are calibrated (keyword arguments of Model.learn_ranges)."""
        self._learned = learned
        if config != self._config:
            self._config = config
            self._make()

    def calibrate(self, batches, method):
        """Chooses the ranges by the float inputs of some batches, a list of tensors each; those to be learned become parameters."""
        enabled = lambda: any(row["enabled"] for row in self.network.quantizers())  # noqa: E731
        if not batches and enabled():
            raise _fq.ArgumentError("[calibrate] a part of the model was never called: give samples that it sees")
        for name in self._off:
            self.network.enable_quantizer(name)
        if batches and enabled():  # attention has none, unless rules switch them on
            self.share().calibrate(self._samples(batches), method=method)
        self._off = [row["name"] for row in self.network.quantizers() if row["weight"] and row["enabled"] and self._is_zero(row["name"])]
        for name in self._off:
            self.network.disable_quantizer(name)
            warnings.warn(f"[calibrate] '{name}' saw zeros alone and could never learn another weight: it is off until calibrate sees others",
                          _fq.FakequantWarning, stacklevel=4)
        if self._learned is not None:
            self.network.learn_ranges(**self._learnable())
        self._refresh()

    def _learnable(self):
        """The arguments of Model.learn_ranges for the kinds of ranges that this part has: attention often has none."""
        of_weights = {row["weight"] for row in self.network.quantizers()
                      if row["enabled"] and not {"dynamic", "block_sizes"} & row["descriptor"].dict().keys()}
        return self._learned | {"activations": self._learned["activations"] and False in of_weights,
                                "weights": self._learned["weights"] and True in of_weights}

    def _is_zero(self, quantizer):
        place = self._places.get(quantizer.removesuffix("_quantizer"))
        return place is not None and not place.get().any()

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
        return list(self._ranges.values())

    def _refresh(self):
        """After ranges may have become parameters."""
        self.parameter_names = self.network.parameter_names()
        own = [name for name in self.parameter_names if name not in self._places]
        state = self.network.state_dict() if own else {}
        self._ranges = Ranges({name: torch.from_numpy(state[name]).to(self._device()) for name in own})

    def _device(self):
        """That of torch's modules."""
        return next((place.get().device for place in self._places.values()), torch.device("cpu"))

    def _sources(self):
        return [self._places[name].get() if name in self._places else self._ranges.of(name) for name in self.parameter_names]

    def share(self, sources=None):
        """Gives the library the values that parameters and buffers have now."""
        self.shared.give(dict(zip(self.parameter_names, self._sources() if sources is None else sources)))
        return self.network

    def record(self, inputs, sources, wants_gradient):
        """(outputs, Recording) for a batch."""
        self.share(sources)
        others, self._trains = self._of_another_mode(), self.training
        self.network.train(self.training)
        if others:
            self.network.set_training(others, not self.training)
            self._trains = True
        y, recording = self._recorded([rows(x) for x in inputs], list(wants_gradient))
        if self._trains:
            self.shared.take_buffers()
        return y, recording

    def _of_another_mode(self):
        """Layers whose mode is not that of the part: frozen batch norms, dropout in evaluation."""
        return [name for name, module in self._modes.items() if module.training != self.training]

    def _recorded(self, inputs, wants_gradient):
        seed = int(torch.randint(2**62, (1,))) if self._random and self._trains else 0
        return self.network.record(*inputs, *wants_gradient, seed)

    def _evaluated(self, inputs):
        return self.network(*inputs)

    @torch.compiler.disable
    def forward(self, *inputs):
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            raise _fq.ArgumentError(_NO_GRAPH)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise _fq.ArgumentError("[fakequant.torch] functions of torch.func (vmap, grad, jvp) cannot go through a part on codes: call "
                                    "the model on batches, and backward")
        inputs = [x.float() if checked(x, "fakequant.torch").is_floating_point() else x for x in inputs]
        if self._ranges:
            self._ranges.guard()
        sources = self._sources()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*inputs, *sources)):
            return Pass.apply(self, len(inputs), *inputs, *sources)
        with torch.no_grad():
            if self.training or self._of_another_mode():
                return self.record(inputs, sources, [False] * len(inputs))[0]
            return self._evaluate(inputs, sources)

    def _evaluate(self, inputs, sources):
        self.share(sources)
        self.network.eval()
        return self._evaluated([rows(x) for x in inputs])

    def __prepare_scriptable__(self):
        raise _fq.ArgumentError(_NO_GRAPH)

    def get_extra_state(self):
        if torch.onnx.is_in_onnx_export():
            raise _fq.ArgumentError(_NO_GRAPH)
        arrays, attributes = self.network.quantizer_state()
        return {"arrays": {name: torch.as_tensor(array) for name, array in arrays.items()}, "attributes": attributes}

    def set_extra_state(self, state):
        self.network.load_quantizer_state(state["arrays"], state["attributes"])

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        if prefix + "_extra_state" in state_dict:
            self.set_extra_state(state_dict[prefix + "_extra_state"])
            self._refresh()
        own = []
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, own, unexpected, errors)
        missing += [name for name in own if name != prefix + "_extra_state"]  # a float state dict has none

    def __getstate__(self):
        return {**self.__dict__, "network": None, "shared": None, "_kept": self.get_extra_state()}

    def __setstate__(self, state):
        kept, ranges = state.pop("_kept"), state["_modules"]["_ranges"]
        super().__setstate__(state)
        self._make()
        self.set_extra_state(kept)
        self._refresh()
        self._ranges = ranges

    def extra_repr(self):
        return f"{len(json.loads(self._json)['nodes'])} layers"
