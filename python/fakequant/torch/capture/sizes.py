"""Inputs of other sizes than in the example: layers may have sizes of the example among their options, as the bounds of a slice."""
import contextlib
from collections import OrderedDict

import torch
from torch.utils._pytree import tree_leaves

from ... import _fakequant as _fq
from .nodes import is_tensor, node_shape

#: Layer types whose options may come from the sizes of the example.
_WITH_SIZES = {"slice", "index_select", "resize", "expand", "pad", "reshape", "flatten", "adaptive_avg_pool", "max_pool", "parameter"}
_TOLERANCE = 1e-3  # of the largest value: float32 sums in another order, through a whole network


class SizeCheck:
    """Compares a Quantized with torch at the first call whose sizes differ from the example, without quantizers. Later calls are not compared."""

    def __init__(self, graph, partition, subgraphs):
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        self._names = [node.target for node in placeholders]
        self._shapes = {node.target: node_shape(node)[1:] for node in placeholders if is_tensor(node)}
        is_exact = any(len(subgraph.inputs) > 1 for subgraph in subgraphs)  # a part of several inputs checks their sizes itself
        self._is_general = is_exact or not any(_may_have_sizes(node, partition.lowered[node]) for subgraph in subgraphs for node in subgraph.nodes)

    def differs(self, inputs, named):
        """Returns whether the sizes of a call have to be checked."""
        if self._is_general:
            return False
        given = dict(zip(self._names, inputs)) | named
        return any(isinstance(given.get(name), torch.Tensor) and list(given[name].shape[1:]) != shape for name, shape in self._shapes.items())

    @torch.compiler.disable
    def check(self, model, inputs, named):
        """Raises ArgumentError if the layers compute other values than torch for these sizes."""
        modes = {module: module.training for module in model.modules()}
        try:
            for module in modes:
                module.training = False
            with torch.no_grad():
                wanted = model.run_float(*inputs, **named)
                found = _without_quantizers(model, inputs, named)
        finally:
            for module, mode in modes.items():
                module.training = mode
        if found is None or not _are_close(found, wanted):
            given = dict(zip(self._names, inputs)) | named
            sizes = "; ".join(f"'{name}' is {list(given[name].shape)}, and {['N', *shape]} in example_input" for name, shape in self._shapes.items()
                              if isinstance(given.get(name), torch.Tensor) and list(given[name].shape[1:]) != shape)
            raise _fq.ArgumentError(f"[fakequant.torch] {sizes}: layers have sizes of the example. Quantize with an example of the size of your "
                                    "calls, or with whole=False")
        self._is_general = True


def _may_have_sizes(node, lowering):
    """Returns whether a layer may have sizes of the example as options, or reads a constant that has them."""
    types = {layer_type for layer_type, _ in lowering.layers} | {helper.type for helper in lowering.helpers}
    return bool(types & _WITH_SIZES) or any("fixed" in used.meta and used.op != "placeholder" for used in node.all_input_nodes)


def _without_quantizers(model, inputs, named):
    """Returns the outputs of the layers without quantizers, or None if the library rejects the sizes."""
    try:
        with contextlib.ExitStack() as stack:
            for lowered in model.lowered_modules().values():
                stack.enter_context(lowered.network.quantizers_off("*"))
                stack.enter_context(_without_hooks(lowered))
            return model.run_layers(inputs, named)
    except _fq.ArgumentError as why:
        if "example_input" in str(why):
            raise
        return None


@contextlib.contextmanager
def _without_hooks(module):
    """Hides a call from observers, which compare outputs with quantizers."""
    hooks, module._forward_hooks = module._forward_hooks, OrderedDict()
    try:
        yield
    finally:
        module._forward_hooks = hooks


def _are_close(found, wanted):
    found, wanted = ([x for x in tree_leaves(value) if isinstance(x, torch.Tensor)] for value in (found, wanted))
    return len(found) == len(wanted) and all(
        a.shape == b.shape and (a.numel() == 0 or bool((a.float() - b.float()).abs().max() <= _TOLERANCE * b.float().abs().max() + 1e-6))
        for a, b in zip(found, wanted))
