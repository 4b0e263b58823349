"""Reasons why a file computes other numbers than its checkpoint, and remedies."""
import math

from onnx import TensorProto

from .comparison import rounded_up
from .onnx_engine import SUMS
from .onnx_source import MOVES, ON_GRIDS
from .processor import has_vnni

BELOW_INTEGERS = ("disabled", "basic")
KINDS = {"operator": "float operators", "fusion": "missing fusions", "bias": "biases rounded again"}
# Bounds if the engine computes floats between codes: shares of codes, of the largest logit, and of predictions.
FLOAT_CODES, FLOAT_LOGITS, FLOAT_ANSWERS = 1e-3, 0.02, 1e-3
# An integer kernel includes these operators in its rounding, by one multiplication. The definition makes floats of the sums, clips
# them, and divides by the next scale.
CUT_OFF = {"Clip"}
PASSES = {"Relu", "Identity", "Clip", "Max"} | MOVES
PRODUCTS = {"Conv", "Gemm", "MatMul"}


def cut_off(source):
    """Returns the nodes between codes that clip sums (relu6, clip)."""
    return [node for node in source.nodes if node.op_type in CUT_OFF
            and source.producers.get(node.input[0]) is not None
            and source.producers[node.input[0]].op_type not in ON_GRIDS | {"QuantizeLinear"}
            and any(reader.op_type == "QuantizeLinear" for reader in source.readers.get(node.output[0], []))]


def final_readers(source, name):
    """Yields the nodes that read a value, after the operators that an integer kernel includes."""
    for reader in source.readers.get(name, []):
        if reader.op_type in PASSES:
            yield from final_readers(source, reader.output[0])
        else:
            yield reader


def float_bias(source, node):
    """Returns whether the node adds a float bias, which the engine rounds to the grid of the sums again."""
    bias = node.input[2] if len(node.input) > 2 else ""
    return bias in source.constants and source.constants[bias].data_type == TensorProto.FLOAT


def float_cause(source, kernel):
    """Returns (kind, line), the reason why a kernel computes in floats. The kind is "operator", "fusion" or "bias"."""
    node = next((node for node in source.nodes if node.name and kernel.name.startswith(node.name)), None)
    label = f"{kernel.op_type} {kernel.name}".strip()
    if node is None or node.op_type not in PRODUCTS:
        return "operator", f"{label}: the engine has no integer kernel for it that rounds like the definition"
    others = [reader for reader in final_readers(source, node.output[0]) if reader.op_type != "QuantizeLinear"]
    if others:
        return "fusion", (f"{label}: not fused with a quantizer, because {others[0].op_type} {others[0].name} reads "
                          "its result")
    if float_bias(source, node):
        return "bias", f"{label}: its bias is float, and the engine rounds it again"
    return "fusion", f"{label}: not fused with the quantizers around it"


def float_causes(source, kernels):
    """Returns {kind: lines} of the kernels that compute in floats."""
    found = {}
    for kernel in kernels:
        kind, line = float_cause(source, kernel)
        found.setdefault(kind, []).append(line)
    return found


def first_difference(source, engine, counts):
    """Returns the first quantizer in order of execution whose codes differ, or the logits, with the operators between it and
    the codes before it. None if nothing differs."""
    if not counts.different and not counts.logit_bits_different:
        return None
    order = {name: at for at, name in enumerate(source.producers)}
    name = min(counts.different, key=order.get) if counts.different else None
    nodes = source.find_upstream_nodes(source.quantizer(name).input[0] if name else source.output, counts.compared)
    kernels = engine.graph.find_kernels(nodes)
    floats = {node.output[0] for node in engine.float_kernels}
    return {"quantizer": name, "codes_different": counts.different.get(name, 0), "codes": counts.compared.get(name, 0),
            "largest_steps": counts.steps.get(name),
            "nodes": [{"node": node.name, "operator": node.op_type} for node in nodes],
            "kernels": [{"node": node.name, "kernel": node.op_type} for node in kernels],
            "in_floats": any(node.output[0] in floats for node in kernels)}


def listed(items, most=4):
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def describe(first):
    """Returns a line about the first difference."""
    nodes = listed([f"{node['node']} ({node['operator']})" for node in first["nodes"]]) or "the input"
    kernels = listed([f"{kernel['kernel']} {kernel['node']}" for kernel in first["kernels"]])
    ran = f", which ran as {kernels} in {'floats' if first['in_floats'] else 'integers'}" if kernels else ""
    if first["quantizer"] is None:
        return f"first difference: the logits, computed by {nodes}{ran}"
    steps = f", by at most {first['largest_steps']} steps" if first["largest_steps"] else ""
    return (f"first difference: {first['quantizer']}, {first['codes_different']:,} of {first['codes']:,} codes{steps}; it "
            f"rounds the result of {nodes}{ran}")


def beginnings(source, engine, counts):
    """Counts codes of samples whose earlier codes agree, in two groups: quantizers with and without float kernels before them.
    Returns a list of {"in_floats", "codes_different", "codes", "quantizers"}."""
    floats = {node.output[0] for node in engine.float_kernels}
    found = {False: [0, 0, {}], True: [0, 0, {}]}
    for name, (different, codes) in counts.begun.items():
        nodes = source.find_upstream_nodes(source.quantizer(name).input[0], counts.compared)
        group = found[any(node.output[0] in floats for node in engine.graph.find_kernels(nodes))]
        group[0] += different
        group[1] += codes
        if different:
            group[2][name] = different
    return [{"in_floats": kind, "codes_different": different, "codes": codes, "quantizers": names}
            for kind, (different, codes, names) in found.items() if codes]


