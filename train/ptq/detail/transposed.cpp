#include "fakequant/train/ptq/detail/transposed.h"

namespace fq::ptq {

Tensor transposed(const Tensor& x, std::int64_t columns) {
  const std::int64_t rows = x.numel() / columns;
  Tensor out = Tensor::empty({columns, rows});
  const auto* from = x.data<float>();
  auto* to = out.mutable_data<float>();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  return out;
}

}  // namespace fq::ptq
