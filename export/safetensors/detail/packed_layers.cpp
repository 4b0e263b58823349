#include "fakequant/export/safetensors/detail/packed_layers.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/tensor.h"
#include "fakequant/export/quantized/detail/file_grids.h"

namespace fq::detail {
namespace {

/// A tensor of a file, named in messages.
struct StoredTensor {
  std::string file, name;
  Tensor value;

  /// Throws FileError that names file and tensor.
  [[noreturn]] void fail(const std::string& why) const;
};

/// Unpacked f32 codes in the weight's shape.
struct UnpackedCodes {
  Format format = IntFormat{};
  Tensor codes;
};

// Each function throws FileError that names file and tensor for another type or shape.

/// Returns f32 `value(byte)` for each byte.
template <class Value>
Tensor each_byte(const Tensor& stored, Value&& value) {
  Tensor out = Tensor::empty(stored.shape());
  const auto* bytes = static_cast<const std::uint8_t*>(stored.raw());
  auto* to = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) to[i] = value(bytes[i]);
  return out;
}

void check_pairs(const StoredTensor& stored, bool fits, const char* of) {
  if (stored.value.rank() != 2 || stored.value.dtype() != DType::u8 || !fits)
    stored.fail(fmt::format("its bytes are no pairs of {}", of));
}

void StoredTensor::fail(const std::string& why) const {
  throw FileError(file, name, fmt::format("[import] {}: {}: {}", file, name, why));
}

/// Unpacks one code per byte: I8 or F8_E4M3.
UnpackedCodes unpack_bytes(const StoredTensor& stored) {
  if (stored.value.dtype() == DType::i8) return {IntFormat{}, stored.value.to(DType::f32)};
  if (stored.value.dtype() != DType::f8_e4m3)
    stored.fail(fmt::format("it is {} and has a scale: use I8 or F8_E4M3", stored.value.describe()));
  const Minifloat grid = Minifloat::of({4, 3});
  return {FloatFormat{4, 3}, each_byte(stored.value, [&](std::uint8_t code) { return grid.decode(code); })};
}

/// Unpacks ModelOpt's 4-bit codes, U8 [rows / 2, columns]: rows 2i and 2i + 1 are in the low and high nibbles
/// of row i.
UnpackedCodes unpack_rows(const StoredTensor& stored, std::int64_t rows) {
  check_pairs(stored, stored.value.rank() == 2 && rows == 2 * stored.value.dim(0),
              "rows of 4 bits (W4A16_AWQ)");
  const std::int64_t columns = stored.value.dim(1);
  Tensor codes = Tensor::empty({rows, columns});
  const auto* bytes = stored.value.data<std::uint8_t>();
  auto* to = codes.mutable_data<float>();
  for (std::int64_t i = 0; i < stored.value.numel(); ++i)
    for (int high = 0; high < 2; ++high) {
      const int nibble = bytes[i] >> (4 * high) & 15;
      to[(2 * (i / columns) + high) * columns + i % columns] =
          static_cast<float>(nibble < 8 ? nibble : nibble - 16);
    }
  return {IntFormat{4}, std::move(codes)};
}

/// Unpacks E2M1, U8 [rows, columns / 2]: the even column is in the low nibble.
UnpackedCodes unpack_e2m1(const StoredTensor& stored) {
  check_pairs(stored, true, "columns of 4 bits (E2M1)");
  const Minifloat grid = Minifloat::of({2, 1});
  Tensor codes = Tensor::empty({stored.value.dim(0), 2 * stored.value.dim(1)});
  const auto* bytes = stored.value.data<std::uint8_t>();
  auto* to = codes.mutable_data<float>();
  for (std::int64_t i = 0; i < codes.numel(); ++i)
    to[i] = grid.decode(static_cast<std::uint8_t>(bytes[i / 2] >> (4 * (i % 2)) & 15));
  return {FloatFormat{2, 1}, std::move(codes)};
}

/// Unpacks compressed-tensors' I32 [rows, words] for a weight of `shape`: 4-bit or 8-bit codes from the
/// lowest bits up. The lowest code is stored as 0.
UnpackedCodes unpack_words(const StoredTensor& stored, const Shape& shape) {
  const Tensor& words = stored.value;
  if (shape.size() != 2 || words.rank() != 2 || words.dtype() != DType::i32)
    stored.fail("it is no matrix of I32 with a weight_shape of two");
  // The file does not state the bits of a code. They follow from the words of a row and the columns of the
  // weight.
  for (const int bits : {4, 8}) {
    const std::int64_t each = 32 / bits;
    if (shape[0] != words.dim(0) || shape[1] < 1 || shape[1] > words.dim(1) * each ||
        shape[1] <= (words.dim(1) - 1) * each)
      continue;
    Tensor codes = Tensor::empty(shape);
    const auto* from = words.data<std::int32_t>();
    auto* to = codes.mutable_data<float>();
    for (std::int64_t i = 0; i < codes.numel(); ++i) {
      const std::int64_t column = i % shape[1];
      const auto word = static_cast<std::uint32_t>(from[i / shape[1] * words.dim(1) + column / each]);
      const auto code = word >> (bits * (column % each)) & ((1U << bits) - 1);
      to[i] = static_cast<float>(static_cast<int>(code) - (1 << (bits - 1)));
    }
    return {IntFormat{bits}, std::move(codes)};
  }
  stored.fail(fmt::format("it is {} for a weight {}: codes of 4 and 8 bits are supported", words.describe(),
                          to_string(shape)));
}

/// Unpacks 8-bit scales, F8_E4M3 or E8M0 (also as U8), as f32. They must be positive and finite.
Tensor unpack_scales(const StoredTensor& stored) {
  const Minifloat e4m3 = Minifloat::of({4, 3});
  const bool floats = stored.value.dtype() == DType::f8_e4m3;
  const Tensor out = each_byte(
      stored.value, [&](std::uint8_t code) { return floats ? e4m3.decode(code) : decode_e8m0(code); });
  for (const float v : out.to_vector<float>())
    if (!(v > 0 && std::isfinite(v))) stored.fail(fmt::format("a scale is {}: it must be positive", v));
  return out;
}

constexpr std::string_view kScale = ".weight_scale", kUnit = ".weight_scale_2",
                           kInverseUnit = ".weight_global_scale";

/// Suffixes of tensors that the import does not support, and the reason.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {".input_global_scale",
     "its inputs are NVFP4 of compressed-tensors: use a file with NVFP4 weights only, or of ModelOpt"},
    {".weight_zero_point", "it has zero points: only symmetric grids are supported"},
    {".weight_g_idx", "its columns are in another order (activation ordering)"},
    {".pre_quant_scale", "its inputs have factors: fold them into the weights"},
};
/// Suffixes of tensors that follow from other tensors, or that float readers ignore.
constexpr std::string_view kHidden[] = {".weight_shape", ".bias_code", kUnit, kInverseUnit};

