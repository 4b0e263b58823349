#include "fakequant/core/ops/dropout.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/cpu/map.h"
#include "fakequant/core/ops/operator.h"
#include "fakequant/core/random.h"

namespace fq::ops {
namespace {

constexpr std::string_view kDropout = "dropout";

/// u8, 1 where an element is kept, in `layout`. Blocks of four elements share a counter; bits of a block's
/// number past 32 go above the count of operators, which stays below 2^24.
Tensor keep_mask(const Tensor& x, double p, const RandomStream& s) {
  if (!detail::computes(x)) return Tensor::empty(x.shape(), DType::u8, x.device(), x.layout());
  Tensor mask = Tensor::empty(x.shape(), DType::u8);
  auto* keep = mask.mutable_data<std::uint8_t>();
  const auto threshold = static_cast<std::uint64_t>(std::nearbyint(p * 0x1p32));
  const std::int64_t count = mask.numel();
#pragma omp parallel for schedule(static) if (count > 16384)
  for (std::int64_t block = 0; block < (count + 3) / 4; ++block) {
    const auto words =
        philox({static_cast<std::uint32_t>(block), s.op ^ (static_cast<std::uint32_t>(block >> 32) << 24),
                static_cast<std::uint32_t>(s.step), static_cast<std::uint32_t>(s.step >> 32)},
               {static_cast<std::uint32_t>(s.seed), static_cast<std::uint32_t>(s.seed >> 32)});
    for (std::int64_t i = 4 * block; i < std::min(count, 4 * block + 4); ++i)
      keep[i] = words[static_cast<std::size_t>(i % 4)] >= threshold ? 1 : 0;
  }
  return mask.to(x.layout());
}

/// x * scale where kept, +0 elsewhere.
Tensor kept(const Tensor& x, const Tensor& mask, double scale) {
  Tensor y = detail::empty_like(x);
  if (!detail::computes(y)) return y;
  const auto* keep = mask.data<std::uint8_t>(mask.layout());
  detail::visit_float(x.dtype(), kDropout, [&]<class T>(T) {
    const T* in = x.data<T>(x.layout());
    T* out = y.mutable_data<T>(y.layout());
    const T by = static_cast<T>(scale);
#pragma omp parallel for simd schedule(static) if (x.numel() > cpu::parallel_elements)
    for (std::int64_t i = 0; i < x.numel(); ++i) out[i] = keep[i] != 0 ? in[i] * by : T{0};
  });
  return y;
}

}  // namespace

Variable dropout(const Variable& input, double p, bool training) {
  FQ_CHECK(p >= 0 && p <= 1, kDropout, "p is {}: use 0 to 1", p);
  FQ_CHECK(input.defined(), kDropout, "the input is undefined");
  if (!training || p == 0) return input;
  const auto x = detail::floats(input, kDropout);
  const double scale = p < 1 ? 1.0 / (1.0 - p) : 0.0;
  const Tensor mask = keep_mask(x.tensor, p, random_stream());
  if (detail::computes(x.tensor)) ++random_stream().op;
  const auto backward = [mask, scale](const Tensor& dy) {
    return std::vector<Tensor>{kept(dy, mask, scale)};
  };
  return detail::record(kDropout, kept(x.tensor, mask, scale), {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"p", p}};
                        }));
}

}  // namespace fq::ops
