"""A part on codes in graphs of torch: its function of torch.autograd, its custom operators, and its form in files. Inputs: the arguments of a
graph.

torch.export and torch.compile record the operators and do not read the part: `fakequant::part` computes without gradients,
`fakequant::recorded_part` with a recording for `fakequant::part_backward`.
"""
import collections.abc
import copy
import dataclasses
import inspect
import itertools
import math
import weakref

import torch
from torch import Tensor

from .. import _fakequant as _fq
from .tensors import as_float32, make_dense

NO_GRAPH = "[fakequant.torch] torch.jit and torch.onnx.export cannot read a part on codes: fakequant.torch.export writes the file"

_parts = weakref.WeakValueDictionary()  # {number: LoweredModule}
_recordings = {}  # {number: _Recorded}. An entry exists as long as its tensor, or until its backward pass.
_numbers = itertools.count(1)
writes_file = False  # whether torch.onnx.export runs for fakequant.torch.export
fixed_in_graph = []  # names of layers that fixed a size since the list was cleared


class _Recorded:
    """A forward pass that waits for its backward pass. While it exists, the library trusts the versions of parameters."""

    def __init__(self, part, recording):
        self.recording, self._part, self._names = recording, part, list(part.parameter_names)
        self._still_rows = {name: ref.still_row for name, ref in part.refs.items() if ref.still_row is not None}
        part.shared.pending.add(self)

    def gradients(self, grad_y):
        """Returns (list of the gradients of the inputs, {name: gradient of a parameter})."""
        inputs, parameters = self.recording.backward(make_dense(grad_y))
        own = {name: parameters[name] for name in self._names}
        for name, row in self._still_rows.items():
            if own.get(name) is not None:
                own[name][row] = 0
        self._part.average_gradients(own)
        return inputs if isinstance(inputs, list) else [inputs], own


class LoweredFunction(torch.autograd.Function):
    """Forward on codes, and the backward that the library recorded, once. `tensors` are `count` inputs and the parameters."""

    @staticmethod
    def forward(ctx, lowered, count, *tensors):
        inputs, parameters = tensors[:count], tensors[count:]
        y, recording = lowered.record(inputs, parameters, ctx.needs_input_grad[2:2 + count])
        ctx.recorded = _Recorded(lowered, recording)
        ctx.save_for_backward(*parameters)  # torch rejects the backward pass if one of them was written to
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        parameters = ctx.saved_tensors
        inputs, gradients = ctx.recorded.gradients(grad_y)
        own = [_as_gradient(gradient, parameter.shape, parameter.dtype) for gradient, parameter in zip(gradients.values(), parameters)]
        return None, None, *inputs, *own, *[None] * (len(parameters) - len(own))


def _as_gradient(gradient, shape, dtype):
    """Returns a gradient with the shape and the type of its parameter."""
    if gradient is None or (gradient.shape == shape and gradient.dtype == dtype):
        return gradient
    return gradient.reshape(shape).to(dtype)


# Custom operators. A part is an integer in graphs.

def register_part(part):
    """Returns a number for a LoweredModule. The operators find the module by this number."""
    number = next(_numbers)
    _parts[number] = part
    return number


def find_part(number):
    """Returns the LoweredModule of a number. Raises ArgumentError if it does not exist any more."""
    part = _parts.get(number)
    if part is None:
        raise _fq.ArgumentError("[fakequant.torch] the quantized model of this graph does not exist in this process: keep the model as long "
                                "as the graph. fakequant.torch.export writes files for other processes")
    return part


def call_operator(part, inputs):
    """Returns the output of a part by its operator, which records for the backward pass if an input or a parameter requires a gradient."""
    inputs, tensors = list(inputs), list(part.graph_tensors().values())
    gradients = [tensor.requires_grad for tensor in (*inputs, *tensors)] if torch.is_grad_enabled() else []
    if any(gradients):
        return torch.ops.fakequant.recorded_part(inputs, tensors, part.number, gradients)[0]
    return torch.ops.fakequant.part(inputs, tensors, part.number)


@torch.library.custom_op("fakequant::part", mutates_args=())
def _part(inputs: list[Tensor], tensors: list[Tensor], number: int) -> Tensor:
    """Returns the output of the part `number`. `tensors` are the values of its `graph_tensors`."""
    part = find_part(number)
    with part.explained_errors():
        return part.run_without_gradient(inputs, part.ordered_parameters(tensors)).contiguous()


@_part.register_fake
def _fake_part(inputs, tensors, number):
    if torch.onnx.is_in_onnx_export() and not writes_file:
        raise _fq.ArgumentError(NO_GRAPH)
    return inputs[0].new_empty(find_part(number).output_shape([x.shape for x in inputs]), dtype=torch.float32)


