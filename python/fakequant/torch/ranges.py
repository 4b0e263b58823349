"""Learned ranges in training."""
import torch
from torch.nn.parallel import DistributedDataParallel


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
                    held = torch.where(last > 2.0**-24, held, value)  # a range of zeros stays until training gives it values
                    if not torch.equal(held, value):
                        value.copy_(held)
                if before is None or value._version != before[1]:
                    self._before[name] = (value.detach().clone(), value._version)

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
