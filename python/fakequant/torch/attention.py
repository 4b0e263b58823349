"""Attention of inputs of its own: queries, keys, values and masks as torch calls its function and its module with."""
import torch
from torch import nn
from torch.nn import functional

from .. import _fakequant as _fq
from .codes import Codes
from .layers import require
from .samples import mask_of, rows_of_shapes


class AttentionCodes(Codes):
    """One attention layer of the library, called with its inputs one by one, of any lengths. It is calibrated on inputs of those
    shapes, of which the layer reads those of the numbers `reads`."""

    def __init__(self, kind, shapes, reads, places, config, name):
        """`name`: module path of the layer in the whole model."""
        nodes, begin = [], 0
        for i, shape in enumerate(shapes):
            nodes.append({"name": f"input_{i}", "type": "input_part", "options": {"begin": begin, "shape": shape, "name": f"input_{i}"},
                          "inputs": ["input"]})
            begin += torch.Size(shape).numel()
        names = [nodes[i]["name"] for i in reads]
        nodes.append({"name": name, "type": kind[0], "options": kind[1], "inputs": names})
        self._shapes, self._name = shapes, name
        super().__init__(nodes, {f"{name}.{parameter}": place for parameter, place in places.items()}, [begin], 0,
                         config, before={"attention": name})

    def _recorded(self, inputs, wants_gradient):
        return self._network.record_layer(self._name, inputs, wants_gradient)

    def _evaluated(self, inputs):
        return self._network.run_layer(self._name, inputs)

    def mask_sizes(self):
        """How many queries and keys the mask of the example had."""
        return self._shapes[-1][1:]

    def _samples(self, batches):
        return torch.cat([rows_of_shapes(inputs, self._shapes) for inputs in batches]).contiguous()

    def _masked(self, batches, masks):
        for inputs, mask in zip(batches, masks):
            if mask is not None and any(list(x.shape[1:]) != list(shape) for x, shape in zip(inputs, self._shapes)):
                raise _fq.ArgumentError("[calibrate] mask: attention on codes is called with other lengths than in example_input. "
                                        "Calibrate with samples as long as that one")
        return batches, mask_of(batches, masks)


class Attention(nn.Module):
    """What stands for a call of torch's attention. Where torch has something that the library has not, and no quantizer of
    attention is on, torch computes it."""

    def __init__(self, codes):
        super().__init__()
        self.attend, self.kept, self.floats, self._token_mask = codes, None, {}, None

    def codes(self):
        return {"attend": self.attend}

    def watching(self):
        """Keeps the inputs of the calls to come and computes in floats: {name of codes: list of (inputs of a call, mask of positions)}."""
        self.kept = []
        return {"attend": self.kept}

    def stop_watching(self):
        self.kept = None

    def _as_computed(self, *tensors):
        """Inputs in float32, as the library takes them, where torch computes with them for calibration; the same tensor once."""
        if self.kept is None:
            return tensors
        made = {id(x): x.float() if x.is_floating_point() else x for x in tensors if x is not None}
        return [made.get(id(x)) for x in tensors]

    def _computed(self, inputs, mask, missing, by_torch):
        """By the library but where it is watched or something is `missing`."""
        if self.kept is not None:
            if not missing:
                self.kept.append(([x.detach().clone() for x in inputs], self._token_mask))
            return by_torch()
        if not missing:
            return self.attend(*inputs, *([] if mask is None else [mask]))
        if any(row["enabled"] for row in self.attend.network.quantizers()):
            raise _fq.ArgumentError(f"[attention] {missing}, which attention on codes has not: leave it out, or switch the quantizers "
                                    "of attention off")
        return by_torch()


class DotProduct(Attention):
    """F.scaled_dot_product_attention of queries, keys and values of those shapes at first."""

    def __init__(self, shapes, scale, config, name):
        kind = "scaled_dot_product_attention", {} if scale is None else {"scale": scale}
        super().__init__(AttentionCodes(kind, [_with_heads(shape)[1:] for shape in shapes], range(3), {}, config, name))
        self._scale = scale

    def forward(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        query, key, value, attn_mask = self._as_computed(query, key, value, attn_mask)
        inputs, mask = [query, key, value], attn_mask
        if is_causal and mask is None and query.dim() > 2:
            mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        missing = ("dropout_p is above 0" if dropout_p else
                   f"scale is {scale}, it was {self._scale}" if scale != self._scale else
                   _misfit(inputs, mask, enable_gqa))
        by_torch = lambda: functional.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal,  # noqa: E731
                                                                   scale=scale, enable_gqa=enable_gqa)
        if missing:
            return self._computed(inputs, None, missing, by_torch)
        whole = [x if x.dim() == 4 else x.unsqueeze(1) for x in inputs]
        if mask is not None:
            mask = mask.to(torch.uint8) if mask.dtype == torch.bool else mask
            mask = mask.unsqueeze(1) if query.dim() == 3 and mask.dim() == 3 else mask
        y = self._computed(whole, mask, "", by_torch)
        return y if y.dim() == query.dim() else y.squeeze(1)


def is_function(node):
    """Whether a node of torch.fx calls scaled_dot_product_attention."""
    return node.op == "call_function" and node.target is functional.scaled_dot_product_attention


def dot_product(shapes, scale, config, name):
    """Returns a DotProduct for the module path `name`. Raises NoLayer."""
    require(len(shapes) == 3 and all(len(shape) in (3, 4) for shape in shapes), "attention of other than three or four axes")
    return DotProduct(shapes, scale, config, name)


def _with_heads(shape):
    return list(shape) if len(shape) == 4 else [shape[0], 1, *shape[1:]]


def _misfit(inputs, mask, grouped):
    """What of a call the library has not."""
    query, key, _ = inputs
    if any(x.dim() not in (3, 4) or x.dim() != query.dim() or x.shape[0] != query.shape[0] for x in inputs):
        return f"inputs are {', '.join(str(list(x.shape)) for x in inputs)}"
    if not grouped and query.dim() == 4 and query.shape[1] != key.shape[1]:
        return f"{query.shape[1]} heads of queries and {key.shape[1]} of keys without enable_gqa"
    return "the mask takes a gradient" if mask is not None and mask.requires_grad else ""