@torch.library.custom_op("fakequant::recorded_part", mutates_args=())
def _recorded_part(inputs: list[Tensor], tensors: list[Tensor], number: int, gradients: list[bool]) -> tuple[Tensor, Tensor]:
    """Returns (output, number of its recording [1]). `gradients` says which inputs and tensors require a gradient."""
    part = find_part(number)
    with part.explained_errors():
        y, recording = part.record(inputs, part.ordered_parameters(tensors), gradients[:len(inputs)])
    return y.contiguous(), _keep(_Recorded(part, recording))


@_recorded_part.register_fake
def _(inputs, tensors, number, gradients):
    return _fake_part(inputs, tensors, number), torch.empty(1, dtype=torch.int64)


def _keep(recorded):
    """Returns a tensor with the number of a recording, which lives as long as the memory of the tensor."""
    number = next(_numbers)
    owner = torch.tensor([number]).numpy()
    _recordings[number] = recorded
    weakref.finalize(owner, _recordings.pop, number, None)
    return torch.from_numpy(owner)


@torch.library.custom_op("fakequant::part_backward", mutates_args=())
def _part_backward(grad_y: Tensor, recording: Tensor, tensors: list[Tensor], shapes: list[int], ranks: list[int], gradients: list[bool],
                   number: int) -> list[Tensor]:
    """Returns the gradients of the inputs and tensors that require one. `shapes` are the shapes of all inputs in one list, of `ranks`."""
    recorded = _recordings.pop(int(recording), None)
    if recorded is None:
        raise _fq.ArgumentError("[fakequant.torch] backward ran before for this forward pass: run forward again")
    inputs, own = recorded.gradients(grad_y)
    found = [*inputs, *(own.get(name) for name in find_part(number).graph_tensors())]
    return [torch.zeros(shape, dtype=dtype, device=grad_y.device) if gradient is None else _as_gradient(gradient, shape, dtype).contiguous()
            for gradient, (shape, dtype), is_wanted in zip(found, _forms(shapes, ranks, tensors), gradients) if is_wanted]


@_part_backward.register_fake
def _(grad_y, recording, tensors, shapes, ranks, gradients, number):
    return [grad_y.new_empty(shape, dtype=dtype)
            for (shape, dtype), is_wanted in zip(_forms(shapes, ranks, tensors), gradients) if is_wanted]


def _forms(shapes, ranks, tensors):
    """Returns (shape, type) of the gradients of all inputs and tensors. Inputs are float32."""
    sizes = iter(shapes)
    return [*((list(itertools.islice(sizes, rank)), torch.float32) for rank in ranks), *((tensor.shape, tensor.dtype) for tensor in tensors)]


def _setup_context(ctx, inputs, output):
    tensors, own, ctx.number, ctx.gradients = inputs
    ctx.shapes = [x.shape for x in tensors]
    ctx.save_for_backward(output[1], *own)


def _backward(ctx, grad_y, _):
    recording, *own = ctx.saved_tensors
    shapes, ranks = [size for shape in ctx.shapes for size in shape], [len(shape) for shape in ctx.shapes]
    found = iter(torch.ops.fakequant.part_backward(grad_y, recording, own, shapes, ranks, ctx.gradients, ctx.number))
    gradients = [next(found) if wanted else None for wanted in ctx.gradients]
    return gradients[:len(ranks)], gradients[len(ranks):], None, None


torch.library.register_autograd("fakequant::recorded_part", _backward, setup_context=_setup_context)


