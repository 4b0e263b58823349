#include "fakequant/core/dtype.h"

#include <array>

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

struct Entry {
  std::string_view name;
  int bits;
};

// In the order of the enumerators of DType. Files store these names.
constexpr std::array<Entry, 19> kEntries{{{"f32", 32},
                                          {"f64", 64},
                                          {"f16", 16},
                                          {"bf16", 16},
                                          {"i8", 8},
                                          {"u8", 8},
                                          {"i16", 16},
                                          {"u16", 16},
                                          {"i32", 32},
                                          {"i64", 64},
                                          {"u1", 1},
                                          {"i2", 2},
                                          {"u2", 2},
                                          {"i4", 4},
                                          {"u4", 4},
                                          {"f8_e4m3", 8},
                                          {"f8_e5m2", 8},
                                          {"f8_e8m0", 8},
                                          {"f4_e2m1", 4}}};

const Entry& entry(DType dtype) noexcept { return kEntries[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view name(DType dtype) noexcept { return entry(dtype).name; }

DType dtype_from_name(std::string_view name) {
  std::string names;
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) return static_cast<DType>(i);
    names.append(i ? ", " : "").append(kEntries[i].name);
  }
  throw ArgumentError(fmt::format("[dtype] '{}' is not a dtype: use one of {}", name, names));
}

int bit_width(DType dtype) noexcept { return entry(dtype).bits; }

std::int64_t byte_size(DType dtype, std::int64_t count) noexcept {
  const int bits = bit_width(dtype);
  // Types below 8 bits are packed, and the last byte may be partial.
  return bits >= 8 ? count * (bits / 8) : (count + 8 / bits - 1) / (8 / bits);
}

bool is_floating(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

bool is_storage_only(DType dtype) noexcept {
  return bit_width(dtype) < 8 || dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2 ||
         dtype == DType::f8_e8m0;
}

}  // namespace fq
