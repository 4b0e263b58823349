#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/detail/attention_blocks.h"
#include "fakequant/core/ops/detail/constant_cache.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

constexpr std::string_view kRotary = "rotary";

/// Returns the angle per position of each pair.
std::vector<double> pair_frequencies(const Rotary& options, std::int64_t pairs) {
  if (!options.frequencies.empty()) return options.frequencies;
  std::vector<double> out;
  for (std::int64_t i = 0; i < pairs; ++i)
    out.push_back(std::pow(options.base, -static_cast<double>(i) / static_cast<double>(pairs)));
  return out;
}

struct AnglesKey {
  std::int64_t first, rows;
  double magnitude;
  std::vector<double> frequencies;
  DType dtype;
  bool operator==(const AnglesKey&) const = default;
};

/// Returns cosine and sine [rows, pairs, 2] of each angle, times the magnitude.
Tensor angles(const Rotary& options, std::int64_t rows, const std::vector<double>& frequencies,
              const Tensor& like) {
  if (like.device().is_meta()) return {};
  static auto& cache = *new detail::ConstantCache<AnglesKey>;
  return cache.get({options.first, rows, options.magnitude, frequencies, like.dtype()}, like.device(), [&] {
    Tensor table = Tensor::empty({rows, static_cast<std::int64_t>(frequencies.size()), 2}, DType::f64);
    auto* out = table.mutable_data<double>();
    for (std::int64_t r = 0; r < rows; ++r)
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(options.first + r) * frequency;
        *out++ = std::cos(angle) * options.magnitude;
        *out++ = std::sin(angle) * options.magnitude;
      }
    return table.to(like.dtype());
  });
}

/// Records the rotation of x [.., rows, width].
Variable record_rotation(const detail::Floats& x, const detail::Rotation& rotation, const Tensor& table,
                         Attributes attributes) {
  // The transpose of a rotation is the rotation by the negative angle. The magnitude is part of the table, so
  // backward reads the same table.
  const auto rotate = [table, rotation](const Tensor& from, bool back) {
    detail::Rotation turn = rotation;
    turn.back = back;
    const Tensor rows = from.to(Layout::row_major);
    Tensor y = detail::empty_like(rows);
    detail::run(y.device(), &detail::Kernels::rotate, rows, table, turn, y);
    return y;
  };
  const auto backward = [rotate](const Tensor& dy) { return std::vector<Tensor>{rotate(dy, true)}; };
  Variable y =
      detail::record(kRotary, rotate(x.tensor, false), {x.variable}, backward, std::move(attributes));
  if (detail::is_of_codes(x.variable)) y = detail::made_of_codes(y);
  const auto again = detail::recompute_function(x.variable);
  if (!again) return y;
  return detail::with_recompute(y,
                                [rotate, again] { return Value(rotate(std::get<Tensor>(again()), false)); });
}

}  // namespace

Variable rotary(const Variable& input, const Rotary& options) {
  const auto x = detail::floats(input, kRotary);
  const Tensor rows = x.tensor.to(Layout::row_major);
  FQ_CHECK(rows.rank() >= 2, kRotary, "the input is {}: use [.., L, D]", to_string(rows.shape()));
  const std::int64_t width = rows.dim(-1), dims = options.dims == 0 ? width : options.dims;
  FQ_CHECK(dims >= 0 && dims % 2 == 0 && dims <= width, kRotary,
           "{} of {} elements cannot be rotated: use an even number up to that", dims, width);
  FQ_CHECK(options.first >= 0 && options.base > 0 && options.magnitude > 0, kRotary,
           "first is {}, base {}, magnitude {}: use 0 or more, and above 0", options.first, options.base,
           options.magnitude);
  const auto given = static_cast<std::int64_t>(options.frequencies.size());
  FQ_CHECK(given == 0 || given == dims / 2, kRotary, "{} frequencies for {} pairs: use one for each", given,
           dims / 2);
  const auto frequencies = pair_frequencies(options, dims / 2);
  const auto attributes = [&] {
    return Attributes{{"frequencies", frequencies},
                      {"magnitude", options.magnitude},
                      {"first", options.first},
                      {"dims", dims},
                      {"interleaved", options.interleaved}};
  };
  return record_rotation(x, {rows.dim(-2), width, dims / 2, options.interleaved, false},
                         angles(options, rows.dim(-2), frequencies, rows), detail::traced(attributes));
}

}  // namespace fq::ops

namespace fq {

Variable detail::rotary_of_rows(const Variable& input, std::int64_t heads, std::int64_t width,
                                const ops::Rotary& options) {
  const auto x = floats(input, ops::kRotary);
  const Rotation rotation{x.tensor.dim(1), x.tensor.dim(2), width / 2, options.interleaved, false, heads};
  const auto frequencies = ops::pair_frequencies(options, rotation.pairs);
  return ops::record_rotation(x, rotation, ops::angles(options, rotation.rows, frequencies, x.tensor), {});
}

}  // namespace fq
