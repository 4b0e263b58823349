"""Files of quantized models for engines: export and verify."""
import contextlib
import io
import os
import re
import sys
import tempfile
import warnings

import numpy as np
import torch
from torch import nn

from .. import _fakequant as _fq
from ..verify import PartCheck, Session, add_differences, compare, file_error, require_folder
from . import graphs
from .attention import HiddenRows
from .graphs import Inputs, bind_inputs, find_part, fixed_in_graph, replace_tensors
from .model_files import export_model_file, file_format
from .modules import lowered_modules, only_module, require_parts
from .quantize import RECIPE, split_arguments

_OPSET = 20  # of torch's own layers, as in torch.onnx.export
_LEAST_OPSET = 18


def export(model, path, target="ort", opset=0, emulate=False, example_input=None, dynamic_shapes=None, format="", tokenizer=None):
    """Writes a file for engines. `format` is "onnx", "gguf", "modelopt" or "compressed-tensors". The default follows from the path: .onnx,
    .gguf, and "modelopt" for a folder.

    In an ONNX file parts on codes have QuantizeLinear and DequantizeLinear nodes, and torch.onnx.export writes the other layers. `target` is
    the engine. `opset` 0 is the smallest opset that has the operators of a model that is one part, and for other models at least 20.
    `emulate` writes formats that the engine does not have as arithmetic.

    Inputs have the names of the arguments of forward. Outputs have the keys of a dict or ModelOutput, `output_0`, .. for a tuple, and `output`
    for one tensor. The batch "N" may change. `dynamic_shapes` names other axes that may change, as for torch.export:
    `{"input_ids": {0: "N", 1: "T"}}`, {argument: {axis: name}}, where all axes that may change are given. `example_input` replaces the
    example of `quantize`. The file has the model in evaluation mode.

    A GGUF file for llama.cpp has the codes of Llama, Mistral, Qwen2, Qwen3 or GPT-2 of transformers with the presets q4_0 and q8_0. A folder
    has model.safetensors with the tensors of ModelOpt or compressed-tensors, and the config files; layers that are not quantized stay floats
    of their type. `tokenizer` of transformers is written too.

    Raises ArgumentError if the model is not calibrated, if torch.export cannot read it, for quantizers that the format does not have, and
    without onnxscript. Raises FileError if the path cannot be written.
    """
    require_parts(model, "export")
    if not isinstance(target, str):
        raise _fq.ArgumentError(f"[export] target is a {type(target).__name__}: use the name of an engine. An example is example_input=..")
    format = file_format(path, format)
    if format != "onnx":
        if target != "ort" or opset or emulate or dynamic_shapes is not None:
            raise _fq.ArgumentError(f"[export] target, opset, emulate and dynamic_shapes are for ONNX, and the format is {format}")
        return export_model_file(model, path, format, tokenizer)
    if tokenizer is not None:
        raise _fq.ArgumentError("[export] tokenizer is for GGUF files and folders, and the format is onnx")
    return _export_onnx(model, path, target, opset, emulate, example_input, dynamic_shapes)


def _export_onnx(model, path, target, opset, emulate, example_input, dynamic_shapes):
    require_folder("export", path)
    for lowered in lowered_modules(model):
        lowered.check_calibrated("export")
    only = only_module(model)
    if only is not None and dynamic_shapes is None and example_input is None:
        only.share().export(os.fspath(path), target=target, opset=opset, emulate=emulate)
        return
    _check_engine_types(model, target)
    splicing = _require_onnxscript()
    options = {"target": target, "emulate": emulate}
    inputs = _example(model, example_input)
    with tempfile.TemporaryDirectory() as drafts, _evaluation(model), _dense_experts(model), torch.no_grad():
        draft = os.path.join(drafts, "part.onnx")
        options["opset"] = _common_opset(model, draft, opset, options)
        names, program, inputs = _read_graph(model, inputs, dynamic_shapes)
        splicer = splicing.Splicer(_translate(program, options["opset"], splicing.part_translation()))
        for node in splicer.nodes(splicing.DOMAIN):
            _splice_part(splicer, node, draft, options)
    _name_values(splicer, [name for name, _ in inputs.tensors()], names, inputs.size_names(program, dynamic_shapes)[0])
    splicer.finish()
    splicing.write_model(splicer.model, path, engine_reads_it=target == "ort")