class GraphPart:
    """The methods of a LoweredModule for graphs and files."""

    def add_to_graph(self, inputs):
        """Returns the output in a graph that torch.export or torch.compile records. `inputs` are tensors as the network reads them."""
        return call_operator(self, inputs)

    def graph_tensors(self):
        """Returns {name: tensor} of the parameters and learned ranges that the operator reads. Calibration does not change the names."""
        own = {name: ref.get() for name, ref in self.refs.items() if ref.expression is not None or ref.name in ref.module._parameters}
        return own | {f"{name}.amax": state.whole_range() for name, state in self.states.items() if state.is_learned}

    def ordered_parameters(self, tensors):
        """Returns the parameters for `record` and `run_without_gradient` from the values of `graph_tensors`."""
        _ = self.network
        self._limit_ranges()
        given = dict(zip(self.graph_tensors(), tensors))
        return [given[name] if name in given else self._parameter(name) for name in self._all_names()]

    def output_shape(self, shapes):
        """Returns the shape of the output for inputs of some shapes. Their sizes may be symbols of torch.export."""
        (batch, *sample), = shapes
        if self._reads_rows(sample):
            return [batch, *sample[:-1], self._sizes[tuple(self._sample_shape)][-1]]
        key = tuple(self.fixed_sizes(self._without_sliced_sizes(sample)))
        if key not in self._sizes:
            self._sizes[key] = output_shape(_fq.model_of_nodes(self.nodes, key, self._classes))
        first, *rest = self._sizes[key]
        return [batch * first, *rest]

    def _without_sliced_sizes(self, sample):
        """Returns the sizes of a sample. Unknown sizes that no layer depends on get the size of the example.

        The output does not depend on the number of positions if all layers that read the input slice the first positions.
        """
        if len(sample) != len(self._sample_shape):
            return sample
        reads = [node["options"] if node["type"] == "slice" else {} for node in self.nodes if "input" in node["inputs"]]
        free = [all(slice_.get("axis") == axis and slice_["begin"] >= 0 and slice_["end"] > 0 for slice_ in reads)
                for axis in range(1, len(sample) + 1)]
        return [own if is_free and not isinstance(size, int) else size for size, own, is_free in zip(sample, self._sample_shape, free)]

    def fixed_sizes(self, sample):
        """Returns the sizes of a sample as integers, which fixes them in the graph."""
        if any(isinstance(size, torch.SymInt) and not size.node.is_constant() for size in sample):
            fixed_in_graph.append(self._fixed_layer())
        return [int(size) for size in sample]

    def _fixed_layer(self):
        """Returns the name of a layer that does not compute each row by itself."""
        rank = len(self._sample_shape) + 1
        return next((node["name"] for node in self.nodes if _row_node(node, rank) is None and node["type"] != "input_part"), self.nodes[-1]["name"])

    def _reads_rows(self, sample):
        """Returns whether each row [.., C] of the input is computed by itself, and the sizes before C may differ from the example."""
        rank = len(sample) + 1
        return rank > 2 and rank == len(self._sample_shape) + 1 and all(_row_node(node, rank) is not None for node in self.nodes)

    def for_file(self, shapes):
        """Returns (part for a file, whether its input is the rows [N, C] of the input). `shapes` are the shapes of the inputs, and unknown
        sizes are None."""
        sample = self._without_sliced_sizes(shapes[0][1:])
        if list(sample) == list(self._sample_shape):
            return self, False
        if self._reads_rows(sample):
            rank = len(sample) + 1
            refs = {name: dataclasses.replace(ref, shape=(1, ref.shape[-1])) if name.endswith(".value") else ref
                    for name, ref in self.refs.items()}
            return self._with(nodes=[_row_node(node, rank) for node in self.nodes], refs=refs, _sample_shape=list(sample[-1:])), True
        if None in sample:
            raise _fq.ArgumentError(f"[export] torch.onnx.export does not know the sizes of the input of '{self._fixed_layer()}', {sample}")
        return self._with(_sample_shape=list(sample)), False

    def file_inputs(self, inputs):
        """Returns the inputs of a call as the file reads them."""
        return [as_float32(x) for x in inputs]

    def _with(self, **changes):
        """Returns a part of the same parameters and quantizers with other attributes."""
        twin = copy.copy(self)
        twin.__dict__.update(changes, _sizes={})
        return twin


#: Layers that compute each row [.., C] by itself, if their axis is the last one.
_ROW_LAYERS = {"linear", "identity", "dropout", "layer_norm", "rms_norm", "concat", "slice", "parameter", *(
    row["name"] for row in _fq.operators() if row["inputs"] and row["name"] != "matmul")}


def _row_node(node, rank):
    """Returns a node for rows [N, C] instead of values of this rank, or None if it does not compute each row by itself."""
    options, last = dict(node["options"]), rank - 1
    shape = options.get("shape", [1])
    if node["type"] not in _ROW_LAYERS or options.get("repeat") or options.get("axis", -1) % rank != last or math.prod(shape[:-1]) != 1:
        return None
    if "axis" in options:
        options["axis"] = 1
    if "shape" in options:
        options["shape"] = shape[-1:]
    return node | {"options": options}


def output_shape(network):
    """Returns the shape of the output for a batch of one sample."""
    return list(network.summary(1)["rows"][-1]["output"])


# Arguments and outputs of a model.

