"""Learned ranges of quantizers, as parameters of torch."""
import torch
from torch import nn


class Ranges(nn.ParameterDict):
    """By the names of the library's parameters."""

    def __init__(self, values):
        super().__init__({_key(name): nn.Parameter(value) for name, value in values.items()})
        self._before = {}

    def of(self, name):
        """The parameter of the library's name."""
        return self[_key(name)]

    def guard(self):
        """As in the library's loop: a step at most halves or doubles a learned range, and leaves it 2^-23 or more."""
        with torch.no_grad():
            for name, value in self.items():
                before = self._before.get(name)
                if before is not None and value._version != before[1]:
                    last = before[0].to(value.device)
                    held = value.clamp(last / 2, last * 2).clamp_(min=2.0**-23)
                    if not torch.equal(held, value):
                        value.copy_(held)
                if before is None or value._version != before[1]:
                    self._before[name] = (value.detach().clone(), value._version)


def _key(name):
    return name.replace(".", "__")
