"""Tensors of torch as the library reads them: checks, layouts, calibration samples, and parameters in shared memory."""
import sys
import weakref

import torch

from .. import _fakequant as _fq


def is_usable(device):
    """Returns whether the library computes on a device: the CPU, and GPUs if the library was built with CUDA."""
    return device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < _fq.cuda_device_count())


def checked(x, function):
    """Returns `x`. Raises ArgumentError if it is not a dense tensor on a device of the library. `function` is the name for the message."""
    if not isinstance(x, torch.Tensor):
        raise _fq.ArgumentError(f"[{function}] inputs is a {type(x).__name__}: use a tensor of torch. The functions of "
                                "fakequant.modelopt take other arrays")
    if x.layout is not torch.strided:
        raise _fq.ArgumentError(f"[{function}] inputs is {x.layout}: use a dense tensor. Call to_dense()")
    if not is_usable(x.device):
        raise _fq.ArgumentError(f"[{function}] inputs is on {x.device}: CPU tensors" + (
            " and tensors on CUDA GPUs are supported" if _fq.cuda_device_count() else " only, this fakequant has no usable GPU"))
    return x


def as_float32(x):
    """Returns floating-point tensors in float32, others unchanged."""
    return x.float() if x.is_floating_point() else x


def make_dense(x):
    """Returns `x` without its gradient, contiguous or channels-last. Most tensors are not copied."""
    x = x.detach()
    return x if x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)) else x.contiguous()


# Parameters that fully_shard distributes over processes.

def is_sharded(value):
    """Returns whether a tensor is a DTensor: this process has a shard of it."""
    return hasattr(value, "placements")


def gathered(value):
    """Returns the whole of a tensor that is sharded over processes, others unchanged.

    fully_shard gathers parameters when their module is called. A part of several modules calls none of them. The gradient is the mean over
    the processes, as in fully_shard.
    """
    if not is_sharded(value):
        return value
    partial = sys.modules["torch.distributed.tensor"].Partial
    if not (torch.is_grad_enabled() and value.requires_grad):
        return value.detach().full_tensor()
    return _MeanGradient.apply(value.full_tensor(grad_placements=[partial()] * value.device_mesh.ndim), value.device_mesh.size())


def call_gathered(module, args, kwargs):
    """Returns the result of a module, with the whole of its sharded parameters. fully_shard gathers them only if their block is called."""
    if any(hasattr(child, "unshard") for child in module.modules()):  # blocks that fully_shard gathers by itself
        return module(*args, **kwargs)
    whole = {name: gathered(value) for name, value in module.named_parameters() if is_sharded(value)}
    return torch.func.functional_call(module, whole, args, kwargs) if whole else module(*args, **kwargs)


class _MeanGradient(torch.autograd.Function):
    """Divides the gradient by the number of processes. gloo has no mean."""

    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad / ctx.count, None


def is_managed(module):
    """Returns whether fully_shard frees the memory of the parameters of a module after its forward."""
    return module.__dict__.get("_is_fsdp_managed_module", False)  # getattr of a missing attribute is slow


_UNUSED = {}  # {device: memory that all released parameters share}


def _unused_memory(like):
    """Returns a float32 tensor of the shape of `like`. No operator reads its values."""
    memory = _UNUSED.get(like.device)
    if memory is None or memory.numel() < like.numel():
        memory = _UNUSED[like.device] = torch.empty(like.numel(), dtype=torch.float32, device=like.device)
    return memory[:like.numel()].view(like.shape)


#: Types of parameters. The library computes with their values in float32.
PARAMETER_TYPES = torch.float32, torch.bfloat16, torch.float16


class SharedParameters:
    """Parameters and buffers of torch that a network of the library uses. `refs` is {name in the network: TensorRef}.

    The library uses the memory of float32 parameters, and a float32 copy of others. fully_shard frees the parameters after a forward pass,
    so the library has copies of them until `release`, and a backward pass keeps its own.
    """

    def __init__(self, network, refs):
        self._network, self._refs, self._versions, self._device, self._copies = network, refs, None, None, {}
        self._modules = dict.fromkeys(ref.module for ref in refs.values())
        self.pending = weakref.WeakSet()  # forward passes whose backward pass did not run yet

    def share(self, parameters):
        """Gives the network the memory of parameters ({name: tensor}), and the values of buffers."""
        self._move_network(parameters)
        if self.is_managed():
            given, written = {name: value.detach().float().clone() for name, value in parameters.items()}, True
        else:
            written = self._may_be_written(parameters)
            given = {name: self._as_float32(name, value.detach(), written) for name, value in parameters.items()}
        self._network.share_parameters(given, written=written)
        self._network.load_buffers({name: as_float32(ref.get()) for name, ref in self._refs.items() if name not in parameters})

    def is_managed(self):
        """Returns whether fully_shard manages the parameters."""
        return any(map(is_managed, self._modules))

    def release(self, parameters):
        """Frees the copies of parameters ({name: tensor}) that fully_shard manages. The network does not read them before the next `share`."""
        if self.is_managed():
            given = {name: _unused_memory(value) for name, value in parameters.items() if name in self._refs}
            self._network.share_parameters(given, written=True)

    def _as_float32(self, name, value, written):
        """Returns a contiguous tensor in float32. A copy keeps its memory as long as shape and device stay."""
        if value.dtype == torch.float32:
            return value.contiguous()
        copy = self._copies.get(name)
        if copy is None or copy.shape != value.shape or copy.device != value.device:
            copy = self._copies[name] = torch.empty(value.shape, dtype=torch.float32, device=value.device)
            written = True
        return copy.copy_(value) if written else copy

    def _move_network(self, parameters):
        """Moves the network to the device of the parameters."""
        for name, value in parameters.items():
            if value.dtype not in PARAMETER_TYPES or not is_usable(value.device):
                raise _fq.ArgumentError(f"[fakequant.torch] '{name}' is {value.dtype} on {value.device}: parameters of quantized layers "
                                        "are float32, bfloat16 or float16 on the CPU, or on a GPU if fakequant was built with CUDA. "
                                        "Call model.float() or model.to(device)")
        devices = {str(value.device): name for name, value in parameters.items()}
        if len(devices) > 1:
            raise _fq.ArgumentError("[fakequant.torch] " + " and ".join(f"'{name}' is on {device}" for device, name in devices.items())
                                    + ": move all parameters of a part to one device")
        device = next(iter(devices), None)
        if device not in (None, self._device):
            self._network.to(device)
            self._device, self._versions = device, None

    def _may_be_written(self, parameters):
        """Returns whether values may have changed. Torch does not count writes through `.data`, so without pending backward passes
        all values may have changed."""
        values = [self._refs[name].base() if name in self._refs else value for name, value in parameters.items()]
        versions = [(value.data_ptr(), value._version) for value in values]
        self._versions, before = versions, self._versions
        return versions != before or not self.pending

    def update_statistics(self):
        """Copies the running statistics of a training step to the modules of torch."""
        for name, own in self._network.buffers(torch.empty(0, dtype=torch.float32)).items():
            if self._refs[name].module.training:
                self._refs[name].get().copy_(own)
        for ref in self._refs.values():
            if ref.name == "num_batches_tracked" and ref.module.training:
                ref.base().add_(1)