def _check_engine_types(model, target):
    """Raises ArgumentError for parameters of a type that torch would write and ONNX Runtime does not compute on the CPU."""
    name = next((name for name, value in model.named_parameters() if value.dtype == torch.bfloat16), None) if target == "ort" else None
    if name is not None:
        raise _fq.ArgumentError(f"[export] '{name}' is torch.bfloat16, which ONNX Runtime does not compute on the CPU: call model.float() first")


def _require_onnxscript():
    """Returns the module `splicing`. Raises ArgumentError without onnxscript."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise _fq.ArgumentError(f"[export] torch runs a part of the model, and torch.onnx.export requires the package {error.name}: "
                                "pip install onnxscript") from None
    from .. import splicing
    return splicing


@contextlib.contextmanager
def _dense_experts(model):
    """Lets transformers compute mixtures of experts by operators that ONNX has."""
    models = [module for module in model.modules() if hasattr(module, "set_experts_implementation")]
    if not models:
        yield
        return
    before = [module.get_experts_implementation() for module in models]
    chosen = [products for products in map(_experts_on_codes, model.modules()) if products is not None]
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    try:
        ALL_EXPERTS_FUNCTIONS["batched_mm"] = _compute_experts  # set_experts_implementation takes only names of its own
        for products in chosen:
            products.computes_every_expert = True
        for module in models:
            module.set_experts_implementation("batched_mm")
        yield
    finally:
        del ALL_EXPERTS_FUNCTIONS["batched_mm"]
        for products in chosen:
            products.computes_every_expert = False
        for module, implementation in zip(models, before):
            module.set_experts_implementation(implementation)


def _experts_on_codes(module):
    """Returns the Products of experts whose forward transformers can replace, or None."""
    is_known = all(hasattr(module, name) for name in ("_apply_gate", "is_transposed", "has_post_expert_norm"))
    products = module._modules.get("products_on_codes") if is_known else None
    return products if products is not None and products.has_experts() and products.are_on_codes() else None


def _compute_experts(module, *args, **kwargs):
    from transformers.integrations.moe import batched_mm_experts_forward
    products = _experts_on_codes(module)
    return products.every_expert(module, *args, **kwargs) if products is not None else batched_mm_experts_forward(module, *args, **kwargs)


@contextlib.contextmanager
def _evaluation(model):
    """Sets evaluation mode, and switches off the KV caches of transformers, which are no outputs of files."""
    modes = {module: module.training for module in model.modules()}
    configs = {id(config): config for module in modes for config in [vars(module).get("config")] if getattr(config, "use_cache", False)}
    try:
        model.eval()
        for config in configs.values():
            config.use_cache = False
        yield
    finally:
        for config in configs.values():
            config.use_cache = True
        for module, mode in modes.items():
            module.training = mode


def _example(model, example_input):
    """Returns the Inputs of the example."""
    args, kwargs = vars(model).get(RECIPE, {}).get("example", ((), {}))
    args, kwargs = split_arguments(example_input) if example_input is not None else (args, kwargs)
    if not args and not kwargs:
        raise _fq.ArgumentError("[export] example_input is None, and this model is not the result of quantize: use an input of the model")
    found = bind_inputs(model, args, kwargs)
    return _with_tensors(found, [x.contiguous() for _, x in found.tensors()])


def _with_tensors(inputs, tensors):
    given = iter(tensors)
    return Inputs({name: replace_tensors(value, given) for name, value in inputs.values.items()}, inputs.positional)


def _repeated(inputs):
    """Returns the inputs with two samples if they have one, because torch.export fixes sizes of one."""
    samples, has_samples = inputs.samples()
    if samples != 1:
        return inputs
    return _with_tensors(inputs, [x.repeat(2, *[1] * (x.dim() - 1)) if repeats else x for (_, x), repeats in zip(inputs.tensors(), has_samples)])


# The graph of torch.export.

class _Flat(nn.Module):
    """Calls a model with a list of tensors, and returns its tensors as a tuple. `names` gets their names."""

    def __init__(self, model, inputs, names):
        super().__init__()
        self.model, self._inputs, self._names = model, inputs, names

    def forward(self, *tensors):
        outputs = self._inputs.named_outputs(self._inputs.call(self.model, tensors))
        self._names[:] = [name for name, _ in outputs]
        return tuple(tensor for _, tensor in outputs)


def _read_graph(model, inputs, dynamic_shapes):
    """Returns (names of the outputs, ExportedProgram, Inputs that it has). Warns of sizes that cannot change."""
    repeated = _repeated(inputs)
    names, program = _exported(model, repeated, dynamic_shapes)
    _, fixed = repeated.size_names(program, dynamic_shapes)
    if fixed and repeated is not inputs:  # the file has the user's own batch
        repeated, (names, program) = inputs, _exported(model, inputs, dynamic_shapes)
    if fixed:
        warnings.warn(f"[export] {', '.join(map(repr, fixed))}: the batch or another size is fixed to the size of the example, because the model "
                      "computes with it", _fq.FakequantWarning, stacklevel=4)
    return names, program, repeated


def _exported(model, inputs, dynamic_shapes):
    """Returns (names of the outputs, ExportedProgram). Raises ArgumentError with torch's reason and the module."""
    names, tensors, axes = [], [x for _, x in inputs.tensors()], inputs.axes(dynamic_shapes)
    hints = [{axis: torch.export.Dim.DYNAMIC if isinstance(size, str) else size for axis, size in found.items()} for found in axes]
    flat = _Flat(model, inputs, names)
    fixed_in_graph.clear()
    try:
        with HiddenRows(), _one_nms(), contextlib.redirect_stderr(io.StringIO()):  # torch prints the graph before it raises
            program = torch.export.export(flat, tuple(tensors), dynamic_shapes=(tuple(hints),), strict=False)
    except _fq.Error:
        raise
    except Exception as error:  # of the model's own code
        raise _fq.ArgumentError(_export_reason(model, inputs, error)) from error
    return names, program


