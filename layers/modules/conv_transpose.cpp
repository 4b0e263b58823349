#include "fakequant/layers/modules/conv.h"

namespace fq {

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel,
                                 ops::ConvOptions options, Shape output_padding, bool bias)
    : Conv(in_channels, out_channels, kernel, 2, out_channels, bias, std::move(options)),
      output_padding_(std::move(output_padding)) {}

Variable ConvTranspose2d::apply(const Variable& x, const Variable& w) const {
  return ops::conv_transpose2d(x, w, bias_, options_, output_padding_);
}

}  // namespace fq
