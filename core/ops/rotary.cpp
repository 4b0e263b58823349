#include <cmath>

#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

constexpr std::string_view kRotary = "rotary";

/// Cosine and sine [rows, pairs, 2] of each angle.
Tensor angles(const Rotary& options, std::int64_t rows, std::int64_t pairs, const Tensor& like) {
  Tensor table = Tensor::empty({rows, pairs, 2}, DType::f64);
  if (like.device().is_meta()) return {};
  auto* out = table.mutable_data<double>();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double frequency = std::pow(options.base, -static_cast<double>(i) / static_cast<double>(pairs));
      const double angle = static_cast<double>(options.first + r) * frequency;
      *out++ = std::cos(angle);
      *out++ = std::sin(angle);
    }
  return table.to(like.dtype()).to(like.device());
}

}  // namespace

Variable rotary(const Variable& input, const Rotary& options) {
  const auto x = detail::floats(input, kRotary);
  const Tensor rows = x.tensor.to(Layout::row_major);
  FQ_CHECK(rows.rank() >= 2, kRotary, "the input is {}: give [.., L, D]", to_string(rows.shape()));
  const std::int64_t width = rows.dim(-1), dims = options.dims == 0 ? width : options.dims;
  FQ_CHECK(dims >= 0 && dims % 2 == 0 && dims <= width, kRotary,
           "{} of {} elements cannot be rotated: use an even number up to that", dims, width);
  FQ_CHECK(options.first >= 0 && options.base > 0, kRotary,
           "first is {}, base {}: use 0 or more, and above 0", options.first, options.base);
  const detail::Rotation there{rows.dim(-2), width, dims / 2, options.interleaved, false};
  const Tensor table = angles(options, there.rows, there.pairs, rows);
  const auto turn = [table](const Tensor& from, const detail::Rotation& rotation) {
    Tensor y = detail::empty_like(from);
    detail::run(y.device(), &detail::Kernels::rotate, from, table, rotation, y);
    return y;
  };
  const auto backward = [turn, there](const Tensor& dy) {
    detail::Rotation back = there;
    back.back = true;
    return std::vector<Tensor>{turn(dy.to(Layout::row_major), back)};
  };
  return detail::record(kRotary, turn(rows, there), {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"base", options.base},
                                            {"first", options.first},
                                            {"dims", dims},
                                            {"interleaved", options.interleaved}};
                        }));
}

}  // namespace fq::ops
