"""Codes: a part of a network that the library runs."""
import json
import weakref

import torch
from torch import nn

from .. import _fakequant as _fq
from .functions import rows
from .nodes import shape_of


class _Pending:
    """Alive while a forward pass can be gone back through."""


class _Pass(torch.autograd.Function):
    """Forward on codes; backward as the library records it, once."""

    @staticmethod
    def forward(ctx, x, codes, *sources):
        y, ctx.recording = codes.record(x, sources, ctx.needs_input_grad[0])
        ctx.names, ctx.pending = codes.parameter_names, _Pending()
        codes.pending.add(ctx.pending)
        ctx.save_for_backward(*sources)  # torch refuses a backward pass when one was written to
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        _ = ctx.saved_tensors
        grad_x, gradients = ctx.recording.backward(rows(grad_y))
        return grad_x, None, *(gradients[name] for name in ctx.names)


def nodes_of(part, layers):
    """(the text of a model file, places of parameters and buffers by name)."""
    nodes, places = [], {}
    for node in part.nodes:
        layer = layers.found[node]
        inputs = ["input" if used is part.source else used.name for used in layer.inputs]
        if layer.constant is not None:
            name = f"{node.name}_constant"
            options = {"shape": layer.constant.shape[1:]}
            nodes.append({"name": name, "type": "parameter", "options": options, "inputs": inputs[:1]})
            places[f"{name}.value"] = layer.constant
            inputs.append(name)
        for i, (kind, options) in enumerate(layer.kinds):
            name = node.name if i == len(layer.kinds) - 1 else f"{node.name}_{i}"
            nodes.append({"name": name, "type": kind, "options": options, "inputs": inputs})
            inputs = [name]
        places |= {f"{node.name}.{name}": place for name, place in layer.places.items()}
    return json.dumps({"nodes": nodes}), places


class Codes(nn.Module):
    """One network of the library inside of a network of torch.

    Parameters and running statistics are those of torch's modules, which are not children of this one; ranges of quantizers are
    its own, in the extra state of state dicts.
    """

    def __init__(self, part, layers, config):
        super().__init__()
        self._json, self._places = nodes_of(part, layers)
        output = shape_of(part.nodes[-1])
        self._sample_shape, self._classes = shape_of(part.source)[1:], output[1] if len(output) == 2 else 0
        self._config, self._learned = config, None
        self._random = any(kind.startswith("drop") for node in part.nodes for kind, _ in layers.found[node].kinds)
        self._make()

    def _make(self):
        self.network = _fq.model_of_nodes(self._json, self._sample_shape, self._classes)
        self.network.quantize(self._config)
        self.pending, self._versions = weakref.WeakSet(), None
        self._refresh()

    def take_defaults(self, config, learned):
        """Another config, and how ranges are learned once they are calibrated (keyword arguments of Model.learn_ranges)."""
        self._learned = learned
        if config != self._config:
            self._config = config
            self._make()

    def calibrate(self, x, method):
        """Chooses the ranges by the float input x; those to be learned become parameters."""
        self.share().calibrate(x, method=method)
        if self._learned is not None:
            self.network.learn_ranges(**self._learned)
        self._refresh()

    def ranges(self):
        """The learned ranges, parameters."""
        return list(self._ranges.values())

    def _guard_ranges(self):
        """As in the library's loop: a step at most halves or doubles a learned range, and leaves it 2^-23 or more."""
        with torch.no_grad():
            for name, value in self._ranges.items():
                before = self._before.get(name)
                if before is not None and value._version != before[1]:
                    held = value.clamp(before[0] / 2, before[0] * 2).clamp_(min=2.0**-23)
                    if not torch.equal(held, value):
                        value.copy_(held)
                if before is None or value._version != before[1]:
                    self._before[name] = (value.detach().clone(), value._version)

    def _refresh(self):
        """After ranges may have become parameters."""
        self.parameter_names = self.network.parameter_names()
        self._ranges, self._before = nn.ParameterDict(), {}
        for name in self.parameter_names:
            if name not in self._places:
                self._ranges[name.replace(".", "__")] = nn.Parameter(torch.from_numpy(self.network.state_dict()[name]))

    def _sources(self):
        out = []
        for name in self.parameter_names:
            place = self._places.get(name)
            out.append(self._ranges[name.replace(".", "__")] if place is None else place.get())
        return out

    def share(self, sources=None):
        """Gives the library the values that parameters and buffers have now."""
        sources = self._sources() if sources is None else sources
        for name, source in zip(self.parameter_names, sources):
            if source.device.type != "cpu" or source.dtype != torch.float32:
                raise _fq.ArgumentError(f"[fakequant.torch] '{name}' is {source.dtype} on {source.device}: parameters of what is "
                                        "quantized are float32 on the CPU; autocast serves the layers around them")
        self.network.share_parameters({n: s.detach().contiguous() for n, s in zip(self.parameter_names, sources)},
                                      written=self._may_be_written(sources))
        self.network.load_buffers({name: place.get() for name, place in self._places.items()})
        return self.network

    def _may_be_written(self, sources):
        """Torch counts no writes through `.data`: what may be another value is another, but while passes are to go back."""
        versions = [(source.data_ptr(), source._version) for source in sources]
        self._versions, before = versions, self._versions
        return versions != before or not self.pending

    def _take_buffers(self):
        for name, own in self.network.buffers(torch.empty(0)).items():
            self._places[name].get().copy_(own)
        for place in self._places.values():
            if place.name == "num_batches_tracked":
                place.module.num_batches_tracked += 1

    def record(self, x, sources, wants_gradient):
        """(outputs, Recording) for a batch."""
        self.share(sources)
        self.network.train(self.training)
        seed = int(torch.randint(2**62, (1,))) if self._random and self.training else 0
        y, recording = self.network.record(rows(x), wants_gradient, seed)
        if self.training:
            self._take_buffers()
        return y, recording

    @torch.compiler.disable
    def forward(self, x):
        if x.device.type != "cpu":
            raise _fq.ArgumentError(f"[fakequant.torch] x is on {x.device}: CPU tensors only")
        x = x.float() if x.is_floating_point() else x
        if self._ranges:
            self._guard_ranges()
        sources = self._sources()
        if torch.is_grad_enabled() and (x.requires_grad or any(source.requires_grad for source in sources)):
            return _Pass.apply(x, self, *sources)
        with torch.no_grad():
            return self.record(x, sources, False)[0] if self.training else self._evaluate(x, sources)

    def _evaluate(self, x, sources):
        self.share(sources)
        self.network.eval()
        return self.network(rows(x))

    def get_extra_state(self):
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
        return {**self.__dict__, "network": None, "pending": None, "_kept": self.get_extra_state()}

    def __setstate__(self, state):
        kept, ranges = state.pop("_kept"), state["_modules"]["_ranges"]
        super().__setstate__(state)
        self._make()
        self.set_extra_state(kept)
        self._refresh()
        self._ranges = ranges

    def extra_repr(self):
        return f"{len(json.loads(self._json)['nodes'])} layers"
