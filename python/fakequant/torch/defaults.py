"""Checks the configs of `quantize` and completes presets as the command and Model.qat do."""
import collections.abc
import json

from .. import _fakequant as _fq


def completed(config):
    """Returns the config as a dict, and the keyword arguments of Model.learn_ranges or None.

    A config with a preset gets the choices of the preset (edges, calibration). The keys of the config replace them, and the rules
    of the config come after them. A config without a preset is unchanged.
    """
    config = _as_dict(config)
    if not isinstance(config.get("preset"), str):
        return config, None
    chosen, own = _fq.preset_config(config["preset"]), config.get("rules", [])
    rules = chosen.get("rules", []) + own if isinstance(own, list) else own
    config = chosen | config | ({"rules": rules} if rules else {})
    training, _ = _fq.training_defaults(config)
    learned = {"activations": training["amax"] == "learned", "weights": training["learn_weight_ranges"],
               "gradient": training["amax_gradient"]}
    return config, learned if learned["activations"] or learned["weights"] else None


def _as_dict(config):
    """A config from the name of a preset, a dict or JSON text; its rules are a list."""
    if isinstance(config, str):
        config = _parsed(config) if "{" in config else {"preset": config}
    if not isinstance(config, collections.abc.Mapping):
        raise _fq.ArgumentError(f"[quantize] config is a {type(config).__name__}: give the name of a preset (fakequant.presets() lists "
                                "them), or a config as a dict or JSON text: quantize(model, \"int8\", example_input)")
    try:
        config = json.loads(json.dumps(dict(config)))
    except TypeError as why:
        raise _fq.ArgumentError(f"[quantize] config is no JSON ({why}): give the name of a preset, or a dict of names, numbers and "
                                "lists: quantize(model, \"int8\", example_input)") from why
    rules = config.get("rules")
    if isinstance(rules, dict) and all(isinstance(fields, dict) for fields in rules.values()):
        config["rules"] = [{"pattern": pattern} | fields for pattern, fields in rules.items()]
    return config


def _parsed(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as why:
        raise _fq.ArgumentError(f"[quantize] config is no valid JSON: {why}") from why
