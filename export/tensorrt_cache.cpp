#include "fakequant/export/tensorrt_cache.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/reference/tensorrt.h"

namespace fq {
namespace {

// An entry is "name: 3c010a14": the bits of a float32 scale in big-endian hexadecimal digits.
constexpr std::string_view kSeparator = ": ";

[[noreturn]] void refuse(const TensorQuantizer& q, const std::string& why) {
  throw ArgumentError(fmt::format(
      "[tensorrt_cache] '{}' {}: the cache supports int8 activations with one range per tensor and "
      "int8 weights. Calibrate with --preset int8 --target tensorrt",
      q.name(), why));
}

// Checks a weight quantizer. Disabled parts of a sequence are ignored. Ranges are not compared: TensorRT
// takes the largest magnitude of each output channel itself.
void check_weight(const TensorQuantizer& q) {
  const Format& format = q.descriptor().format();
  if (!q.enabled()) return;
  if (!format.is_integer() || format.bits() != 8 || !q.descriptor().block_sizes().empty())
    refuse(q, "quantizes weights to " + q.describe());
}

float activation_scale(const TensorQuantizer& q) {
  const Format& format = q.descriptor().format();
  if (!format.is_integer() || format.bits() != 8 || format.integer().is_unsigned)
    refuse(q, "has the format " + to_string(format));
  if (!q.descriptor().needs_amax() || !q.descriptor().block_sizes().empty())
    refuse(q, "takes its ranges from each input or block");
  // The cache has one number per tensor, which leaves no room for factors of the input channels.
  if (q.params().pre_quant_scale.defined()) refuse(q, "multiplies its input by a pre_quant_scale");
  const Grid grid = q.grid();
  if (!grid.granularity.is_per_tensor()) refuse(q, "has a range for each index of an axis");
  return static_cast<float>(grid.scale.item());
}

void check_line(std::string_view text, const char* what) {
  FQ_CHECK(!text.empty() && text.find_first_of("\r\n") == std::string_view::npos, "save_tensorrt_cache",
           "the {} '{}' is no line of text", what, text);
}

[[noreturn]] void damaged(const std::string& path, std::size_t line, const std::string& why) {
  throw FileError(path, {}, fmt::format("[load_tensorrt_cache] {}:{}: {}", path, line, why));
}

// Removes the first line from `text` and returns it without "\n" or "\r\n".
std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

float read_scale(const std::string& path, std::size_t number, std::string_view entry) {
  // The parser of the reference throws without file and line. -1 leads to the error below, which has both.
  float scale = -1;
  try {
    scale = tensorrt::calibration_cache_scale(entry);
  } catch (const ArgumentError&) {
  }
  if (!(scale >= 0 && std::isfinite(scale)))
    damaged(path, number,
            "a line is 'name: ' and eight hexadecimal digits, the bits of a scale of 0 or more");
  return scale;
}

}  // namespace

std::string tensorrt_cache_header(TensorrtCalibrator calibrator, int version) {
  FQ_CHECK(version > 0, "tensorrt_cache",
           "version: {} is not positive. Use the number of TensorRT, 8601 for 8.6.1", version);
  return fmt::format("TRT-{}-{}Calibration{}", version,
                     calibrator == TensorrtCalibrator::entropy2 ? "Entropy" : "MinMax",
                     calibrator == TensorrtCalibrator::entropy2 ? "2" : "");
}

TensorrtCache tensorrt_cache(Module& model, std::string header) {
  TensorrtCache cache{std::move(header), {}};
  const auto weights = weight_quantizers(model);
  for (const auto& [name, q, aliases] : named_quantizers(model)) {
    if (weights.contains(q)) check_weight(*q);
    if (weights.contains(q) || !q->enabled()) continue;
    const float scale = activation_scale(*q);
    cache.scales.emplace_back(name, scale);
    for (const auto& alias : aliases) cache.scales.emplace_back(alias, scale);
  }
  FQ_CHECK(!cache.scales.empty(), "tensorrt_cache",
           "no activation is quantized: the cache holds scales of int8 activations");
  return cache;
}

void save_tensorrt_cache(const std::string& path, const TensorrtCache& cache) {
  check_line(cache.header, "header");
  std::string text = cache.header + "\n";
  for (const auto& [name, scale] : cache.scales) {
    check_line(name, "name");
    text += fmt::format("{}{}{}\n", name, kSeparator, tensorrt::calibration_cache_entry_of_scale(scale));
  }
  write_file(path, text);
}

TensorrtCache load_tensorrt_cache(const std::string& path) {
  const std::string contents = read_file(path);
  std::string_view text = contents;
  TensorrtCache cache{std::string(next_line(text)), {}};
  if (cache.header.empty()) damaged(path, 1, "there is no header line, as TRT-8601-EntropyCalibration2");
  std::set<std::string_view> names;
  for (std::size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    if (line.empty()) continue;
    // Names of ONNX tensors may contain ": ", the digits cannot.
    const auto end = line.rfind(kSeparator);
    if (end == std::string_view::npos || end == 0) damaged(path, number, "a line is 'name: hhhhhhhh'");
    const std::string_view name = line.substr(0, end);
    if (!names.insert(name).second) damaged(path, number, fmt::format("'{}' is there twice", name));
    cache.scales.emplace_back(name, read_scale(path, number, line.substr(end + kSeparator.size())));
  }
  return cache;
}

}  // namespace fq
