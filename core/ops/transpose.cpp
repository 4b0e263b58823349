#include "fakequant/core/ops/detail/move.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kTranspose = "transpose";

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

}  // namespace

Variable transpose(const Variable& x, const std::vector<int>& axes) {
  FQ_CHECK(x.defined(), kTranspose, "the input is undefined");
  const PermuteMove move{checked(axes, x.rank())};
  auto attributes = detail::traced([&] {
    return Attributes{{"axes", std::vector<std::int64_t>(move.axes.begin(), move.axes.end())}};
  });
  return detail::record_move(kTranspose, x, move, std::move(attributes));
}

}  // namespace fq::ops
