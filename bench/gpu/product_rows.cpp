#include <fmt/format.h>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/gpu/rows.h"
#include "fakequant/bench/gpu/timer.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/ops/detail/product.h"

namespace fq::bench {
namespace {

using detail::Codes;
using detail::ConvShape;

constexpr double kTwiceACopy = 2;  // of the same bytes: products that move little more than their factors

ConvShape depthwise(std::int64_t images) {
  ConvShape shape{images, 96, 56, 56, 96, 3, 3, 56, 56, {1, 1}, {1, 1}};
  shape.groups = 96;
  return shape;
}

Tensor byte_codes(const Shape& shape) {
  Tensor out = Tensor::empty(shape, DType::i8, Device::cpu(),
                             shape.size() == 4 ? Layout::channels_last : Layout::row_major);
  auto* codes = static_cast<std::int8_t*>(out.mutable_raw());
  for (std::int64_t i = 0; i < out.numel(); ++i) codes[i] = static_cast<std::int8_t>(i * 37 % 251 - 125);
  return out;
}
Codes codes(const Tensor& x) { return {x.raw(), x.dtype(), 128}; }

Tensor conv_sums(const ConvShape& s, bool transposed, const Tensor& x, const Tensor& w) {
  Tensor sums =
      Tensor::empty(transposed ? s.x_shape() : s.y_shape(), DType::i32, x.device(), Layout::channels_last);
  detail::run(x.device(), &detail::Kernels::exact_conv, s, transposed, codes(x), codes(w), sums);
  return sums;
}

/// Times a convolution of `images` codes against a copy of the codes and sums. One image is checked.
GpuRow code_row(std::string name, std::int64_t images, const std::function<ConvShape(std::int64_t)>& shape,
                bool transposed) {
  GpuRow row{std::move(name), kTwiceACopy, {}};
  row.make = [=](Device device, std::int64_t) {
    const ConvShape s = shape(images), one = shape(1);
    const Tensor x = byte_codes(transposed ? s.y_shape() : s.x_shape()).to(device),
                 w = byte_codes(s.w_shape());
    const Tensor there = w.to(device);
    const auto bytes = static_cast<double>(numel(s.x_shape())) * (transposed ? 4 : 1) +
                       static_cast<double>(numel(s.y_shape())) * (transposed ? 1 : 4);
    GpuRow::Work work;
    work.ours = [=] { (void)conv_sums(s, transposed, x, there); };
    work.theirs = device_copy(device, static_cast<std::int64_t>(bytes / 2));
    work.check = [=] {
      const Tensor few = byte_codes(transposed ? one.y_shape() : one.x_shape());
      const Tensor right = conv_sums(one, transposed, few, w),
                   got = conv_sums(one, transposed, few.to(device), there);
      return bitwise_equal(got, right) ? "" : "the CPU's sums differ";
    };
    work.bytes = bytes;
    return work;
  };
  return row;
}

enum class Pass { forward, data, weights };

GpuRow float_row(std::string name, DType dtype, Pass pass) {
  GpuRow row{std::move(name), kTwiceACopy, {}};
  row.make = [=](Device device, std::int64_t) {
    const ConvShape s = depthwise(64);
    const Tensor x = bell(s.x_shape(), 1).to(Layout::channels_last).to(dtype).to(device);
    const Tensor w = bell(s.w_shape(), 2).to(dtype).to(device);
    const double own = bit_width(dtype) / 8.0, per_element = pass == Pass::weights ? 2 * own : own + 4;
    GpuRow::Work work;
    work.bytes = per_element * static_cast<double>(x.numel());  // y has the same number of elements
    work.theirs = device_copy(device, static_cast<std::int64_t>(work.bytes / 2));
    work.ours = [=] {
      if (pass == Pass::forward) (void)detail::conv_y(s, x, w);
      if (pass == Pass::data) (void)detail::conv_dx(s, x, w);
      if (pass == Pass::weights) (void)detail::conv_dw(s, x, x);
    };
    work.check = [] { return std::string(); };  // sums of floats have an order of their own
    return work;
  };
  return row;
}

}  // namespace

std::vector<GpuRow> gpu_product_rows() {
  std::vector<GpuRow> rows;
  rows.push_back(code_row("product.depthwise_codes/copy", 64, depthwise, false));
  rows.push_back(code_row("product.depthwise_codes_transposed/copy", 64, depthwise, true));
  rows.push_back(code_row(
      "product.codes_16_outputs/copy", 512,
      [](std::int64_t images) { return ConvShape{images, 144, 32, 32, 16, 1, 1, 32, 32}; }, false));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    rows.push_back(float_row(fmt::format("product.depthwise.{}/copy", name(dtype)), dtype, Pass::forward));
    rows.push_back(float_row(fmt::format("product.depthwise_dx.{}/copy", name(dtype)), dtype, Pass::data));
    rows.push_back(float_row(fmt::format("product.depthwise_dw.{}/copy", name(dtype)), dtype, Pass::weights));
  }
  return rows;
}

}  // namespace fq::bench
