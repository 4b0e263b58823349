#include "fakequant/export/safetensors/detail/types.h"

#include <array>

namespace fq::detail {
namespace {

constexpr auto kSafetensorsTypes = std::to_array<SafetensorsType>({
    {"BOOL", 8, {}},
    {"F4", 4, DType::f4_e2m1},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::i8},
    {"F8_E5M2", 8, DType::f8_e5m2},
    {"F8_E4M3", 8, DType::f8_e4m3},
    {"F8_E8M0", 8, DType::f8_e8m0},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, DType::i16},
    {"U16", 16, DType::u16},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, {}},
    {"F32", 32, DType::f32},
    {"C64", 64, {}},
    {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},
    {"U64", 64, {}},
});

constexpr auto ranked() {
  auto types = kSafetensorsTypes;
  for (std::size_t i = 0; i < types.size(); ++i) types[i].rank = static_cast<int>(i);
  return types;
}
constexpr auto kRanked = ranked();

}  // namespace

const SafetensorsType* safetensors_type(std::string_view name) noexcept {
  for (const auto& type : kRanked)
    if (type.name == name) return &type;
  return nullptr;
}

const SafetensorsType* safetensors_type(DType dtype) noexcept {
  for (const auto& type : kRanked)
    if (type.dtype == dtype) return &type;
  return nullptr;
}

}  // namespace fq::detail
