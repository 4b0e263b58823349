"""Puts states of quantizers below the modules of their layers, without a change of the float model."""
import dataclasses

from torch import nn

from .. import _fakequant as _fq


class _Holder(nn.Module):
    """Placeholder module for a layer that torch computes by a function, such as a part of attention."""


class Attaching:
    """`stands_for`: {module of the float model: the module in `root` that has its place and its parameters}."""

    def __init__(self, root, stands_for):
        self._root, self._stands_for, self._twins = root, stands_for, {}
        self._own = {id(module) for module in (root, *stands_for.values())}

    def attach(self, path, state):
        """Makes `state` the child at a path. Modules of the float model on the way are replaced by twins."""
        *parents, last = path.split(".")
        at = self._root
        for name in parents:
            at = self._child(at, name)
        if at._modules.get(last) is not None:
            raise _fq.ArgumentError(f"[quantize] the model has a module '{path}' of its own: quantize a model without quantizers")
        state.train(at.training)
        at._modules[last] = state

    def _child(self, parent, name):
        child = parent._modules.get(name)
        if child is None:
            child = _Holder().train(parent.training)
            self._own.add(id(child))
        elif id(child) not in self._own:
            child = self._twin(child)
        parent._modules[name] = child
        return child

    def _twin(self, module):
        """A module of the same parameters, with a list of children of its own."""
        if module not in self._twins:
            twin = object.__new__(type(module))
            twin.__dict__.update(module.__dict__)
            twin._modules = dict(module._modules)
            self._twins[module] = twin
            self._own.add(id(twin))
        return self._twins[module]

    def moved(self, places):
        """Returns the places with the modules of the quantized model instead of the modules of the float model."""
        now = self._stands_for | self._twins
        return {name: dataclasses.replace(place, module=now.get(place.module, place.module)) for name, place in places.items()}
