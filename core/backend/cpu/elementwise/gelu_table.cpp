#include "fakequant/core/backend/cpu/elementwise/gelu_table.h"

#include <vector>

#include "fakequant/core/backend/cpu/elementwise/gelu_table_kernels.h"
#include "fakequant/core/numerics/detail/ggml_gelu.h"

namespace fq::cpu {
namespace {

std::vector<float> gelu_entries() {
  std::vector<float> out(1 << 16);
  for (std::uint32_t bits = 0; bits < out.size(); ++bits)
    out[bits] = detail::ggml_gelu_entry(detail::f16_value(static_cast<std::uint16_t>(bits)));
  return out;
}

}  // namespace

void ggml_gelu_values(const float* x, std::int64_t n, float* y) {
  static const std::vector<float> entries = gelu_entries();
  for (std::int64_t i = gelu_entries_of(x, n, entries.data(), y); i < n; ++i) {
    const float v = x[i];
    y[i] = v <= -10.0f ? 0.0f : (v >= 10.0f ? v : entries[detail::f16_bits(v)]);
  }
}

}  // namespace fq::cpu
