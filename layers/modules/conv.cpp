#include "fakequant/layers/modules/conv.h"

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/modules/detail/init.h"

namespace fq {
namespace {

// Returns the shape of the weight, [outer, inner / groups, kernel..]. A kernel of one size is a square or
// cube.
Shape conv_weight(std::int64_t outer, std::int64_t inner, std::int64_t groups, const Shape& kernel,
                  int rank) {
  FQ_CHECK(outer > 0 && inner > 0 && groups > 0 && outer % groups == 0 && inner % groups == 0, "conv",
           "{} and {} channels in {} groups: groups must divide both", inner, outer, groups);
  FQ_CHECK(static_cast<int>(kernel.size()) == rank || kernel.size() == 1, "conv",
           "the kernel {} does not have {} sizes", to_string(kernel), rank);
  Shape shape{outer, inner / groups};
  for (int i = 0; i < rank; ++i)
    shape.push_back(kernel[kernel.size() == 1 ? 0 : static_cast<std::size_t>(i)]);
  for (const auto size : shape)
    FQ_CHECK(size > 0, "conv", "the kernel {} has a size below 1", to_string(kernel));
  return shape;
}

}  // namespace

Conv::Conv(std::int64_t outer, std::int64_t inner, const Shape& kernel, int rank, std::int64_t out_channels,
           bool bias, ops::ConvOptions options)
    : options_(std::move(options)) {
  const Shape shape = conv_weight(outer, inner, options_.groups, kernel, rank);
  // PyTorch's initialization, also for transposed convolutions, whose axis 0 is the input.
  const std::int64_t fan_in = numel(shape) / shape[0];
  weight_ = add_parameter("weight", detail::init_uniform(shape, fan_in));
  if (bias) bias_ = add_parameter("bias", detail::init_uniform({out_channels}, fan_in));
}

Conv::Conv(Adopt, const Conv& other) : weight_(other.weight_), bias_(other.bias_), options_(other.options_) {
  adopt(other);
}

std::string Conv::describe() const {
  const Shape w = weight_.shape();
  auto text = fmt::format("weight {}, stride {}, padding {}", to_string(w), fmt::join(options_.stride, "x"),
                          fmt::join(options_.padding, "x"));
  if (!options_.padding_end.empty()) text += fmt::format(" and {}", fmt::join(options_.padding_end, "x"));
  if (options_.padding_mode != ops::PadMode::constant)
    text += fmt::format(", {}", name(options_.padding_mode));
  if (options_.groups != 1) text += fmt::format(", groups {}", options_.groups);
  return text + (bias_.defined() ? "" : ", no bias");
}

// Folding a batch norm needs a bias.
void Conv::ensure_bias() {
  if (!bias_.defined()) bias_ = add_parameter("bias", Tensor::zeros({out_channels()}));
}

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel, ops::ConvOptions options,
               bool bias)
    : Conv(out_channels, in_channels, kernel, 2, out_channels, bias, std::move(options)) {}

Variable Conv2d::apply(const Variable& x, const Variable& w) const {
  return ops::conv2d(x, w, bias_, options_);
}

Conv3d::Conv3d(std::int64_t in_channels, std::int64_t out_channels, Shape kernel, ops::ConvOptions options,
               bool bias)
    : Conv(out_channels, in_channels, kernel, 3, out_channels, bias, std::move(options)) {}

Variable Conv3d::apply(const Variable& x, const Variable& w) const {
  return ops::conv3d(x, w, bias_, options_);
}

Conv1d::Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
               ops::ConvOptions options, bool bias)
    : Conv(out_channels, in_channels, {kernel}, 1, out_channels, bias, std::move(options)) {}

Variable Conv1d::apply(const Variable& x, const Variable& w) const {
  return ops::conv1d(x, w, bias_, options_);
}

ConvTranspose::ConvTranspose(std::int64_t in_channels, std::int64_t out_channels, const Shape& kernel,
                             int rank, ops::ConvOptions options, Shape output_padding, bool bias)
    // As in PyTorch, the weight of a transposed convolution is [in, out / groups, kernel..].
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
