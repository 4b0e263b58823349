#include "fakequant/layers/modules/conv.h"

namespace fq {

ConvTranspose::ConvTranspose(std::int64_t in_channels, std::int64_t out_channels, const Shape& kernel,
                             int rank, ops::ConvOptions options, Shape output_padding, bool bias)
    : Conv(in_channels, out_channels, kernel, rank, out_channels, bias, std::move(options)),
      output_padding_(std::move(output_padding)) {}

ConvTranspose1d::ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
                                 ops::ConvOptions options, std::int64_t output_padding, bool bias)
    : ConvTranspose(in_channels, out_channels, {kernel}, 1, std::move(options), {output_padding}, bias) {}

Variable ConvTranspose1d::apply(const Variable& x, const Variable& w) const {
  return ops::conv_transpose1d(x, w, bias_, options_, output_padding_);
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel,
                                 ops::ConvOptions options, Shape output_padding, bool bias)
    : ConvTranspose(in_channels, out_channels, kernel, 2, std::move(options), std::move(output_padding),
                    bias) {}

Variable ConvTranspose2d::apply(const Variable& x, const Variable& w) const {
  return ops::conv_transpose2d(x, w, bias_, options_, output_padding_);
}

ConvTranspose3d::ConvTranspose3d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel,
                                 ops::ConvOptions options, Shape output_padding, bool bias)
    : ConvTranspose(in_channels, out_channels, kernel, 3, std::move(options), std::move(output_padding),
                    bias) {}

Variable ConvTranspose3d::apply(const Variable& x, const Variable& w) const {
  return ops::conv_transpose3d(x, w, bias_, options_, output_padding_);
}

}  // namespace fq
