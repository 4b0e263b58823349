"""Learned ranges in training."""
import torch


class Guard:
    """As in the library's loop: a step at most halves or doubles a learned range, and leaves it 2^-23 or more."""

    def __init__(self):
        self._before = {}

    def limit(self, values):
        """Limits ranges, {name: parameter}, that were written to since the last call."""
        with torch.no_grad():
            for name, value in values.items():
                before = self._before.get(name)
                if before is not None and value._version != before[1]:
                    last = before[0].to(value.device)
                    held = value.clamp(last / 2, last * 2).clamp_(min=2.0**-23)
                    if not torch.equal(held, value):
                        value.copy_(held)
                if before is None or value._version != before[1]:
                    self._before[name] = (value.detach().clone(), value._version)

    def forget(self):
        """After ranges were calibrated or loaded, which no step did."""
        self._before = {}