# Calibration samples from the inputs of several calls. `calls` is a list of lists of tensors. If sizes differ, the last sample is filled
# with elements from the front, because ranges do not depend on order.

def by_size(calls, masks):
    """Returns a list of (calls, masks) for each size of the samples. Sequences of other lengths and calls with several inputs have one
    size."""
    groups = {}
    for inputs, mask in zip(calls, masks):
        x = inputs[0]
        size = x.shape[1 + (x.dim() > 2):] if len(inputs) == 1 else None
        own, positions = groups.setdefault(size, ([], []))
        own.append(inputs)
        positions.append(mask)
    return list(groups.values())


def concatenate_calls(calls):
    """Returns the one input of all calls as samples [N, ..]. Sequences [N, L, ..] of other lengths are cut into samples as long as in the
    first call."""
    found = [x for x, in calls]
    if any(x.shape[2:] != found[0].shape[2:] or x.dim() < 2 + (x.shape[1:] != found[0].shape[1:]) for x in found):
        raise _fq.ArgumentError(f"[calibrate] samples are {' and '.join(sorted({str(list(x.shape)) for x in found}))}: use all in "
                                "one shape; rows [N, L, ..] may differ in L")
    return torch.cat([_with_length(x, found[0].shape[1:]) for x in found]).contiguous()


def drop_padded_rows(calls, masks):
    """Returns (calls, masks, number of changed calls) without the padding of inputs [B * T, ..], whose masks become None."""
    flat = [mask is not None and mask.shape[1] > 1 and inputs[0].shape[0] == mask.numel() for inputs, mask in zip(calls, masks)]
    seen = [[x[mask.flatten() != 0] for x in inputs] if is_flat else inputs for inputs, mask, is_flat in zip(calls, masks, flat)]
    left = [(inputs, None if is_flat else mask) for inputs, mask, is_flat in zip(seen, masks, flat) if len(inputs[0])]
    return [inputs for inputs, _ in left], [mask for _, mask in left], sum(flat)


def concatenate_masks(calls, masks):
    """Returns one mask [N, T] for the samples of `concatenate_calls`, or None if no call has a mask."""
    known = [None if mask is None or len(mask) != len(inputs[0]) else mask for inputs, mask in zip(calls, masks)]
    first = next((i for i, mask in enumerate(known) if mask is not None), None)
    if first is None:
        return None
    length, shape = known[first].shape[1], calls[0][0].shape[1:]
    return torch.cat([_call_mask(inputs[0], mask, length, shape) for inputs, mask in zip(calls, known)]).contiguous()


def _call_mask(x, mask, length, shape):
    if mask is not None and x.shape[1:] == shape and mask.shape[1] == length:
        return mask
    count = len(x) if x.shape[1:] == shape else -(-x.shape[0] * x.shape[1] // shape[0])
    if mask is not None and mask.shape[1] == x.shape[1] and length == shape[0] and x.dim() > 2:
        return _with_length(mask, (length,))  # cut like the samples
    return torch.ones(count, length, dtype=torch.float32)


def flatten_inputs(inputs, shapes):
    """Returns several inputs of a call as rows [N, elements of all shapes]."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    count = max(-(-x.numel() // size) for x, size in zip(inputs, sizes))
    return torch.cat([_filled(x.float().flatten(), count * size).view(count, size) for x, size in zip(inputs, sizes)], 1)


def _with_length(x, shape):
    if x.shape[1:] == shape:
        return x
    count = -(-x.shape[0] * x.shape[1] // shape[0])
    return _filled(x.flatten(0, 1), count * shape[0]).view(count, *shape)


def _filled(rows, count):
    """Returns `count` rows, which start again from the front after the last one."""
    return rows.repeat(-(-count // len(rows)), *[1] * (rows.dim() - 1))[:count]
