"""Sessions of ONNX Runtime that keep the numbers of an exported file. Requires numpy and onnxruntime only."""
import os
import sys
import time

import numpy as np

LEVELS = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
          "all": "ORT_ENABLE_ALL"}
INPUTS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int8)": np.int8,
          "tensor(uint8)": np.uint8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
          "tensor(bool)": np.bool_}
TWO_BYTES = {"session.x64quantprecision": "1"}  # prevents that pairs of products saturate at 16 bits without VNNI


def keeping_numbers(float_codes, activations_of_4_bits, float_products):
    """Returns the level of optimisation, "basic" or "all", and the entries of the session's config. The arguments are whether the
    file has FP8 codes, 4-bit activations, and products that add up floats."""
    if float_codes:  # at "all" they would run in integer kernels
        return "basic", {"session.disable_quant_qdq": "1"}
    if activations_of_4_bits:
        return "basic", {}
    return "all", {"session.qdq_matmulnbits_accuracy_level": "1"} if float_products else {}


def open_session(path, level, entries, threads=0, saved=None):
    """Opens a file on the CPU. `entries` are entries of the session's config. `saved` is a path for the optimised graph."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # set before the import
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    if saved:
        options.optimized_model_filepath = saved
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name",
                                         os.path.basename(saved).replace(".onnx", ".data"))
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def converted(declared, x):
    """Returns the samples in the type that the file declares: token ids are integers in one file and floats in another."""
    wanted = x.astype(INPUTS.get(declared.type, x.dtype))
    if wanted.dtype != x.dtype and not np.array_equal(wanted, x):
        raise ValueError(f"its input {declared.name} is {declared.type}, and the samples do not fit: "
                         + ("use 0 and 1" if wanted.dtype == np.bool_ else "use whole numbers within its range"
                            if wanted.dtype.kind in "iu" else "use floats of this type"))
    return wanted


def session_inputs(session, x):
    """Returns the samples by input of the session. A row of samples contains all inputs, in their order."""
    declared = session.get_inputs()
    if len(declared) == 1:
        return {declared[0].name: converted(declared[0], x)}
    sizes = [int(np.prod(part.shape[1:], dtype=np.int64)) for part in declared]
    if x.ndim != 2 or sum(sizes) != x.shape[1]:
        raise ValueError(f"its inputs have {sum(sizes)} elements per sample, and the samples are {list(x.shape[1:])}")
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
    return {part.name: converted(part, own.reshape(len(x), *part.shape[1:])) for part, own in zip(declared, parts)}


def count_different(expected, value):
    """Returns the number of different codes, all of them for another size. Floats are compared by their bits."""
    value = value.view(np.int32) if value.dtype == np.float32 else value
    return int((expected.ravel() != value.ravel()).sum()) if value.size == expected.size else expected.size


def time_file(path, least, most, seconds, threads):
    """Returns the median time of a run in milliseconds. It runs `least` times, and up to `most` times within `seconds`."""
    session = open_session(path, "all", {}, threads)
    samples = {part.name: np.zeros([size if isinstance(size, int) else 1 for size in part.shape], INPUTS[part.type])
               for part in session.get_inputs()}
    times, end = [], time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < end and len(times) < most):
        begin = time.perf_counter()
        session.run(None, samples)
        times.append(time.perf_counter() - begin)
    return 1000 * sorted(times)[len(times) // 2]


if __name__ == "__main__":
    file, least_runs, most_runs, limit, count = sys.argv[1:]
    median = time_file(file, int(least_runs), int(most_runs), float(limit), int(count))
    print(median, "ONNX Runtime", sys.modules["onnxruntime"].__version__)
