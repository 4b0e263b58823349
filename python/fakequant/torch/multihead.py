"""nn.MultiheadAttention as one layer of the library, of one input or of two, with its masks."""
import torch
from torch import nn

from .. import _fakequant as _fq
from .attention import Attention, AttentionCodes
from .layers import added, layer_of, places_of


class MultiheadCall(Attention):
    """nn.MultiheadAttention, of which it holds the parameters without registering them."""

    def __init__(self, module, shapes, config, name, weights_read):
        """`name` is that of the layer in the whole model. `weights_read`: whether the model may read the attention weights, which are
        None here."""
        mask = [1, shapes[0][0], shapes[-1][0]]
        reads = [0, len(shapes) - 1, len(shapes)]
        super().__init__(AttentionCodes(layer_of(module), [*shapes, mask], reads, places_of(module), config, name))
        self._several, self.weights_read = len(shapes) > 1, weights_read
        self.take_module(module)

    def take_module(self, module):
        self._module = (module,)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True,
                is_causal=False):
        (module,) = self._module
        query, key, value, key_padding_mask, attn_mask = self._as_computed(query, key, value, key_padding_mask, attn_mask)
        by_torch = lambda: (nn.MultiheadAttention.forward(  # noqa: E731
            module, query, key, value, key_padding_mask, False, attn_mask, average_attn_weights, is_causal)[0])
        one = key is value and not self._several and query is key
        missing = ("it is not of batches" if query.dim() != 3 else
                   "keys and values are two inputs" if key is not value else
                   "queries and keys are two inputs, and were one" if query is not key and not self._several else
                   "scores have dropout" if module.dropout and self.training else "")
        masks = [m for m in (key_padding_mask, attn_mask) if m is not None]
        missing = missing or ("a mask takes a gradient" if any(m.requires_grad for m in masks) else "")
        if missing:
            return self._computed([query], None, missing, by_torch), None
        inputs = [query] if one else [query, key]
        inputs = inputs if module.batch_first else [x.transpose(0, 1) for x in inputs]
        mask = _joined(key_padding_mask, attn_mask, len(inputs[0]), module.num_heads)
        if self.kept is not None:
            sizes, known = [inputs[0].shape[1], inputs[-1].shape[1]], self.attend.mask_sizes()
            if mask is not None and sizes != known:
                raise _fq.ArgumentError(f"[calibrate] attention with a mask is called with {sizes} queries and keys, with example_input "
                                        f"it was {known}: calibrate with samples as long as that one")
            return self._computed([*inputs, _whole(mask, inputs[0], inputs[-1])], None, "", by_torch), None
        y = self._computed(inputs * 2 if one and masks else inputs, mask, "", by_torch)
        return y if module.batch_first else y.transpose(0, 1), None


def _joined(padding, mask, samples, heads):
    """key_padding_mask [N, S] and attn_mask [L, S] or [N * heads, L, S], true where hidden or added, as one."""
    masks = [] if padding is None else [padding[:, None, None, :]]
    if mask is not None:
        masks.append(mask if mask.dim() == 2 else mask.reshape(samples, heads, *mask.shape[1:]))
    if not masks:
        return None
    if all(m.dtype == torch.bool for m in masks):
        return (~(masks[0] if len(masks) == 1 else masks[0] | masks[1])).to(torch.uint8)
    masks = [added(~m) if m.dtype == torch.bool else m for m in masks]
    return masks[0] if len(masks) == 1 else masks[0] + masks[1]


def _whole(mask, queries, keys):
    """A mask as numbers that are added, [N, 1, L, S]: what one head sees all see."""
    shape = len(queries), 1, queries.shape[1], keys.shape[1]
    if mask is None:
        return torch.zeros(shape, device=queries.device)
    numbers = added(mask.bool()) if mask.dtype == torch.uint8 else mask
    heads = numbers.expand(len(queries), -1, *shape[2:]) if numbers.dim() == 4 else numbers.expand(shape)
    return heads.amax(1, keepdim=True)


class Multihead(nn.MultiheadAttention):
    """nn.MultiheadAttention with its own parameters, called by the library; what it gives beside the outputs is None."""

    def forward(self, *args, **kwargs):
        return self.attends(*args, **kwargs)


def quantized_multihead(module, args, kwargs, config, name):
    """Returns a Multihead with the parameters of `module`. `args` and `kwargs` are those of its example call, `name` is its module path.
    Raises NoLayer."""
    call = dict(zip(("query", "key", "value", "key_padding_mask", "need_weights"), args)) | kwargs
    out = object.__new__(Multihead)
    out.__dict__.update(module.__dict__)
    out._modules = {**module._modules, "attends": multihead_call(module, call["query"].shape, _same(call), config, name,
                                                                  call.get("need_weights", True))}
    out.attends.take_module(out)
    return out


def _same(call):
    return call["key"].shape if call["query"] is not call["key"] else None


def multihead_call(module, query, key, config, name, weights_read):
    """The MultiheadCall of queries and keys of those shapes; keys are None where they are the queries."""
    shapes = [list(shape) for shape in (query, key) if shape is not None]
    shapes = [shape[1:] if module.batch_first else [shape[0], shape[2]] for shape in shapes]
    return MultiheadCall(module, shapes, config, name, weights_read)
