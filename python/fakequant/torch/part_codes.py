"""The Codes of a part of a graph of torch.fx, which may be all of a network of several inputs."""
import torch

from .. import _fakequant as _fq
from .codes import Codes
from .nodes import shape_of

_TYPES = {torch.bool: "bool", torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64"}


def codes_of(part, layers, config):
    """The Codes of a part."""
    output = shape_of(part.nodes[-1])
    nodes, places, before = _nodes_of(part, layers)
    modes = {layers.names[node]: layers.module(node) for node in part.nodes if node.op == "call_module"
             and layers.found[node].kinds[-1][0] in ("batch_norm", "dropout", "channel_dropout")}
    classes = output[1] if len(output) == 2 else 0
    if len(part.sources) > 1:
        return SeveralInputs({node.target: shape_of(node)[1:] for node in part.sources}, nodes, places, classes, config, modes, before)
    return Codes(nodes, places, shape_of(part.sources[0])[1:], classes, config, modes, before)


def _input_parts(sources, paths):
    """Inputs that lie side by side in the rows of one."""
    begin, out = 0, []
    for node in sources:
        kind, shape = _TYPES.get(node.meta["tensor_meta"].dtype, "f32"), shape_of(node)[1:]
        out.append({"name": paths.of_input(node.name), "type": "input_part", "inputs": ["input"],
                    "options": {"begin": begin, "shape": shape, "name": node.target, "type": kind}})
        begin += torch.Size(shape).numel()
    return out


def _nodes_of(part, layers):
    """Returns the nodes of a model, {name: place} of parameters and buffers, and {name in state dicts of 0.1: name} of layers."""
    paths = layers.paths
    nodes, places, before = _input_parts(part.sources, paths) if len(part.sources) > 1 else [], {}, {}

    def name(used):
        if used in part.sources:
            return "input" if len(part.sources) == 1 else paths.of_input(used.name)
        return layers.names[used]
    for node in part.nodes:
        layer, own = layers.found[node], layers.names[node]
        named = lambda used: paths.below(own, used) if isinstance(used, str) else name(used)  # noqa: B023,E731
        for helper in layer.helpers:
            before[f"{node.name}_{helper.name}"] = named(helper.name)
            nodes.append({"name": named(helper.name), "type": helper.kind, "options": helper.options,
                          "inputs": [named(used) for used in helper.inputs]})
            if helper.place is not None:
                places[f"{named(helper.name)}.value"] = helper.place
        inputs = [named(used) for used in (layer.inputs if layer.operands is None else layer.operands)]
        for i, (kind, options) in enumerate(layer.kinds):
            last = i == len(layer.kinds) - 1
            step = own if last else paths.below(own, str(i))
            before[node.name if last else f"{node.name}_{i}"] = step
            nodes.append({"name": step, "type": kind, "options": options, "inputs": inputs})
            inputs = [step]
        places |= {f"{own}.{parameter}": place for parameter, place in layer.places.items()}
    return nodes, places, before


class SeveralInputs(Codes):
    """All of a network of several inputs, of those shapes without the samples, by their names in exported files."""

    def __init__(self, shapes, nodes, places, classes, config, modes, before):
        self._shapes = shapes
        super().__init__(nodes, places, [sum(torch.Size(shape).numel() for shape in shapes.values())], classes, config, modes, before)

    def inputs(self):
        """The names of the inputs, in their order."""
        return list(self._shapes)

    def rows_of(self, inputs):
        """Inputs of samples side by side, as the network reads them."""
        for (name, shape), x in zip(self._shapes.items(), inputs):
            if not isinstance(x, torch.Tensor) or list(x.shape) != [len(inputs[0]), *shape]:
                got = list(x.shape) if isinstance(x, torch.Tensor) else x
                raise _fq.ArgumentError(f"[fakequant.torch] the input '{name}' is {got}: give {['N', *shape]} as in example_input, with "
                                        "as many samples as the others; quantize(.., whole=False) leaves lengths open")
        return torch.cat([x.flatten(1).float() if x.dim() > 1 else x[:, None].float() for x in inputs], 1)

    def forward(self, *inputs):
        return super().forward(self.rows_of(inputs))

    def _samples(self, batches):
        return torch.cat([self.rows_of(inputs) for inputs in batches])
