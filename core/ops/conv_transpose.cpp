#include "fakequant/core/ops/conv_transpose.h"

#include "fakequant/core/ops/conv_geometry.h"
#include "fakequant/core/ops/convolution.h"

namespace fq::ops {

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& given, const std::vector<std::int64_t>& output_padding) {
  constexpr std::string_view name = "conv_transpose2d";
  const ConvOptions options = detail::full_options(given, 2, name);
  const auto extra = detail::full_output_padding(output_padding, 2, name);
  detail::Convolution c{
      name, detail::conv_transpose_shape(x.shape(), w.shape(), options, extra, name), true, 4, {}};
  if (recorder() != nullptr) {
    c.attributes = detail::attributes_of(options);
    c.attributes.emplace_back("output_padding", extra);
  }
  return c.apply(x, w, bias);
}

}  // namespace fq::ops
