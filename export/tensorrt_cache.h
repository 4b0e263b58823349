#pragma once

/// TensorRT's calibration cache: text, a header line, then `name: scale` for each tensor, the scale as in
/// reference/tensorrt.h. It is for implicit quantization, which TensorRT needs for its DLA.
///
///     save_tensorrt_cache("calibration.cache", tensorrt_cache(model));
///     for (const auto& [name, scale] : load_tensorrt_cache("calibration.cache").scales)
///       std::cout << name << ' ' << 127 * scale << '\n';  // amax
///
/// For explicit quantization, which TensorRT prefers elsewhere, export an ONNX file (export/onnx/exporter.h).

#include <string>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// A cache in memory: scales of tensors, in the order of the file.
struct TensorrtCache {
  std::string header;  ///< "TRT-8601-EntropyCalibration2"
  std::vector<std::pair<std::string, float>> scales;
};

/// The calibrator whose cache it passes for: TensorRT takes a cache of the one it is built with only, and
/// trtexec is built with `entropy2`.
enum class TensorrtCalibrator : unsigned char { entropy2, min_max };
/// The header line, "TRT-8601-EntropyCalibration2" or "TRT-8601-MinMaxCalibration". `version` is TensorRT's
/// own: 8.6.1 is 8601, 10.3.0 is 100300.
[[nodiscard]] std::string tensorrt_cache_header(TensorrtCalibrator calibrator = TensorrtCalibrator::entropy2,
                                                int version = 8601);

/// The cache of a calibrated model: an entry for each quantizer of an activation and each of its aliases,
/// under its path, with the scale in force, bit for bit. Weights have none: TensorRT takes their largest
/// magnitudes, per output channel.
///
/// Throws ArgumentError naming the quantizer and what the cache takes, which is signed 8-bit integers, one
/// range a tensor, and weights of 8-bit integers; for quantizers that were not calibrated, and when there are
/// none.
[[nodiscard]] TensorrtCache tensorrt_cache(Module& model, std::string header = tensorrt_cache_header());

/// Writes it beside, synced, renamed. Throws FileError, SystemError as AtomicFile, ArgumentError for names or
/// a header that a line cannot hold.
void save_tensorrt_cache(const std::string& path, const TensorrtCache& cache);
/// Reads a cache of any header line, whoever wrote it. Throws FileError naming the line that is not `name:
/// hhhhhhhh`, has a scale that is negative or not finite, or repeats a name; and for a file of more than 64
/// MiB.
[[nodiscard]] TensorrtCache load_tensorrt_cache(const std::string& path);

}  // namespace fq
