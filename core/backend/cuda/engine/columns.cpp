#include "fakequant/core/backend/cuda/engine/columns.h"

namespace fq::cuda {

ColumnShape ColumnShape::of(const ConvShape& conv, std::int64_t step) {
  ColumnShape out{conv, 0};
  out.row = (out.products() + step - 1) / step * step;
  return out;
}

bool ColumnShape::trivial() const {
  return conv.kh == 1 && conv.kw == 1 && conv.stride == std::array<std::int64_t, 2>{1, 1} &&
         conv.padding == std::array<std::int64_t, 2>{0, 0} && row == products();
}

ColumnShape ColumnShape::images(std::int64_t count) const {
  ColumnShape out = *this;
  out.conv.n = count;
  return out;
}

}  // namespace fq::cuda
