"""How ONNX Runtime keeps the numbers of an exported file. It imports nothing: the scripts read it without the package."""

TWO_BYTES = {"session.x64quantprecision": "1"}  # pairs of products must not saturate at 16 bits without VNNI


def keeping_numbers(float_codes, activations_of_4_bits, float_products):
    """The level of optimisation, "basic" or "all", and the entries of a session's config, of a file that has codes of floats,
    activations of 4-bit integers, and products that floats are added up in."""
    if float_codes:  # which "all" would put into integer kernels
        return "basic", {"session.disable_quant_qdq": "1"}
    if activations_of_4_bits:
        return "basic", {}
    return "all", {"session.qdq_matmulnbits_accuracy_level": "1"} if float_products else {}
