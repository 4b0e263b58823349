#include "fakequant/export/safetensors/detail/packed_layers.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/quantized.h"

namespace fq::detail {
namespace {

constexpr std::string_view kScale = ".weight_scale";

/// What nothing here computes, behind a layer's name.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {".weight_scale_2", "its scales are of 8 bits (NVFP4): codes of blocks are made anew here"},
    {".weight_global_scale", "its scales are of 8 bits (NVFP4): codes of blocks are made anew here"},
    {".weight_zero_point", "it has zero points: grids here are symmetric"},
    {".weight_g_idx", "its columns are in another order (activation ordering)"},
    {".pre_quant_scale", "its inputs have factors: fold them into the weights"},
};
/// What other tensors follow from, or what float readers pass over.
constexpr std::string_view kHidden[] = {".weight_shape", ".bias_code"};

class Unpacking {
 public:
  Unpacking(const std::string& path, const std::vector<SafetensorsEntry>& entries,
            const std::function<Tensor(const std::string&)>& read)
      : path_(path), read_(read) {
    for (const auto& entry : entries) entries_.emplace(entry.name, &entry);
  }

  PackedFile run() {
    for (const auto& [name, entry] : entries_)
      if (name.ends_with(kScale)) add(name.substr(0, name.size() - kScale.size()));
    if (out_.layers.empty()) return {};
    for (const auto& [name, entry] : entries_)
      if (is_scale(name)) {
        out_.hidden.push_back(name);
        out_.scales.emplace(name, positive(name));
      }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& tensor, const std::string& why) const {
    throw FileError(path_, tensor, fmt::format("[import] {}: {}: {}", path_, tensor, why));
  }
  [[nodiscard]] bool has(const std::string& name) const { return entries_.contains(name); }

  static bool is_scale(const std::string& name) {
    const auto dot = name.rfind('.');
    const std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
    return last.starts_with("input_scale") || last == "output_scale";
  }

  [[nodiscard]] Tensor positive(const std::string& name) const {
    const auto& dtype = entries_.at(name)->dtype;
    if (dtype != "F32" && dtype != "F16" && dtype != "BF16")
      fail(name, fmt::format("it is {}: scales here are floats, of NVFP4 and MX codes are made anew", dtype));
    const Tensor values = read_(name).to(DType::f32);
    for (const float v : values.to_vector<float>())
      if (!(v > 0 && std::isfinite(v))) fail(name, fmt::format("a scale is {}: it must be positive", v));
    return values.numel() == 1 ? values.reshape({}) : values;
  }

  void add(const std::string& layer) {
    for (const auto& [suffix, why] : kRefused)
      if (has(layer + std::string(suffix))) fail(layer + std::string(suffix), std::string(why));
    for (const auto suffix : kHidden)
      if (has(layer + std::string(suffix))) out_.hidden.push_back(layer + std::string(suffix));
    out_.hidden.push_back(layer + std::string(kScale));
    PackedLayer found;
    found.name = layer;
    found.scale = positive(layer + std::string(kScale));
    const std::string packed = layer + ".weight_packed", plain = layer + ".weight";
    if (has(packed)) {
      out_.hidden.push_back(packed);
      take_words(found, packed, layer + ".weight_shape");
    } else if (has(plain)) {
      take_codes(found, plain);
    } else {
      fail(layer + std::string(kScale), "it has no weight beside it");
    }
    multiply(found);
    out_.layers.push_back(std::move(found));
  }

  void take_codes(PackedLayer& layer, const std::string& name) {
    const SafetensorsEntry& entry = *entries_.at(name);
    if (entry.dtype == "U8") return take_pairs(layer, name);
    const Tensor stored = read_(name);
    if (entry.dtype == "I8") {
      layer.codes = stored.to(DType::f32);
      return;
    }
    if (entry.dtype != "F8_E4M3")
      fail(name, fmt::format("it is {} beside a scale: I8 or F8_E4M3 is", entry.dtype));
    layer.format = FloatFormat{4, 3};
    layer.codes = Tensor::empty(stored.shape());
    const Minifloat grid = Minifloat::of({4, 3});
    const auto* bits = static_cast<const std::uint8_t*>(stored.raw());
    for (std::int64_t i = 0; i < stored.numel(); ++i)
      layer.codes.mutable_data<float>()[i] = grid.decode(bits[i]);
  }