def describe_beginnings(groups):
    """Returns a line with the number of codes that differ although the earlier codes of the sample agree."""
    parts = [f"{group['codes_different']:,} of {group['codes']:,} after {'floats' if group['in_floats'] else 'integers'}"
             + (f" ({group['codes_different'] / group['codes']:.1e})" if group["codes_different"] else "") for group in groups]
    return f"different although the earlier codes of the sample agree: {', '.join(parts)}"


def explain_floats(source, engine, chosen):
    """Returns (reason, ways) for kernels that round floats. `chosen` are the level and options that the file requires."""
    names = listed([f"{node.op_type} {node.name}" for node in engine.float_kernels])
    reason = (f"{len(engine.float_kernels)} kernels compute in floats at level {engine.level}: {names}. A sum that rounds "
              "to the other side of a tie gives another code")
    if engine.level not in BELOW_INTEGERS:
        reason += "".join(f"; {KINDS[kind]}: {listed(lines, 2)}"
                          for kind, lines in float_causes(source, engine.float_kernels).items())
    ways = []
    if source.integer() and engine.level in BELOW_INTEGERS:
        ways.append("--level all, at which the engine multiplies integers")
    if engine.options != chosen[1]:
        ways.append("omit --session: the file requires "
                    + (", ".join(f"{key}={value}" for key, value in chosen[1].items()) or "no option"))
    if not source.powers_of_two():
        others = listed(sorted({node.op_type for node in engine.float_kernels} - SUMS))
        ways.append("calibrate with --scale pow2 and train: then all orders of a sum of up to 24 bits give the same codes"
                    + (f" (except {others}, which the engine computes in its own way)" if others else ""))
    return reason, ways


def explain_clipping(source, nodes):
    """Returns (reason, ways) for sums that the engine clips as integers."""
    names = listed([node.name for node in nodes])
    ways = [] if source.powers_of_two() else [
        "calibrate with --scale pow2 and train: then both roundings give the same codes"]
    return (f"{names} clip sums (relu6): the engine clips in its integer kernel, which rounds a sum by one "
            "multiplication. The checkpoint converts the sum to a float and divides, which may give another code near a tie"), ways


def rounds_floats(source, engine, chosen):
    """Returns whether the engine, with the options that the file requires, computes floats between integers."""
    return (source.integer() and (engine.level, engine.options) == chosen
            and bool(engine.float_kernels or (cut_off(source) and not source.powers_of_two())))


def explain_integers(engine, counts):
    ways = ["export it again from this checkpoint"]
    if counts.codes_different and not counts.logit_bits_different:
        return ("no logit differs: these codes do not change the logits of these samples, or verify reads them from another "
                "tensor of the engine", ["compare more samples with --random 10000. If no logit differs, report the problem "
                                         "with the file", *ways])
    if has_vnni() is False and engine.options.get("session.x64quantprecision") != "1":
        ways.insert(0, "this processor has no VNNI, and pairs of products saturate: omit --session session.x64quantprecision")
    return "integers have one result: the file is not of this checkpoint, or it was changed", ways


def saturating(engine):
    """Returns the matrix products whose pairs of products saturate. The engine widens the factors only at higher levels."""
    if has_vnni() is not False or engine.level not in BELOW_INTEGERS:
        return []
    return [node.name for node in engine.graph.nodes if node.op_type == "MatMulInteger"]


def explain_saturation(engine, names):
    return (f"this processor has no VNNI, and at level {engine.level} pairs of products of {listed(names)} saturate at 16 bits",
            ["--level all, at which the engine multiplies wider numbers"])


def differences(counts):
    return counts.codes_different + counts.logit_bits_different


def explain_folding(folded):
    return (f"its batch norms are live, and the file has folded batch norms, which round differently: with the folded network "
            f"{folded.codes_different:,} codes differ",
            ["fold the checkpoint with fakequant fold (--data reports the change), then qat, export and verify the "
             "folded checkpoint", "calibrate without --keep-bn"])


def accepting(sides):
    """Returns a list of one remedy with the tolerances that accept the differences of all compared networks."""
    if not all(math.isfinite(side.max_abs_diff) and side.largest > 0 for side in sides):
        return []
    codes = max(side.codes_different / max(side.codes, 1) for side in sides)
    logits = max(side.max_abs_diff / side.largest for side in sides)
    flags = f"--code-tolerance {rounded_up(codes)} " if codes > 0 else ""
    return [f"accept it with {flags}--tolerance {rounded_up(logits)}: {sides[0].flips:,} predictions change"]


def explain(source, engine, own, folded, first, chosen, same):
    """Returns (reasons, ways) of a failure, or of differences within the bounds (`same`)."""
    reasons, ways = [], []

    def say(reason, *how):
        reasons.append(reason)
        ways.extend(how)

    if engine.absent:
        say(f"the file has no codes of {listed(engine.absent)}", "export it again from this checkpoint")
    if folded is not None and differences(own) > differences(folded):
        reason, how = explain_folding(folded)
        say(reason, *how)
    network = folded or own
    if same and not engine.float_kernels:
        return reasons, ways
    if differences(network) or engine.alone_different or engine.exposed_different:
        in_floats = engine.float_kernels and (first is None or first["in_floats"] or not first["kernels"])
        cuts = cut_off(source) if source.integer() else []
        saturated = saturating(engine)
        reason, how = (explain_saturation(engine, saturated) if saturated
                       else explain_floats(source, engine, chosen) if in_floats else explain_clipping(source, cuts) if cuts
                       else explain_integers(engine, network))
        say(reason, *how)
        if (in_floats or cuts) and not saturated:
            ways.extend(accepting([own, folded] if folded else [own]))
    return reasons, ways
