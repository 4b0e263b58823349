"""layers: what became of each layer."""
from .networks import STAYS, Quantized, parts_of
from .ranges import Ranges


def layers(model):
    """A dict for each module with parameters of its own, in their order: its name in the model, type, what `runs` it, "codes" or
    "torch", and why torch does."""
    places = [place for part in parts_of(model) for codes in part.codes().values() for place in codes.places()]
    on_codes = {id(getattr(place.module, place.name)) for place in places}
    rows, reasons = [], {}
    for name, module in model.named_modules():
        prefix = name + "." if name else ""
        if isinstance(module, Quantized):
            reasons |= {prefix + target: why for target, why in module.why.items()}
        if STAYS in vars(module):
            reasons[name] = vars(module)[STAYS]
        own = {id(parameter) for parameter in module.parameters(recurse=False)}
        if own and not isinstance(module, Ranges):
            runs = "codes" if own & on_codes else "torch"
            kind = module.origin if isinstance(module, Quantized) else type(module)
            rows.append({"layer": name, "type": kind.__name__, "runs": runs,
                         "why": "" if runs == "codes" else _reason(name, reasons)})
    return rows


def _reason(name, reasons):
    """Of the module or, where nothing is known of it, of the nearest that it is in."""
    while name and name not in reasons:
        name = name.rpartition(".")[0]
    return reasons.get(name, "")
