#include "fakequant/export/onnx/detail/element_type.h"

#include <array>
#include <utility>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

constexpr std::array<std::pair<DType, int>, 17> kTypes{{{DType::f32, 1},
                                                        {DType::u8, 2},
                                                        {DType::i8, 3},
                                                        {DType::u16, 4},
                                                        {DType::i16, 5},
                                                        {DType::i32, 6},
                                                        {DType::i64, 7},
                                                        {DType::f16, 10},
                                                        {DType::f64, 11},
                                                        {DType::bf16, 16},
                                                        {DType::f8_e4m3, 17},
                                                        {DType::f8_e5m2, 19},
                                                        {DType::u4, 21},
                                                        {DType::i4, 22},
                                                        {DType::f4_e2m1, 23},
                                                        {DType::f8_e8m0, 24},
                                                        {DType::u8, onnx_bool}}};

}  // namespace

int onnx_type(DType dtype) {
  for (const auto& [ours, theirs] : kTypes)
    if (ours == dtype) return theirs;
  throw ArgumentError(fmt::format("[save_onnx] ONNX has no element type {}", name(dtype)));
}

std::optional<DType> dtype_of_onnx(int type) {
  for (const auto& [ours, theirs] : kTypes)
    if (theirs == type) return ours;
  return std::nullopt;
}

}  // namespace fq::detail