@contextlib.contextmanager
def _one_nms():
    """Replaces torchvision's batched_nms, which branches on the number of boxes, by one that does not."""
    module = sys.modules.get("torchvision.ops.boxes")
    if module is None:
        yield
        return

    def batched_nms(boxes, scores, idxs, iou_threshold):
        width = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max() + 1  # boxes of other classes do not overlap then
        return module.nms(boxes + (idxs.to(boxes) * width)[:, None], scores, iou_threshold)

    before, module.batched_nms = module.batched_nms, batched_nms
    try:
        yield
    finally:
        module.batched_nms = before


def _export_reason(model, inputs, error):
    """Returns the message for an error of torch.export."""
    found = re.search(r"\['tensors'\]\[(\d+)\]\.size\(\)\[(\d+)\]", str(error))
    if found:
        name, axis = inputs.tensors()[int(found[1])][0], int(found[2])
        where = f"the part of '{fixed_in_graph[0]}' has a fixed size. The batch may change, and positions of layers that compute each one by itself" \
            if fixed_in_graph else "the model computes with its size"
        return f"[export] dynamic_shapes: axis {axis} of '{name}' cannot change, because {where}. Leave this axis out"
    return (f"[export] torch.export cannot read {_failed_module(model, error)}: {_first_line(error)}. Compute branches on values with torch.where "
            "or torch.cond, and sizes from shapes")


def _failed_module(model, error):
    """Returns the path of the innermost module whose forward raised an error."""
    paths, found = {id(module): path for path, module in model.named_modules()}, ""
    at = error.__traceback__
    while at is not None:
        found = paths.get(id(at.tb_frame.f_locals.get("self")), "") or found
        at = at.tb_next
    return f"'{found}'" if found else f"the {getattr(model, 'origin', type(model)).__name__}"


def _first_line(error):
    text = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {text.partition(' (unhinted')[0].rstrip('.')}"


# The ONNX graph.

def _common_opset(model, draft, opset, options):
    """Returns the opset of the file: the given one, or the smallest one of all parts and torch. Raises ArgumentError for a target or an opset
    that a part does not have."""
    import onnx

    if opset and opset < _LEAST_OPSET:
        raise _fq.ArgumentError(f"[export] opset is {opset}: layers that torch writes require opset {_LEAST_OPSET} or newer")
    found = [opset or _OPSET]
    for lowered in lowered_modules(model):
        if lowered.states:  # torch computes attention without quantizers
            lowered.share().export(draft, opset=opset, **options)
            found += [known.version for known in onnx.load(draft).opset_import if known.domain == ""]
    return opset or max(found)


def _translate(program, opset, part_translation):
    """Returns the model of onnx_ir of an ExportedProgram. `part_translation` is the translation of fakequant::part."""
    table = {torch.ops.fakequant.part.default: part_translation}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own conversions
            graphs.writes_file = True
            return torch.onnx.export(program, dynamo=True, opset_version=opset, verbose=False, custom_translation_table=table).model
    except Exception as error:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise _fq.ArgumentError(f"[export] torch.onnx.export cannot write the layers that torch runs: {_first_line(cause)}. Replace this "
                                "operator in the model, or use another opset") from error
    finally:
        graphs.writes_file = False


