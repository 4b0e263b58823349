#include "fakequant/core/backend/cpu/codes/code_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/code_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/codes/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

void Dequantize(const cpu::CodeArray& codes, std::int64_t count, float scale, float* y) {
  decode_codes(codes, count, hn::Set(FloatTag(), scale), y);
}

void DecodeBf16(const cpu::CodeArray& codes, std::int64_t count, bfloat16* y) {
  const ShortTag d;
  visit_codes(codes, [&](const auto* in) HWY_ATTR {
    visit_elements(in, y, count, [&](const auto* p, bfloat16* out) HWY_ATTR {
      // 8-bit codes have at most 8 significant bits, so the upper half of the float is the bf16 number.
      const WordVector upper = hn::ShiftRight<16>(word_bits(load_codes(p)));
      hn::StoreU(hn::TruncateTo(d, upper), d, reinterpret_cast<std::uint16_t*>(out));
    });
  });
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(Dequantize);
HWY_EXPORT(DecodeBf16);

namespace cpu {

void dequantize(const CodeArray& codes, std::int64_t count, float scale, float* y) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(codes, count, scale, y);
}
void decode(const CodeArray& codes, std::int64_t count, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(DecodeBf16)(codes, count, y);
}

}  // namespace cpu
}  // namespace fq
#endif
