#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

constexpr std::string_view kDropout = "dropout";

/// u8, 1 where an element is kept, in the layout of x.
Tensor keep_mask(const Tensor& x, double p, const RandomStream& stream) {
  Tensor mask = Tensor::empty(x.shape(), DType::u8, x.device());
  detail::run(x.device(), &detail::Kernels::keep_mask, detail::DropoutBlocks(p, stream), mask);
  return mask.to(x.layout());
}

Tensor kept(const Tensor& x, const Tensor& mask, double scale) {
  Tensor y = detail::empty_like(x);
  detail::run(x.device(), &detail::Kernels::keep, x, mask, scale, y);
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
  if (!x.tensor.device().is_meta()) ++random_stream().op;
  const auto backward = [mask, scale](const Tensor& dy) {
    return std::vector<Tensor>{kept(dy, mask, scale)};
  };
  return detail::record(kDropout, kept(x.tensor, mask, scale), {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"p", p}};
                        }));
}

}  // namespace fq::ops
