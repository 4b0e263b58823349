"""Replaces nodes of an ONNX model by the graphs of other models. Requires onnx, and onnxscript with onnx_ir."""
import collections.abc
import os
import re

import numpy as np
import onnx
import onnx_ir as ir
import onnxscript
from onnx.defs import OpSchema
from onnx_ir.passes import common
from onnxscript import values

from .engines.onnx_session import open_session
from .verify import file_error

DOMAIN = "fakequant"  # of the nodes that the graphs of parts replace

MOST_BYTES = 1_900_000_000  # of tensors in one protobuf file, whose limit is 2 GiB


class Splicer:
    """Replaces nodes of a model of onnx_ir. Names of inserted values get a number if the model has them already."""

    def __init__(self, model):
        self.model = model
        common.InlinePass()(model)
        common.LiftSubgraphInitializersToMainGraphPass()(model)
        self._names = {value.name for node in model.graph.all_nodes() for value in (*node.inputs, *node.outputs) if value is not None}
        self._names |= {*model.graph.initializers, *(value.name for value in (*model.graph.inputs, *model.graph.outputs))}
        self._nodes = {node.name for node in model.graph.all_nodes()}

    def nodes(self, domain):
        """Returns the nodes of a domain, in subgraphs too."""
        return [node for node in self.model.graph.all_nodes() if node.domain == domain]

    def replace(self, node, part, reads_rows):
        """Replaces a node of one output by the graph of the model `part`, which must not be used again.

        The graph reads the inputs of the node. If `reads_rows`, it reads the rows [N, C] of one input [.., C], and its output gets the other
        axes back. If it has several inputs and the node has one, the node's is rows [N, elements of all inputs].
        """
        graph, given = part.graph, list(node.inputs)
        names = [value.name for value in given if value is not None]
        given = self._rows(node, given[0], graph.inputs[0]) if reads_rows else given
        given = self._columns(node, given[0], graph.inputs) if len(graph.inputs) > len(given) else given
        if len(given) != len(graph.inputs):
            raise ValueError(f"a part of {len(graph.inputs)} inputs is called with {', '.join(names)}")
        given = [value if value.dtype == own.dtype else self._add(node, "Cast", [value], {"to": own.dtype})
                 for value, own in zip(given, graph.inputs)]
        width = graph.outputs[0].shape[-1]
        self._move(node, part)
        ir.convenience.replace_all_uses_with(list(graph.inputs), given)
        output, own = graph.outputs[0], node.outputs[0]
        output = given[list(graph.inputs).index(output)] if output in graph.inputs else output
        graph.outputs.clear()
        if reads_rows:
            output = self._unrolled(node, node.inputs[0], output, int(width))
        output.shape, output.dtype = own.shape, own.dtype
        ir.convenience.replace_all_uses_with(own, output, replace_graph_outputs=True)
        node.graph.remove(node, safe=True)

    def _move(self, node, part):
        """Inserts the nodes of a part before a node. Adds the initializers and opsets of the part.

        Each call of a part has its own weights: ONNX Runtime 1.31 cannot load integer weights that two products read.
        """
        graph = part.graph
        for name, value in list(graph.initializers.items()):
            del graph.initializers[name]
            value.name = self._unique(name, self._names)
            self.model.graph.register_initializer(value)
        moved = list(graph)
        graph.remove(moved)
        for own in moved:
            own.name = self._unique(own.name or own.op_type, self._nodes)
            for value in own.outputs:
                value.name = self._unique(value.name, self._names)
                value.shape = None  # "N" has another meaning in the part
        node.graph.insert_before(node, moved)
        for domain, version in part.opset_imports.items():
            known = self.model.opset_imports.setdefault(domain, version)
            if known != version:
                raise ValueError(f"the parts have the opsets {known} and {version} of the domain '{domain}'")
        self.model.ir_version = max(self.model.ir_version, part.ir_version)

    def _rows(self, node, value, own):
        """Returns [the rows [N, C] of a value [.., C]]."""
        return [self._add(node, "Reshape", [value, self._constant("rows.shape", [-1, int(own.shape[-1])])])]

    def _unrolled(self, node, source, rows, width):
        """Returns rows [N, C] in the shape of `source`, whose last axis becomes C."""
        sizes = self._add(node, "Shape", [source], {"start": 0, "end": -1})
        shape = self._add(node, "Concat", [sizes, self._constant("width", [width])], {"axis": 0})
        return self._add(node, "Reshape", [rows, shape])

    def _columns(self, node, rows, inputs):
        """Returns the values of all inputs from rows [N, elements of all inputs]."""
        begin, out = 0, []
        for own in inputs:
            shape = [int(size) for size in list(own.shape)[1:]]
            end = begin + int(np.prod(shape, dtype=np.int64))
            bounds = [self._constant(f"{own.name}.{what}", [value]) for what, value in (("begin", begin), ("end", end), ("axis", 1))]
            part = self._add(node, "Slice", [rows, *bounds])
            out.append(self._add(node, "Reshape", [part, self._constant(f"{own.name}.shape", [-1, *shape])]))
            begin = end
        return out

    def _add(self, node, op_type, inputs, attributes=None):
        """Returns the output of a new node, which runs before `node`."""
        new = ir.node(op_type, inputs, attributes, name=self._unique(f"{node.name}.{op_type.lower()}", self._nodes))
        new.outputs[0].name = self._unique(new.name, self._names)
        node.graph.insert_before(node, new)
        new.outputs[0].dtype = {"Shape": ir.DataType.INT64, "Cast": (attributes or {}).get("to")}.get(op_type, inputs[0].dtype)
        return new.outputs[0]

    def _constant(self, name, numbers):
        name = self._unique(name, self._names)
        tensor = ir.tensor(np.asarray(numbers, np.int64), name=name)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        self.model.graph.register_initializer(value)
        return value

    def _unique(self, wish, taken):
        name, count = wish, 0
        while name in taken:
            count += 1
            name = f"{wish}_{count}"
        taken.add(name)
        return name

    def separate_outputs(self):
        """Gives each output a value of its own, which is no input."""
        graph, seen = self.model.graph, set(self.model.graph.inputs)
        for i, value in enumerate(list(graph.outputs)):
            if value in seen or value.is_initializer():
                copy = ir.node("Identity", [value], name=self._unique("output.identity", self._nodes))
                graph.append(copy)
                copy.outputs[0].name = self._unique(copy.name, self._names)
                copy.outputs[0].shape, copy.outputs[0].type = value.shape, value.type
                graph.outputs[i] = copy.outputs[0]
            seen.add(value)

    def rename(self, values, names):
        """Gives values of the graph their final names. Other values that have one of them get a number."""
        wanted = dict(zip(values, names))
        every = [*self.model.graph.inputs, *self.model.graph.initializers.values(),
                 *(value for node in self.model.graph.all_nodes() for value in node.outputs)]
        for value in every:
            if value not in wanted and value.name in names:
                value.name = self._unique(value.name, self._names)
        for value in wanted:  # two steps, because names may be swapped
            value.name = self._unique("renamed", self._names)
        for value, name in wanted.items():
            value.name = name
            self._names.add(name)

    def rename_sizes(self, names):
        """Renames sizes, {symbol: name}, in the shapes of all values, also in terms of symbols. Symbols that are numbers become numbers."""
        known = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names) or "(?!)")

        def renamed(size):
            text = "" if isinstance(size, int) or size.value is None else known.sub(lambda found: names[found[0]], str(size.value))
            return int(text) if text.isdigit() else ir.SymbolicDim(text) if text else size
        for value in (*self.model.graph.inputs, *(value for node in self.model.graph.all_nodes() for value in node.outputs)):
            if value.shape is not None and not value.shape.is_static():
                value.shape = ir.Shape([renamed(size) for size in value.shape])

    def finish(self):
        """Removes nodes, initializers, functions and opsets that no output needs."""
        for value in self.model.graph.initializers.values():
            value.shape = value.const_value.shape
        common.RemoveUnusedNodesPass()(self.model)
        common.RemoveUnusedFunctionsPass()(self.model)
        common.RemoveUnusedOpsetsPass()(self.model)


