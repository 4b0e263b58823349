"""Learned ranges in training."""
import torch
from torch.nn.parallel import DistributedDataParallel


_LEAST = 2.0**-23


def _is_within(value, last):
    """Returns whether the step from `last` to `value` is within the limits. Most steps are, and this check is cheap."""
    lowest, highest = torch.aminmax(value / last.to(value.device))
    return float(lowest) >= 0.5 and float(highest) <= 2.0 and float(value.min()) >= _LEAST


class Guard:
    """As in the library's loop: a step at most halves or doubles a learned range, and leaves it 2^-23 or more."""

    def __init__(self):
        self._before = {}

    def limit(self, values):
        """Limits ranges, {name: parameter}, that were written to since the last call."""
        with torch.no_grad():
            for name, value in values.items():
                last, version = self._before.get(name, (None, None))
                if value._version == version:
                    continue
                if last is not None and not _is_within(value, last):
                    last = last.to(value.device)
                    held = value.clamp(last / 2, last * 2).clamp_(min=_LEAST)
                    value.copy_(torch.where(last > 2.0**-24, held, value))  # a range of zeros stays until training gives it values
                self._before[name] = value.detach().clone(), value._version

    def forget(self):
        """After ranges were calibrated or loaded, which no step did."""
        self._before = {}


def share_growth(network, quantizers, device):
    """Gives quantizers that grow (they saw zeros alone) the largest range that a process of DistributedDataParallel found."""
    model = DistributedDataParallel._get_active_ddp_module()
    if model is None or not torch.distributed.is_initialized():
        return
    growth = torch.as_tensor(network.range_growth(quantizers)).to(device)
    torch.distributed.all_reduce(growth, torch.distributed.ReduceOp.MAX, group=model.process_group)
    network.set_range_growth(quantizers, growth.cpu().numpy())
