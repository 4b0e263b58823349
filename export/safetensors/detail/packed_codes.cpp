#include "fakequant/export/safetensors/detail/packed_codes.h"

#include <cmath>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/minifloat.h"

namespace fq::detail {
namespace {

/// f32 of what `value` gives for each byte.
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

}  // namespace

void StoredTensor::fail(const std::string& why) const {
  throw FileError(file, name, fmt::format("[import] {}: {}: {}", file, name, why));
}

UnpackedCodes unpack_bytes(const StoredTensor& stored) {
  if (stored.value.dtype() == DType::i8) return {IntFormat{}, stored.value.to(DType::f32)};
  if (stored.value.dtype() != DType::f8_e4m3)
    stored.fail(fmt::format("it is {} beside a scale: I8 or F8_E4M3 is", stored.value.describe()));
  const Minifloat grid = Minifloat::of({4, 3});
  return {FloatFormat{4, 3}, each_byte(stored.value, [&](std::uint8_t code) { return grid.decode(code); })};
}

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

UnpackedCodes unpack_words(const StoredTensor& stored, const Shape& shape) {
  const Tensor& words = stored.value;
  if (shape.size() != 2 || words.rank() != 2 || words.dtype() != DType::i32)
    stored.fail("it is no matrix of I32 with a weight_shape of two");
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
  stored.fail(fmt::format("it is {} for a weight {}: codes of 4 and 8 bits are known", words.describe(),
                          to_string(shape)));
}

Tensor unpack_scales(const StoredTensor& stored) {
  const Minifloat e4m3 = Minifloat::of({4, 3});
  const bool floats = stored.value.dtype() == DType::f8_e4m3;
  const Tensor out = each_byte(
      stored.value, [&](std::uint8_t code) { return floats ? e4m3.decode(code) : decode_e8m0(code); });
  for (const float v : out.to_vector<float>())
    if (!(v > 0 && std::isfinite(v))) stored.fail(fmt::format("a scale is {}: it must be positive", v));
  return out;
}

}  // namespace fq::detail
