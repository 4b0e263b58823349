#pragma once

/// TensorRT's calibration cache: text with a header line, then `name: scale` for each tensor.
/// reference/tensorrt.h defines the scale. Implicit quantization uses the cache, which TensorRT needs for its
/// DLA.
///
///     save_tensorrt_cache("calibration.cache", tensorrt_cache(model));
///     for (const auto& [name, scale] : load_tensorrt_cache("calibration.cache").scales)
///       std::cout << name << ' ' << 127 * scale << '\n';  // amax
///
/// For explicit quantization, which TensorRT prefers on other devices, export an ONNX file
/// (export/onnx/exporter.h).

#include <string>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// A cache in memory: scales of tensors in file order.
struct TensorrtCache {
  std::string header;  ///< "TRT-8601-EntropyCalibration2"
  std::vector<std::pair<std::string, float>> scales;
};

/// Calibrator named in the header. TensorRT accepts only caches of the calibrator it is built with. trtexec
/// uses `entropy2`.
enum class TensorrtCalibrator : unsigned char { entropy2, min_max };
/// Returns the header line, "TRT-8601-EntropyCalibration2" or "TRT-8601-MinMaxCalibration". `version` is
/// TensorRT's number: 8.6.1 is 8601, 10.3.0 is 100300.
[[nodiscard]] std::string tensorrt_cache_header(TensorrtCalibrator calibrator = TensorrtCalibrator::entropy2,
                                                int version = 8601);

/// Returns the cache of a calibrated model: the scale in use, bit for bit, of each activation quantizer under
/// its path and each alias. Weights have no entry: TensorRT uses their largest magnitudes per output channel.
///
/// Throws ArgumentError that names the quantizer unless activations are signed 8-bit integers with one range
/// per tensor and weights are 8-bit integers. Also throws for uncalibrated quantizers and for a model without
/// quantizers.
[[nodiscard]] TensorrtCache tensorrt_cache(Module& model, std::string header = tensorrt_cache_header());

/// Writes a temporary file, syncs it and renames it. Throws FileError and SystemError as AtomicFile. Throws
/// ArgumentError for names or a header that do not fit on a line.
void save_tensorrt_cache(const std::string& path, const TensorrtCache& cache);
/// Reads a cache with any header line. Throws FileError that names the line if it is not `name: hhhhhhhh`,
/// has a scale that is negative or not finite, or repeats a name. Throws for a file of more than 64 MiB.
[[nodiscard]] TensorrtCache load_tensorrt_cache(const std::string& path);

}  // namespace fq
