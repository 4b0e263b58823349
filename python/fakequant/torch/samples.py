"""Inputs of calls as samples to calibrate on. Where sizes differ the last sample is filled up from the front: ranges are of all
elements."""
import torch

from .. import _fakequant as _fq


def samples_of(batches):
    """One input a call, [N, ..]; of rows [N, L, ..] of several L as samples of the first call's."""
    found = [x for x, in batches]
    if any(x.shape[2:] != found[0].shape[2:] or x.dim() < 2 + (x.shape[1:] != found[0].shape[1:]) for x in found):
        raise _fq.ArgumentError(f"[calibrate] samples are {' and '.join(sorted({str(list(x.shape)) for x in found}))}: give all in "
                                "one shape; rows [N, L, ..] may differ in L")
    return torch.cat([_of_length(x, found[0].shape[1:]) for x in found]).contiguous()


def rows_of_shapes(inputs, shapes):
    """Several inputs of a call side by side, as samples of those shapes."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    count = max(-(-x.numel() // size) for x, size in zip(inputs, sizes))
    return torch.cat([_filled(x.float().flatten(), count * size).view(count, size) for x, size in zip(inputs, sizes)], 1)


def _of_length(x, shape):
    if x.shape[1:] == shape:
        return x
    count = -(-x.shape[0] * x.shape[1] // shape[0])
    return _filled(x.flatten(0, 1), count * shape[0]).view(count, *shape)


def _filled(rows, count):
    """So many rows, from the front again after the last one."""
    return rows.repeat(-(-count // len(rows)), *[1] * (rows.dim() - 1))[:count]