def write_model(model, path, engine_reads_it):
    """Writes a model of onnx_ir and checks it. Tensors of more than 1.9 GB in total are in a second file, `path` + ".data".

    If `engine_reads_it` and ONNX Runtime is installed, it must load the file. Raises FileError if it cannot.
    """
    path = os.fspath(path)
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values())
    draft = f"{path}.{os.getpid()}.part"
    try:
        ir.save(model, draft, format="protobuf", external_data=os.path.basename(path) + ".data" if size > MOST_BYTES else None)
        onnx.checker.check_model(draft)
        if engine_reads_it:
            _load_in_engine(draft, path)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def _load_in_engine(draft, path):
    try:
        open_session(draft, "disabled", {})
    except ImportError:
        return
    except Exception as error:  # some of its classes derive from Exception only
        raise file_error("export", path, f"is not written, because ONNX Runtime cannot load it: {' '.join(str(error).split())}. Set the opset, "
                         "or another target") from error


def part_translation():
    """Returns the translation of fakequant::part, which gives one node with the number of the part."""
    tensor = OpSchema.FormalParameter
    schema = OpSchema("Part", DOMAIN, 1, inputs=[tensor("inputs", "T", param_option=OpSchema.FormalParameterOption.Variadic, is_homogeneous=False)],
                      outputs=[tensor("y", "tensor(float)")], attributes=[OpSchema.Attribute("number", OpSchema.AttrType.INT)],
                      type_constraints=[("T", [f"tensor({name})" for name in ("float", "int64", "int32", "uint8", "bool")], "")])
    operator = values.Op(values.Opset(DOMAIN, 1), "Part", schema)

    def part(inputs: collections.abc.Sequence[onnxscript.FLOAT], tensors: collections.abc.Sequence[onnxscript.FLOAT], number: int):
        return operator(*inputs, number=number)
    return part
