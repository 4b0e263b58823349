#include <algorithm>
#include <cmath>

#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/text.h"

namespace fq::cpu {
namespace {

/// Returns the index of the largest score, or -1 if a score is NaN.
template <class T>
std::int64_t predicted_class(const T* scores, std::int64_t classes) {
  // max_element would skip a NaN that is not first.
  if (std::any_of(scores, scores + classes, [](T value) { return std::isnan(value); })) return -1;
  return std::max_element(scores, scores + classes) - scores;
}

}  // namespace

void check_whole(const Tensor& values, std::string_view function, std::string_view what) {
  const auto* v = values.data<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    FQ_CHECK(v[i] == std::floor(v[i]), function, "{} {} of {} is {}: use whole numbers", what, i,
             values.numel(), v[i]);
}

void check_indices(const Tensor& values, std::int64_t size, std::optional<std::int64_t> allowed,
                   std::string_view function, std::string_view what) {
  const auto* v = values.data<std::int64_t>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    FQ_CHECK((v[i] >= 0 && v[i] < size) || v[i] == allowed, function, "{} {} of {} is {}: {}", what, i,
             values.numel(), v[i], detail::allowed_indices(size));
}

void gather_rows(const Tensor& ids, const Tensor& table, Tensor& y) {
  const auto* id = ids.data<std::int64_t>();
  const std::int64_t width = table.dim(1);
  detail::visit_float(table.dtype(), "rows", [&]<class T>(T) {
    const T* from = table.data<T>();
    T* out = y.mutable_data<T>();
    detail::parallel_for(ids.numel(), y.numel() > 32768,
                         // The ids have been checked by check_indices.
                         [&](std::int64_t i) { std::copy_n(from + id[i] * width, width, out + i * width); });
  });
}

void sum_rows(const Tensor& ids, const Tensor& x, Tensor& table) {
  const auto* id = ids.data<std::int64_t>();
  const std::int64_t width = table.dim(1);
  detail::visit_float(table.dtype(), "rows", [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = table.mutable_data<T>();
    std::fill_n(out, table.numel(), T{0});
    // Sequential over ids: ids may repeat, and the order of additions is part of the result.
    for (std::int64_t i = 0; i < ids.numel(); ++i)
#pragma omp simd
      for (std::int64_t d = 0; d < width; ++d) out[id[i] * width + d] += in[i * width + d];
  });
}

void one_hot(const Tensor& labels, const AxisView& view, Tensor& out) {
  const auto* label = labels.data<std::int64_t>();
  auto* to = out.mutable_data<float>();
  std::fill_n(to, out.numel(), 0.0f);
  for (std::int64_t o = 0; o < view.outer; ++o)
    for (std::int64_t i = 0; i < view.inner; ++i)
      to[(o * view.size + label[o * view.inner + i]) * view.inner + i] = 1.0f;
}

void predictions(const Tensor& scores, Tensor& out) {
  const std::int64_t classes = scores.dim(1);
  auto* found = out.mutable_data<std::int64_t>();
  detail::visit_float(scores.dtype(), "predictions", [&]<class T>(T) {
    const T* rows = scores.data<T>();
    for (std::int64_t n = 0; n < out.numel(); ++n) found[n] = predicted_class(rows + n * classes, classes);
  });
}

}  // namespace fq::cpu
