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


def without_padded_rows(batches, masks):
    """Calls of rows [B * T, ..] without the rows of padding, and the masks of the others."""
    rows = [mask is not None and mask.shape[1] > 1 and inputs[0].shape[0] == mask.numel() for inputs, mask in zip(batches, masks)]
    seen = [[x[mask.flatten() != 0] for x in inputs] if of_rows else inputs for inputs, mask, of_rows in zip(batches, masks, rows)]
    left = [(inputs, None if of_rows else mask) for inputs, mask, of_rows in zip(seen, masks, rows) if len(inputs[0])]
    return [inputs for inputs, _ in left], [mask for _, mask in left], sum(rows)


def mask_of(batches, masks):
    """The masks of calls as one mask [N, T] of the samples that `samples_of` makes of them, or None without masks."""
    known = [None if mask is None or len(mask) != len(inputs[0]) else mask for inputs, mask in zip(batches, masks)]
    first = next((i for i, mask in enumerate(known) if mask is not None), None)
    if first is None:
        return None
    length, shape = known[first].shape[1], batches[0][0].shape[1:]
    return torch.cat([_mask_of_call(inputs[0], mask, length, shape) for inputs, mask in zip(batches, known)]).contiguous()


def _mask_of_call(x, mask, length, shape):
    if mask is not None and x.shape[1:] == shape and mask.shape[1] == length:
        return mask
    count = len(x) if x.shape[1:] == shape else -(-x.shape[0] * x.shape[1] // shape[0])
    if mask is not None and mask.shape[1] == x.shape[1] and length == shape[0] and x.dim() > 2:
        return _of_length(mask, (length,))  # as the samples themselves
    return torch.ones(count, length)


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