def _splice_part(splicer, node, draft, options):
    """Replaces a node of the domain "fakequant" by the graph of its part."""
    import onnx_ir

    shapes = [[size if isinstance(size, int) else None for size in value.shape] for value in node.inputs]
    part, reads_rows = find_part(node.attributes["number"].as_int()).for_file(shapes)
    part.share().export(draft, **options)
    splicer.replace(node, onnx_ir.load(draft), reads_rows)


def _name_values(splicer, inputs, outputs, sizes):
    """Gives inputs, outputs, parameters and sizes of the graph their names in the model."""
    graph = splicer.model.graph
    splicer.separate_outputs()
    values = {name: value for name, value in graph.initializers.items() if name.startswith("model.")}
    splicer.rename([*graph.inputs, *graph.outputs, *values.values()], [*inputs, *outputs, *(name[len("model."):] for name in values)])
    splicer.rename_sizes(sizes)


# verify.

def verify(model, path, x, batch=256):
    """Compares the file of `export` in ONNX Runtime with the model, in evaluation mode. Returns {"outputs", "different", "flips", "max", "codes",
    "different_codes"}: the number of outputs, of outputs with other bits, of samples with another largest output, and the largest difference.

    `codes` and `different_codes` count the codes of activations that ONNX Runtime computes. They compare each part with the inputs that torch
    gave it, so that differences of torch's layers do not count.

    `x` is an input, or a tuple or dict of inputs. `batch` is the number of samples of a call.
    """
    require_parts(model, "verify")
    args, kwargs = split_arguments(x)
    only = only_module(model)
    with tempfile.TemporaryDirectory() as drafts, _evaluation(model), torch.no_grad(), PartCheck(lowered_modules(model), drafts) as parts:
        if only is None:
            found = _verify_graph(model, path, bind_inputs(model, args, kwargs), batch)
        else:
            found = _verify_part(only, path, model.module_inputs(args, kwargs), batch, parts)
    return found | {"codes": parts.codes, "different_codes": parts.different}


def _verify_part(part, path, inputs, batch, parts):
    """Compares the file of a model that is one part."""
    def batches(most):
        for chunk in zip(*(value.split(most or batch) for value in inputs)):
            parts.compare(part, chunk)
            yield part.input_rows(chunk).cpu().numpy()
    return compare(part.share(), path, batches)


def _verify_graph(model, path, inputs, batch):
    session = Session(path, *(lowered.network for lowered in lowered_modules(model)))
    tensors = inputs.tensors()
    if [own.name for own in session.inputs] != [name for name, _ in tensors]:
        raise file_error("verify", path, f"has the inputs {', '.join(own.name for own in session.inputs)}, and x "
                         f"{', '.join(name for name, _ in tensors)}: use x as in the example of quantize")
    found = {"outputs": 0, "different": 0, "flips": 0, "max": 0.0}
    for chunk in _chunks(inputs, session, batch):
        own = inputs.named_outputs(inputs.call(model, chunk))
        theirs = session.run({name: x.cpu().numpy() for (name, _), x in zip(tensors, chunk)})
        if [name for name, _ in own] != session.output_names:
            raise file_error("verify", path, f"has the outputs {', '.join(session.output_names)}, and the model "
                             f"{', '.join(name for name, _ in own)}: it is the file of another model")
        for (_, value), other in zip(own, theirs):
            floats = value.is_floating_point()
            add_differences(found, (value.float() if floats else value).cpu().numpy(), other.astype(np.float32) if floats else other, path)
    return found


def _chunks(inputs, session, batch):
    """Yields lists of tensors of at most `batch` samples. If the file has a fixed batch, each list has its size."""
    tensors, (samples, has_samples) = [x for _, x in inputs.tensors()], inputs.samples()
    fixed = next((own.shape[0] for own, splits in zip(session.inputs, has_samples) if splits), None)
    step = fixed if isinstance(fixed, int) else session.batch or batch
    if isinstance(fixed, int) and samples % fixed:
        raise _fq.ArgumentError(f"[verify] x: it has {samples} samples, and the batch of the file is fixed to {fixed}. Use a multiple of it")
    for begin in range(0, samples or 1, step):
        yield [x[begin:begin + step] if splits else x for x, splits in zip(tensors, has_samples)]
