#include "fakequant/core/ops/conv.h"
#include "fakequant/core/ops/detail/conv_geometry.h"
#include "fakequant/core/ops/detail/convolution.h"

namespace fq::ops {

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& given, const std::vector<std::int64_t>& output_padding) {
  constexpr std::string_view name = "conv_transpose2d";
  const ConvOptions options = detail::full_options(given, 2, name);
  const auto extra = detail::full_output_padding(output_padding, 2, name);
  const auto shape = detail::conv_transpose_shape(x.shape(), w.shape(), options, extra, name);
  Attributes attributes;
  if (recorder() != nullptr) {
    attributes = detail::attributes_of(options);
    attributes.emplace_back("output_padding", extra);
  }
  return detail::apply(
      std::make_shared<detail::Convolution>(name, shape, true, 4, w.shape(), std::move(attributes)), x, w,
      bias);
}

}  // namespace fq::ops