@dataclasses.dataclass
class Inputs:
    """The arguments of a call by name, {name: value}, and the positional names."""
    values: dict
    positional: list

    def tensors(self):
        """Returns a list of (name, tensor), in the order of the inputs of a file."""
        return list(itertools.chain.from_iterable(_named_tensors(value, name) for name, value in self.values.items()))

    def call(self, model, tensors):
        """Returns the output of the model with these tensors in the place of the tensors of the arguments."""
        given = iter(tensors)
        values = {name: replace_tensors(value, given) for name, value in self.values.items()}
        args = [values.pop(name) for name in self.positional]
        return model(*args, **values)

    def named_outputs(self, value):
        """Returns a list of (name, tensor) for the outputs of a model: keys of a dict, `output_0`, .. of a tuple, and `output`. A key that is the
        name of an input becomes `output_key`."""
        is_sequence = isinstance(value, (torch.Tensor, tuple, list)) and not hasattr(value, "_fields")
        taken = {name for name, _ in self.tensors()}
        return [(f"output_{name}" if name in taken else name, x) for name, x in _named_tensors(value, "output" if is_sequence else "")]

    def axes(self, dynamic_shapes):
        """Returns for each tensor {axis: name or hint of torch.export}, from the user's, or the batch as axis 0."""
        if dynamic_shapes is None:
            return [{0: torch.export.Dim.AUTO} if has_samples else {} for has_samples in self.samples()[1]]
        if not isinstance(dynamic_shapes, collections.abc.Mapping):
            dynamic_shapes = dict(zip(self.values, dynamic_shapes))
        unknown = [name for name in dynamic_shapes if name not in self.values]
        if unknown:
            raise _fq.ArgumentError(f"[export] dynamic_shapes: '{unknown[0]}' is not an argument of the example, which has "
                                    f"{', '.join(self.values)}")
        return [axes for name, value in self.values.items() for axes in _axes_of(value, dynamic_shapes.get(name), name)]

    def samples(self):
        """Returns (number of samples or None, for each tensor whether axis 0 is the samples). Items of lists, for example images, have none."""
        flags = [not isinstance(value, (tuple, list)) for name, value in self.values.items() for _ in _named_tensors(value, name)]
        found = [(x, x.shape[0] if flag and x.dim() else None) for flag, (_, x) in zip(flags, self.tensors())]
        count = next((size for _, size in found if size is not None), None)
        return count, [size is not None and size == count for _, size in found]

    def size_names(self, program, dynamic_shapes):
        """Returns ({symbol of torch.export: name of the size in the file}, names of inputs with an axis that torch.export fixed)."""
        placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        read = [placeholders[name].meta["val"] for name in program.graph_signature.user_inputs]
        names, fixed = {}, []
        for (own, _), x, axes in zip(self.tensors(), read, self.axes(dynamic_shapes)):
            for axis, name in axes.items():
                symbol = str(x.shape[axis])
                if symbol.isdigit():
                    fixed.append(own)
                elif dynamic_shapes is None or isinstance(name, str) or hasattr(name, "__name__"):
                    names[symbol] = "N" if dynamic_shapes is None else name if isinstance(name, str) else name.__name__
        return names, fixed


def _axes_of(value, spec, name):
    """Returns the dynamic axes, {axis: name}, of each tensor in an argument."""
    if isinstance(value, torch.Tensor):
        axes = dict(enumerate(spec)) if isinstance(spec, (tuple, list)) else dict(spec or {})
        wrong = [axis for axis in axes if not isinstance(axis, int) or not 0 <= axis < value.dim()]
        if wrong:
            raise _fq.ArgumentError(f"[export] dynamic_shapes: '{name}' has the axes 0 to {value.dim() - 1}, and not {wrong[0]}")
        return [{axis: size for axis, size in axes.items() if size is not None}]
    items = value.items() if isinstance(value, collections.abc.Mapping) else enumerate(value) if isinstance(value, (tuple, list)) else ()
    known = spec.get if isinstance(spec, collections.abc.Mapping) else dict(enumerate(spec or ())).get
    return [axes for key, item in items for axes in _axes_of(item, known(key), f"{name}_{key}")]


def bind_inputs(model, args, kwargs):
    """Returns the Inputs of a call."""
    parameters = model.argument_names() if hasattr(type(model), "argument_names") else list(inspect.signature(model.forward).parameters)
    names = [name for name in parameters if not name.startswith("*") and name not in kwargs]
    names += [f"input_{i}" for i in range(len(names), len(args))]
    given = dict(zip(names, args))
    return Inputs(given | kwargs, list(given))


def _named_tensors(value, name):
    """Returns a list of (name, tensor) for the tensors in a nested value. Names of items are `name_key`."""
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, collections.abc.Mapping):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    fields = getattr(value, "_fields", None)
    items = (value.items() if isinstance(value, collections.abc.Mapping) else zip(fields, value) if fields else
             enumerate(value) if isinstance(value, (tuple, list)) else ())
    return [found for key, item in items for found in _named_tensors(item, f"{name}_{key}" if name else str(key))]


def replace_tensors(value, given):
    """Returns a nested value with the tensors of the iterator `given` in the place of its tensors."""
    if isinstance(value, torch.Tensor):
        return next(given)
    if isinstance(value, collections.abc.Mapping):
        return {key: replace_tensors(item, given) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [replace_tensors(item, given) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
