#include "fakequant/core/ops/conv.h"

#include <algorithm>
#include <array>

#include "fakequant/core/ops/detail/conv_geometry.h"
#include "fakequant/core/ops/detail/convolution.h"
#include "fakequant/core/ops/detail/volume_convolution.h"

namespace fq::ops {
namespace {

/// Leaves no padding to the convolution where that is not zeros on both sides alike.
Variable padded(const Variable& x, ConvOptions& o) {
  if (o.padding_mode == PadMode::constant && o.padding == o.padding_end) return x;
  std::vector<std::array<std::int64_t, 2>> sizes;
  for (std::size_t i = 0; i < o.padding.size(); ++i) sizes.push_back({o.padding[i], o.padding_end[i]});
  std::ranges::fill(o.padding, 0);
  return pad(x, sizes, o.padding_mode);
}

Variable conv(std::string_view name, const Variable& input, const Variable& w, const Variable& bias,
              const ConvOptions& given, int axes) {
  ConvOptions options = detail::full_options(given, axes, name);
  const Variable x = padded(input, options);
  Attributes attributes = recorder() != nullptr ? detail::attributes_of(options) : Attributes{};
  if (axes == 3) {
    const auto shape = detail::conv_shape_of_volumes(x.shape(), w.shape(), options, name);
    return detail::apply(std::make_shared<detail::VolumeConvolution>(name, shape, std::move(attributes)), x,
                         w, bias);
  }
  const auto shape = detail::conv_shape(x.shape(), w.shape(), options, name);
  return detail::apply(
      std::make_shared<detail::Convolution>(name, shape, false, axes + 2, w.shape(), std::move(attributes)),
      x, w, bias);
}

}  // namespace

Variable conv3d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv3d", x, w, bias, options, 3);
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv2d", x, w, bias, options, 2);
}

Variable conv1d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv1d", x, w, bias, options, 1);
}

}  // namespace fq::ops
