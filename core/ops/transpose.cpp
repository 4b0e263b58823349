#include "fakequant/core/cpu/permute.h"
#include "fakequant/core/cuda/permute.h"
#include "fakequant/core/ops/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kTranspose = "transpose";

Tensor permuted(const Tensor& x, const std::vector<int>& axes) {
  Shape shape;
  for (const int axis : axes) shape.push_back(x.dim(axis));
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  detail::run_on(x.device(), cpu::permute, cuda::permute, x, axes, y);
  return y;
}

/// The permutation with every axis from the front. Throws when it is none.
std::vector<int> checked(const std::vector<int>& axes, int rank) {
  FQ_CHECK(static_cast<int>(axes.size()) == rank, kTranspose,
           "{} axes are given, the input has {}: name each once", axes.size(), rank);
  std::vector<int> out;
  std::vector<bool> seen(axes.size(), false);
  for (const int axis : axes) {
    const int at = normalize_axis(axis, rank, kTranspose);
    FQ_CHECK(!seen[static_cast<std::size_t>(at)], kTranspose, "axis {} is named twice: name each once", axis);
    seen[static_cast<std::size_t>(at)] = true;
    out.push_back(at);
  }
  return out;
}

std::vector<int> inverse(const std::vector<int>& axes) {
  std::vector<int> out(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) out[static_cast<std::size_t>(axes[i])] = static_cast<int>(i);
  return out;
}

}  // namespace

Variable transpose(const Variable& x, const std::vector<int>& axes) {
  FQ_CHECK(x.defined(), kTranspose, "the input is undefined");
  const auto order = checked(axes, x.rank());
  auto attributes = detail::traced([&] {
    return Attributes{{"axes", std::vector<std::int64_t>(order.begin(), order.end())}};
  });
  const auto backward = [back = inverse(order)](const Tensor& dy) {
    return std::vector<Tensor>{permuted(dy, back)};
  };
  if (const auto* codes = x.quantized(); codes != nullptr && detail::is_movable(*codes))
    return detail::record(kTranspose, detail::with_codes(*codes, permuted(codes->codes, order)), {x},
                          backward, std::move(attributes));
  const auto floats = detail::floats(x, kTranspose);
  return detail::record(kTranspose, permuted(floats.tensor, order), {floats.variable}, backward,
                        std::move(attributes));
}

}  // namespace fq::ops
