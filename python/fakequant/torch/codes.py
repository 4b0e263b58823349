"""Codes: a part of a network that the library runs."""
import json
import weakref

import torch
from torch import nn

from .. import _fakequant as _fq
from .functions import checked, rows


class _Pending:
    """Alive while a forward pass can be gone back through."""


class _Pass(torch.autograd.Function):
    """Forward on codes; backward as the library records it, once. `tensors` are `count` inputs and the parameters."""

    @staticmethod
    def forward(ctx, codes, count, *tensors):
        inputs, sources = tensors[:count], tensors[count:]
        y, ctx.recording = codes.record(inputs, sources, ctx.needs_input_grad[2:2 + count])
        ctx.names, ctx.pending = codes.parameter_names, _Pending()
        codes.pending.add(ctx.pending)
        ctx.save_for_backward(*sources)  # torch refuses a backward pass when one was written to
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        _ = ctx.saved_tensors
        of_inputs, gradients = ctx.recording.backward(rows(grad_y))
        of_inputs = of_inputs if isinstance(of_inputs, list) else [of_inputs]
        return None, None, *of_inputs, *(gradients[name] for name in ctx.names)


def _of_length(x, shape):
    """Rows of other samples as samples of this shape, the last one filled up from the front: ranges are of all rows."""
    if x.shape[1:] == shape:
        return x
    rows_of, count = x.flatten(0, 1), -(-x.shape[0] * x.shape[1] // shape[0])
    return rows_of.repeat(-(-count * shape[0] // len(rows_of)), *[1] * (x.dim() - 2))[:count * shape[0]].view(count, *shape)


class Codes(nn.Module):
    """One network of the library inside of a network of torch.

    Parameters and running statistics are those of torch's modules, which are not children of this one; ranges of quantizers are
    its own, in the extra state of state dicts.
    """

    def __init__(self, json_text, places, sample_shape, classes, config):
        super().__init__()
        self._json, self._places, self._sample_shape, self._classes = json_text, places, sample_shape, classes
        self._config, self._learned = config, None
        self._random = any("drop" in node["type"] for node in json.loads(json_text)["nodes"])
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

    def calibrate(self, batches, method):
        """Chooses the ranges by the float inputs of some batches, a list of tensors each; those to be learned become parameters."""
        if not batches and any(row["enabled"] for row in self.network.quantizers()):
            raise _fq.ArgumentError("[calibrate] a part of the model was never called: give samples that it sees")
        if batches:
            self.share().calibrate(self._samples(batches), method=method)
        if self._learned is not None:
            self.network.learn_ranges(**self._learned)
        self._refresh()

    def rows_of(self, inputs):
        """Inputs as the network reads them."""
        return inputs[0].contiguous()

    def _samples(self, batches):
        found = [x for x, in batches]
        if any(x.shape[2:] != found[0].shape[2:] or x.dim() < 2 + (x.shape[1:] != found[0].shape[1:]) for x in found):
            raise _fq.ArgumentError(f"[calibrate] samples are {' and '.join(sorted({str(list(x.shape)) for x in found}))}: give all in "
                                    "one shape; rows [N, L, ..] may differ in L")
        return torch.cat([_of_length(x, found[0].shape[1:]) for x in found]).contiguous()

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

    def record(self, inputs, sources, wants_gradient):
        """(outputs, Recording) for a batch."""
        self.share(sources)
        self.network.train(self.training)
        y, recording = self._recorded([rows(x) for x in inputs], list(wants_gradient))
        if self.training:
            self._take_buffers()
        return y, recording

    def _recorded(self, inputs, wants_gradient):
        seed = int(torch.randint(2**62, (1,))) if self._random and self.training else 0
        return self.network.record(*inputs, *wants_gradient, seed)

    def _evaluated(self, inputs):
        return self.network(*inputs)

    @torch.compiler.disable
    def forward(self, *inputs):
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            raise _fq.ArgumentError("[fakequant.torch] torch cannot trace or export a part on codes: fakequant.torch.export writes the file")
        inputs = [x.float() if checked(x, "fakequant.torch").is_floating_point() else x for x in inputs]
        if self._ranges:
            self._guard_ranges()
        sources = self._sources()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*inputs, *sources)):
            return _Pass.apply(self, len(inputs), *inputs, *sources)
        with torch.no_grad():
            return self.record(inputs, sources, [False] * len(inputs))[0] if self.training else self._evaluate(inputs, sources)

    def _evaluate(self, inputs, sources):
        self.share(sources)
        self.network.eval()
        return self._evaluated([rows(x) for x in inputs])

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
