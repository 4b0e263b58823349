#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/ops/detail/conv_geometry.h"
#include "fakequant/core/ops/detail/convolution.h"
#include "fakequant/core/ops/detail/volume_convolution.h"

namespace fq::ops {
namespace {

using Numbers = std::vector<std::int64_t>;

Variable conv_transpose(std::string_view name, const Variable& x, const Variable& w, const Variable& bias,
                        const ConvOptions& given, const Numbers& output_padding, int axes) {
  const ConvOptions options = detail::full_options(given, axes, name);
  FQ_CHECK(options.padding_mode == PadMode::constant && options.padding == options.padding_end, name,
           "its padding cuts the output off, on both sides alike: leave padding_mode and padding_end out");
  const auto extra = detail::full_output_padding(output_padding, axes, name);
  Attributes attributes;
  if (recorder() != nullptr) {
    attributes = detail::attributes_of(options);
    attributes.emplace_back("output_padding", extra);
  }
  if (axes == 3) {
    const auto shape = detail::conv_transpose_shape_of_volumes(x.shape(), w.shape(), options, extra, name);
    return detail::apply(std::make_shared<detail::VolumeConvolution>(name, shape, std::move(attributes)), x,
                         w, bias);
  }
  const auto shape = detail::conv_transpose_shape(x.shape(), w.shape(), options, extra, name);
  return detail::apply(
      std::make_shared<detail::Convolution>(name, shape, true, axes + 2, w.shape(), std::move(attributes)), x,
      w, bias);
}

}  // namespace

Variable conv_transpose1d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& options, const Numbers& output_padding) {
  return conv_transpose("conv_transpose1d", x, w, bias, options, output_padding, 1);
}

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& options, const Numbers& output_padding) {
  return conv_transpose("conv_transpose2d", x, w, bias, options, output_padding, 2);
}

Variable conv_transpose3d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& options, const Numbers& output_padding) {
  return conv_transpose("conv_transpose3d", x, w, bias, options, output_padding, 3);
}

}  // namespace fq::ops
