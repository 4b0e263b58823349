"""layers: what became of each layer."""
from .networks import STAYS, Quantized, parts_of


def layers(model):
    """A dict for each module with parameters of its own, in their order: its name in the model, type, what `runs` it, "codes" or
    "torch", and why torch does."""
    places = [place for part in parts_of(model) for codes in part.codes().values() for place in codes.places()]
    on_codes = {id(place.module) for place in places}
    rows, reasons = [], {}
    for name, module in model.named_modules():
        prefix = name + "." if name else ""
        if isinstance(module, Quantized):
            reasons |= {prefix + target: why for target, why in module.why.items()}
        if STAYS in vars(module):
            reasons[name] = vars(module)[STAYS]
        own = [parameter for parameter, _ in module.named_parameters(recurse=False)]
        if own and not isinstance(module, Quantized) and ".codes_" not in "." + name:
            runs = "codes" if id(module) in on_codes else "torch"
            rows.append({"layer": name, "type": type(module).__name__, "runs": runs,
                         "why": "" if runs == "codes" else _reason(name, reasons)})
    return rows


def _reason(name, reasons):
    """Of the module or, where nothing is known of it, of the nearest that it is in."""
    while name and name not in reasons:
        name = name.rpartition(".")[0]
    return reasons.get(name, "")