  /// ModelOpt's: rows 2i and 2i + 1 in the low and high nibbles of row i.
  void take_pairs(PackedLayer& layer, const std::string& name) {
    const Tensor stored = read_(name);
    if (stored.rank() != 2 || layer.scale.rank() != 2 || layer.scale.dim(0) != 2 * stored.dim(0))
      fail(name, "its bytes are no pairs of rows of 4 bits (W4A16_AWQ)");
    const std::int64_t rows = stored.dim(0), columns = stored.dim(1);
    layer.format = IntFormat{4};
    layer.codes = Tensor::empty({2 * rows, columns});
    const auto* bytes = stored.data<std::uint8_t>();
    auto* to = layer.codes.mutable_data<float>();
    for (std::int64_t i = 0; i < stored.numel(); ++i)
      for (int high = 0; high < 2; ++high) {
        const int nibble = bytes[i] >> (4 * high) & 15;
        to[(2 * (i / columns) + high) * columns + i % columns] =
            static_cast<float>(nibble < 8 ? nibble : nibble - 16);
      }
  }

  /// compressed-tensors': words of 32 bits with codes from the lowest bits on, the lowest code being 0.
  void take_words(PackedLayer& layer, const std::string& name, const std::string& shape_name) {
    if (!has(shape_name)) fail(name, "it has no weight_shape beside it");
    const Tensor sizes = read_(shape_name), words = read_(name);
    if (sizes.numel() != 2 || is_floating(sizes.dtype()) || words.rank() != 2 || words.dtype() != DType::i32)
      fail(name, "it is no matrix of I32 with a weight_shape of two");
    const Shape shape = sizes.to(DType::i64).to_vector<std::int64_t>();
    for (const int bits : {4, 8}) {
      const std::int64_t each = 32 / bits;
      if (shape[0] != words.dim(0) || shape[1] < 1 || shape[1] > words.dim(1) * each ||
          shape[1] <= (words.dim(1) - 1) * each)
        continue;
      layer.format = IntFormat{bits};
      layer.codes = Tensor::empty(shape);
      const auto* from = words.data<std::int32_t>();
      auto* to = layer.codes.mutable_data<float>();
      for (std::int64_t i = 0; i < layer.codes.numel(); ++i) {
        const std::int64_t column = i % shape[1];
        const auto word = static_cast<std::uint32_t>(from[i / shape[1] * words.dim(1) + column / each]);
        const auto code = word >> (bits * (column % each)) & ((1U << bits) - 1);
        to[i] = static_cast<float>(static_cast<int>(code) - (1 << (bits - 1)));
      }
      return;
    }
    fail(name, fmt::format("it is {} for a weight {}: codes of 4 and 8 bits are known", words.describe(),
                           to_string(shape)));
  }

  /// One scale, one a row, or one for each group of columns.
  void multiply(PackedLayer& layer) {
    const Shape& shape = layer.codes.shape();
    Tensor& scale = layer.scale;
    const std::string name = layer.name + std::string(kScale);
    if (shape.empty() || layer.codes.numel() == 0) fail(name, "its weight is empty");
    std::int64_t run = layer.codes.numel();  // elements behind each other that share a scale
    if (scale.rank() > 0 && scale.numel() == shape[0]) {
      scale = scale.reshape({shape[0]});
      run /= shape[0];
    } else if (scale.rank() == 2 && shape.size() == 2 && scale.dim(0) == shape[0] && scale.dim(1) > 0 &&
               shape[1] % scale.dim(1) == 0) {
      layer.group = run = shape[1] / scale.dim(1);
    } else if (scale.rank() > 0) {
      fail(name,
           fmt::format("it is {} for a weight {}: one, one a row, or one for each group of columns is known",
                       scale.describe(), to_string(shape)));
    }
    layer.values = layer.codes.clone();
    const auto* step = scale.data<float>();
    for (std::int64_t i = 0; i < layer.values.numel(); ++i)
      layer.values.mutable_data<float>()[i] *= step[i / run];
  }

  const std::string& path_;
  const std::function<Tensor(const std::string&)>& read_;
  std::map<std::string, const SafetensorsEntry*> entries_;
  PackedFile out_;
};

}  // namespace

PackedFile packed_file(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                       const std::function<Tensor(const std::string&)>& read) {
  return Unpacking(path, entries, read).run();
}

}  // namespace fq::detail