bool is_scale(const std::string& name) {
  const auto dot = name.rfind('.');
  const std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
  return last.starts_with("input_scale") || last == "output_scale";
}

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
  [[nodiscard]] bool has(const std::string& name) const { return entries_.contains(name); }
  [[nodiscard]] const std::string& type(const std::string& name) const { return entries_.at(name)->dtype; }
  [[nodiscard]] StoredTensor stored(const std::string& name) const { return {path_, name, read_(name)}; }
  [[noreturn]] void fail(const std::string& name, const std::string& why) const {
    StoredTensor{path_, name, {}}.fail(why);
  }

  [[nodiscard]] Tensor positive(const std::string& name) const {
    if (type(name) != "F32" && type(name) != "F16" && type(name) != "BF16")
      fail(name, fmt::format("it is {}: a scale here is a float, or one of 8 bits of E2M1 or E4M3 in blocks",
                             type(name)));
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
    take_scales(found);
    UnpackedCodes codes = unpack_layer(found);
    found.format = codes.format;
    found.codes = std::move(codes.codes);
    check_scales(found);
    found.values = found.scale_bits == NumBits(8, 0)
                       ? scaled_mx_codes(found.codes, found.scale, found.granularity(), found.format.bound())
                       : scaled_codes(found.codes, found.scale, found.granularity());
    out_.layers.push_back(std::move(found));
  }

  /// Reads scales: floats, or 8-bit numbers. E4M3 scales are multiplied by one float.
  void take_scales(PackedLayer& layer) const {
    const std::string name = layer.name + std::string(kScale),
                      inverse = layer.name + std::string(kInverseUnit),
                      unit = has(inverse) ? inverse : layer.name + std::string(kUnit);
    const std::string& kind = type(name);
    if (kind != "U8" && kind != "F8_E8M0" && (kind != "F8_E4M3" || !has(unit))) {
      layer.scale = positive(name);
      return;
    }
    const bool e4m3 = kind == "F8_E4M3";
    layer.scale_bits = e4m3 ? NumBits(4, 3) : NumBits(8, 0);
    layer.scale = unpack_scales(stored(name));
    if (!e4m3) return;
    const Tensor one = positive(unit);
    if (one.numel() != 1) fail(unit, "it must be one number for all blocks");
    // compressed-tensors stores the reciprocal of ModelOpt's factor.
    layer.unit = has(inverse) ? 1.0f / static_cast<float>(one.item()) : static_cast<float>(one.item());
    layer.scale = scaled_codes(layer.scale, Tensor::from({layer.unit}, {1}), Granularity::per_tensor());
  }

  UnpackedCodes unpack_layer(const PackedLayer& layer) {
    const std::string packed = layer.name + ".weight_packed", plain = layer.name + ".weight";
    if (has(packed)) {
      out_.hidden.push_back(packed);
      if (layer.scale_bits) return unpack_e2m1(stored(packed));
      const std::string shape = layer.name + ".weight_shape";
      if (!has(shape)) fail(packed, "its weight_shape is missing");
      const Tensor sizes = read_(shape);
      if (is_floating(sizes.dtype())) fail(shape, "it is no list of whole numbers");
      return unpack_words(stored(packed), sizes.to(DType::i64).to_vector<std::int64_t>());
    }
    if (!has(plain)) fail(layer.name + std::string(kScale), "its weight is missing");
    if (type(plain) != "U8") return unpack_bytes(stored(plain));
    if (layer.scale_bits) return unpack_e2m1(stored(plain));
    return unpack_rows(stored(plain), layer.scale.rank() == 2 ? layer.scale.dim(0) : 0);
  }

  /// Accepts one scale, one per row, or one per group of columns.
  void check_scales(PackedLayer& layer) const {
    const Shape& shape = layer.codes.shape();
    Tensor& scale = layer.scale;
    const std::string name = layer.name + std::string(kScale);
    if (shape.empty() || layer.codes.numel() == 0) fail(name, "its weight is empty");
    const bool groups = scale.rank() == 2 && shape.size() == 2 && scale.dim(0) == shape[0] &&
                        scale.dim(1) > 0 && shape[1] % scale.dim(1) == 0;
    if (scale.rank() > 0 && scale.numel() == shape[0] && !layer.scale_bits)
      scale = scale.reshape({shape[0]});
    else if (groups)
      layer.group = shape[1] / scale.dim(1);
    else if (scale.rank() > 0 || layer.scale_bits)
      fail(name,
           fmt::format("it is {} for a weight {}: use one scale, one per row, or one per group of columns",
                       scale.describe(), to_string(shape)));
  }

  const std::string& path_;
  const std::function<Tensor(const std::string&)>& read_;
  std::map<std::string, const SafetensorsEntry*> entries_;
  PackedFile out_;
};

}  // namespace

Granularity PackedLayer::granularity() const {
  if (group > 0) return Granularity::per_group(group);
  return scale.rank() > 0 ? Granularity::per_axis(0) : Granularity::per_tensor();
}

PackedFile packed_file(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                       const std::function<Tensor(const std::string&)>& read) {
  return Unpacking(path, entries, read).run();
}

}  // namespace fq::detail
