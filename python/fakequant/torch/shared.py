"""Values of torch's modules in a network of the library, over the same memory."""
import weakref

import torch

from .. import _fakequant as _fq
from .functions import is_usable


class Shared:
    """Of a network, of places of parameters and buffers by name, and of what gives the other parameters by name."""

    def __init__(self, network, places):
        self._network, self._places, self._versions, self._device = network, places, None, None
        self.pending = weakref.WeakSet()  # forward passes that are to be gone back through

    def give(self, sources):
        """Lets the library have the values that parameters ({name: tensor}) and buffers have now, where they lie."""
        self._go_to(sources)
        self._network.share_parameters({name: value.detach().contiguous() for name, value in sources.items()},
                                       written=self._may_be_written(sources.values()))
        self._network.load_buffers({name: place.get() for name, place in self._places.items()})

    def _go_to(self, sources):
        for name, value in sources.items():
            if hasattr(value, "placements"):  # a DTensor
                raise _fq.ArgumentError(f"[fakequant.torch] '{name}' is sharded over processes, and its module is not called here: "
                                        "give fully_shard the model that quantize made, not its layers, and export what was gathered")
            if value.dtype != torch.float32 or not is_usable(value.device):
                raise _fq.ArgumentError(f"[fakequant.torch] '{name}' is {value.dtype} on {value.device}: parameters of quantized layers "
                                        "are float32 on the CPU, or on a GPU where fakequant was built for it. Call model.float(); "
                                        "autocast computes the other layers in fewer bits")
        devices = {str(value.device): name for name, value in sources.items()}
        if len(devices) > 1:
            raise _fq.ArgumentError("[fakequant.torch] " + " and ".join(f"'{name}' is on {device}" for device, name in devices.items())
                                    + ": parameters of a part are on one device")
        device = next(iter(devices), None)
        if device not in (None, self._device):
            self._network.to(device)
            self._device, self._versions = device, None

    def _may_be_written(self, sources):
        """Torch counts no writes through `.data`: what may be another value is another, but while passes are to go back."""
        versions = [(source.data_ptr(), source._version) for source in sources]
        self._versions, before = versions, self._versions
        return versions != before or not self.pending

    def take_buffers(self):
        """Gives torch the running statistics of a step."""
        for name, own in self._network.buffers(torch.empty(0)).items():
            if self._places[name].module.training:
                self._places[name].get().copy_(own)
        for place in self._places.values():
            if place.name == "num_batches_tracked" and place.module.training:
                place.module.num_batches_tracked += 1
