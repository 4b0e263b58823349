"""References to parameters, buffers and constants of a model, and the layers that read them."""
import dataclasses

import torch
from torch import nn

from ..capture.interpreter import run_constant
from ..tensors import gathered


class Unsupported(Exception):
    """The library has no such layer. The text is the reason."""


def require(condition, why):
    if not condition:
        raise Unsupported(why)


class Constant(nn.Module):
    """Holds a tensor that depends on no input and on no parameter. A buffer moves with the model to other devices."""

    def __init__(self, value):
        super().__init__()
        self.register_buffer("value", value.detach(), persistent=False)


@dataclasses.dataclass(frozen=True)
class Expression:
    """A function of a parameter or buffer: steps of the graph.

    `base` is the name of that value among the steps. `others` has the TensorRefs of the other values that they read, `sizes` the sizes, by
    name.
    """
    steps: tuple
    base: str
    others: dict
    sizes: dict

    def value(self, base):
        """Returns the result. Torch records its gradient."""
        return run_constant(self.steps, self.sizes | {self.base: base} | {name: ref.get() for name, ref in self.others.items()})

    def redirected(self, modules):
        return dataclasses.replace(self, others={name: ref.redirected(modules) for name, ref in self.others.items()})


@dataclasses.dataclass(frozen=True)
class Parametrization:
    """A weight that torch computes from parameters of its own: a ParametrizationList of torch.nn.utils.parametrize."""
    parametrizations: nn.Module
    others: dict

    def value(self, base):
        return self.parametrizations()

    def redirected(self, modules):
        return Parametrization(modules.get(self.parametrizations, self.parametrizations),
                               {name: ref.redirected(modules) for name, ref in self.others.items()})


def parametrized(module, name):
    """Returns the TensorRef of a weight that torch computes."""
    own = module.parametrizations[name]
    first, *others = [TensorRef(own, key) for key, _ in own.named_parameters(recurse=False)]
    return dataclasses.replace(first, expression=Parametrization(own, {ref.name: ref for ref in others}))


@dataclasses.dataclass(frozen=True)
class TensorRef:
    """Reference to a parameter or buffer: an attribute of a module, and how the library reads it.

    `expression` computes another tensor from it. `rows` is a range (begin, end), `shape` a new shape. `mask` is "seen" or "hidden": `get`
    returns the numbers that this attention mask adds to the scores. `still_row` is the row of an embedding that takes no gradient.
    """
    module: nn.Module
    name: str
    rows: tuple = None
    shape: tuple = None
    transposed: bool = False
    mask: str = ""
    expression: "Expression | Parametrization" = None
    still_row: int = None

    def base(self):
        """Returns the attribute itself, which may be sharded over processes."""
        return getattr(self.module, self.name)

    def get(self):
        value = gathered(self.base())
        value = value.float() if isinstance(self.module, Constant) else value  # the model may have been converted
        value = value if self.expression is None else self.expression.value(value)
        value = value if self.rows is None else value[slice(*self.rows)]
        value = value.t() if self.transposed else value
        value = self._added_to_scores(value) if self.mask else value
        return value if self.shape is None else _finite(value).reshape(self.shape)

    def is_trained(self):
        """Returns whether the value takes a gradient."""
        refs = [self, *(self.expression.others.values() if self.expression else ())]
        return any(ref.base().requires_grad for ref in refs)

    def redirected(self, modules):
        """Returns the reference with other modules, {module: its replacement}."""
        return dataclasses.replace(self, module=modules.get(self.module, self.module),
                                   expression=self.expression and self.expression.redirected(modules))

    def _added_to_scores(self, mask):
        seen = ~mask if self.mask == "hidden" and mask.dtype == torch.bool else mask
        return additive_mask(seen)


def _finite(value):
    """Returns numbers without infinity, because files have none. A trained parameter is unchanged."""
    if value.requires_grad:
        return value
    limits = torch.finfo(torch.float32)
    return value.to(torch.float32).clamp(limits.min, limits.max)


def additive_mask(mask):
    """Returns the numbers that a mask adds to attention scores: 0 for True, -infinity for False. Other types than bool are unchanged."""
    return torch.zeros(mask.shape, dtype=torch.float32, device=mask.device).masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else mask


@dataclasses.dataclass
class HelperNode:
    """Node of a model file that computes an operand of a layer. `inputs` are nodes of torch.fx and names of other helper nodes."""
    name: str
    type: str
    options: dict
    inputs: list
    ref: TensorRef = None


def constant(ref, reads, name="constant"):
    """Returns the HelperNode of a tensor that is the same for each sample. `ref.shape` begins with 1."""
    return HelperNode(name, "parameter", {"shape": list(ref.shape[1:]) or [1], "trained": ref.is_trained()}, [reads], ref)


@dataclasses.dataclass
class Lowering:
    """Layers of the library that compute a node of torch.fx.

    `layers` is a list of (type, options). Each layer reads the layer before. `inputs` are the nodes that they read. `refs` has the
    parameters and buffers of layer `owner` by their names in the library; -1 is the last layer. The first layer reads `operands` (nodes,
    and names of `helpers`), or `inputs` if `operands` is None. `mode` is the module that sets the training mode of the layers, or None.
    """
    layers: list
    inputs: list
    refs: dict = dataclasses.field(default_factory=dict)
    helpers: list = dataclasses.field(default_factory=list)
    operands: list = None
    owner: int = -1
    mode: nn.Module = None
