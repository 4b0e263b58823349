#include "fakequant/core/backend/cuda/engine/columns.h"

namespace fq::cuda {

ColumnShape ColumnShape::of(const ConvShape& conv, std::int64_t step, bool computes_dx) {
  ColumnShape out{conv, 0, computes_dx};
  out.row = (out.products() + step - 1) / step * step;
  return out;
}

ColumnShape ColumnShape::float_shape(const ConvShape& conv, int bytes, bool computes_dx) {
  const auto shape = of(conv, 1, computes_dx);
  // cuBLASLt is faster with rows that begin at 16 bytes. Padding pays only where columns are copied anyway.
  return shape.trivial() || conv.groups != 1 ? shape : of(conv, 16 / bytes, computes_dx);
}

// Pixel p of dx is reached by tap k of window (p + padding - k * dilation) / stride. With stride 1 this is a
// convolution of dy with reversed taps and padding dilation * (taps - 1) - padding.
std::optional<ConvShape> ColumnShape::gradient_conv(const ConvShape& conv) {
  const auto padding = [&](std::int64_t taps, std::size_t axis) {
    return conv.dilation[axis] * (taps - 1) - conv.padding[axis];
  };
  ConvShape out{conv.n, conv.o, conv.oh, conv.ow, conv.c, conv.kh, conv.kw, conv.h, conv.w};
  out.padding = {padding(conv.kh, 0), padding(conv.kw, 1)};
  out.dilation = conv.dilation;
  out.groups = conv.groups;
  const bool whole = conv.stride == std::array<std::int64_t, 2>{1, 1};
  return whole && out.padding[0] >= 0 && out.padding[1] >= 0 ? std::optional(out) : std::nullopt;
}

bool ColumnShape::packed(std::int64_t outputs) const {
  return conv.kh == 1 && conv.kw == 1 && !computes_dx && row == products() && outputs == group_outputs();
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
