#include "fakequant/core/backend/cpu/ranges/answers.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

template <class T>
std::int64_t answer_of(const T* row, std::int64_t classes) {
  if (std::any_of(row, row + classes, [](T value) { return std::isnan(value); })) return -1;
  return std::max_element(row, row + classes) - row;
}

}  // namespace

void answers(const Tensor& scores, Tensor& out) {
  const std::int64_t classes = scores.dim(1);
  auto* found = out.mutable_data<std::int64_t>();
  fq::detail::visit_float(scores.dtype(), "answers", [&]<class T>(T) {
    const T* rows = scores.data<T>();
    for (std::int64_t n = 0; n < out.numel(); ++n) found[n] = answer_of(rows + n * classes, classes);
  });
}

}  // namespace fq::cpu
