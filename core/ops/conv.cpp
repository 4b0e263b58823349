#include "fakequant/core/ops/conv.h"

#include "fakequant/core/ops/detail/conv_geometry.h"
#include "fakequant/core/ops/detail/convolution.h"

namespace fq::ops {
namespace {

Variable conv(std::string_view name, const Variable& x, const Variable& w, const Variable& bias,
              const ConvOptions& given, int axes) {
  const ConvOptions options = detail::full_options(given, axes, name);
  const auto shape = detail::conv_shape(x.shape(), w.shape(), options, name);
  Attributes attributes = recorder() != nullptr ? detail::attributes_of(options) : Attributes{};
  return detail::apply(
      std::make_shared<detail::Convolution>(name, shape, false, axes + 2, w.shape(), std::move(attributes)),
      x, w, bias);
}

}  // namespace

Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv2d", x, w, bias, options, 2);
}

Variable conv1d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv1d", x, w, bias, options, 1);
}

}  // namespace fq::ops
