"""The parts of subgraphs that torch.fx traced."""
import torch

from ... import _fakequant as _fq
from ..capture.nodes import node_shape
from ..parts import LoweredModule
from ..passes import model_nodes
from .refs import TensorRef


class MultiInputModule(LoweredModule):
    """All of a model of several inputs. `shapes` is {name of an input in exported files: shape of a sample}."""

    def __init__(self, shapes, nodes, refs, *arguments):
        self._shapes = shapes
        super().__init__(nodes, refs, [sum(torch.Size(shape).numel() for shape in shapes.values())], *arguments)

    def input_rows(self, inputs):
        """Returns the inputs as rows [N, elements of all inputs]. Raises ArgumentError for other shapes than in the example."""
        for (name, shape), x in zip(self._shapes.items(), inputs):
            if not isinstance(x, torch.Tensor) or list(x.shape) != [inputs[0].shape[0], *shape]:
                got = list(x.shape) if isinstance(x, torch.Tensor) else x
                raise _fq.ArgumentError(f"[fakequant.torch] the input '{name}' is {got}: use {['N', *shape]} as in example_input, with "
                                        "as many samples as the other inputs. quantize(.., whole=False) allows other lengths")
        return torch.cat([x.flatten(1).float() if x.dim() > 1 else x[:, None].float() for x in inputs], 1)

    def check_inputs(self, inputs):
        """Does nothing: `prepared` checks the shapes of all inputs."""

    def prepared(self, inputs):
        return [self.input_rows(inputs)]

    def file_inputs(self, inputs):
        return [self.input_rows(inputs)]

    def _samples(self, calls):
        return torch.cat([self.input_rows(inputs) for inputs in calls])


def lower(subgraph, partition, config):
    """Returns the LoweredModule of a subgraph."""
    nodes, refs, old_names = model_nodes(subgraph, partition)
    modes = {partition.names[node]: TensorRef(partition.lowered[node].mode, "training") for node in subgraph.nodes
             if partition.lowered[node].mode is not None}
    output = node_shape(subgraph.nodes[-1])
    arguments = output[1] if len(output) == 2 else 0, config, modes, old_names
    if len(subgraph.inputs) > 1:
        out = MultiInputModule({node.target: node_shape(node)[1:] for node in subgraph.inputs}, nodes, refs, *arguments)
    else:
        out = LoweredModule(nodes, refs, node_shape(subgraph.inputs[0])[1:], *arguments)
    out.output_type = subgraph.nodes[-1].meta["tensor_meta"].dtype
    return out
