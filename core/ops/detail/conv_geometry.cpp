#include "fakequant/core/ops/detail/conv_geometry.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

using Numbers = std::vector<std::int64_t>;
constexpr std::int64_t kLargest = 1 << 24;  // of strides, paddings, dilations: sizes stay far from overflow

Numbers one_an_axis(const Numbers& given, std::int64_t fallback, int axes, std::int64_t least,
                    std::string_view what, std::string_view function) {
  Numbers all = given;
  if (all.empty()) all = {fallback};
  if (all.size() == 1) all.resize(static_cast<std::size_t>(axes), all[0]);
  FQ_CHECK(static_cast<int>(all.size()) == axes, function, "{} has {} numbers: give {} or one", what,
           given.size(), axes);
  for (const auto value : all)
    FQ_CHECK(least <= value && value <= kLargest, function, "{} is {}: it must be {} to {}", what, value,
             least, kLargest);
  return all;
}

/// The pair (height, width); a single number is the width's.
std::array<std::int64_t, 2> pair(const Numbers& numbers, std::int64_t height) {
  if (numbers.size() == 1) return {height, numbers[0]};
  return {numbers[0], numbers[1]};
}

/// What takes an input of so many axes.
std::string_view way_of_rank(std::size_t rank) {
  if (rank == 3)
    return ": conv1d takes signals [N, C, L], and images [N, H, W] need an axis of channels, [N, 1, H, W]";
  return rank == 4 ? ": conv2d takes images [N, C, H, W]" : "";
}

void check_ranks(const Shape& x, const Shape& w, int axes, std::string_view function) {
  const auto rank = static_cast<std::size_t>(axes + 2);
  FQ_CHECK(x.size() == rank, function, "the input is {}, of {} axes, and must have {}{}", to_string(x),
           x.size(), rank, way_of_rank(x.size()));
  FQ_CHECK(w.size() == rank, function, "the weight is {}, of {} axes, and must have {}", to_string(w),
           w.size(), rank);
  FQ_CHECK(std::ranges::all_of(w, [](auto size) { return size > 0; }), function, "the weight {} is empty",
           to_string(w));
}

void check_groups(std::int64_t groups, std::int64_t channels, std::string_view what,
                  std::string_view function) {
  FQ_CHECK(groups >= 1 && channels % groups == 0, function, "groups is {}: it must divide the {} {} channels",
           groups, channels, what);
}

ConvShape with_options(ConvShape s, const ops::ConvOptions& options) {
  s.stride = pair(options.stride, 1);
  s.padding = pair(options.padding, 0);
  s.dilation = pair(options.dilation, 1);
  s.groups = options.groups;
  return s;
}

std::int64_t reach(std::int64_t kernel, std::int64_t dilation) { return (kernel - 1) * dilation + 1; }

}  // namespace

ops::ConvOptions full_options(const ops::ConvOptions& options, int axes, std::string_view function) {
  return {one_an_axis(options.stride, 1, axes, 1, "stride", function),
          one_an_axis(options.padding, 0, axes, 0, "padding", function),
          one_an_axis(options.dilation, 1, axes, 1, "dilation", function), options.groups};
}

Numbers full_output_padding(const Numbers& given, int axes, std::string_view function) {
  return one_an_axis(given, 0, axes, 0, "output_padding", function);
}

Attributes attributes_of(const ops::ConvOptions& options) {
  return {{"stride", options.stride},
          {"padding", options.padding},
          {"dilation", options.dilation},
          {"groups", options.groups}};
}

ConvShape conv_shape(const Shape& x3, const Shape& w3, const ops::ConvOptions& options,
                     std::string_view function) {
  check_ranks(x3, w3, static_cast<int>(options.stride.size()), function);
  const Shape x = lifted(x3), w = lifted(w3);
  check_groups(options.groups, x[1], "input", function);
  check_groups(options.groups, w[0], "output", function);
  FQ_CHECK(x[1] == w[1] * options.groups, function,
           "the input {} has {} channels, the weight {} with groups {} takes {}", to_string(x3), x[1],
           to_string(w3), options.groups, w[1] * options.groups);
  auto s = with_options({x[0], x[1], x[2], x[3], w[0], w[2], w[3], 0, 0}, options);
  const std::int64_t high = s.h + 2 * s.padding[0] - reach(s.kh, s.dilation[0]);
  const std::int64_t wide = s.w + 2 * s.padding[1] - reach(s.kw, s.dilation[1]);
  FQ_CHECK(s.h > 0 && s.w > 0 && high >= 0 && wide >= 0, function,
           "the kernel reaches over {} x {} pixels, the padded input {} has {} x {}: pad more, or give "
           "larger images",
           reach(s.kh, s.dilation[0]), reach(s.kw, s.dilation[1]), to_string(x3), s.h + 2 * s.padding[0],
           s.w + 2 * s.padding[1]);
  s.oh = high / s.stride[0] + 1;
  s.ow = wide / s.stride[1] + 1;
  return s;
}

ConvShape conv_transpose_shape(const Shape& x3, const Shape& w3, const ops::ConvOptions& options,
                               const Numbers& output_padding, std::string_view function) {
  const int axes = static_cast<int>(options.stride.size());
  check_ranks(x3, w3, axes, function);
  const auto extra = pair(output_padding, 0);
  const Shape x = lifted(x3), w = lifted(w3);
  check_groups(options.groups, x[1], "input", function);
  FQ_CHECK(x[1] == w[0], function, "the input {} has {} channels, the weight {} takes {}", to_string(x3),
           x[1], to_string(w3), w[0]);
  auto s = with_options({x[0], w[1] * options.groups, 0, 0, x[1], w[2], w[3], x[2], x[3]}, options);
  for (std::size_t i = 0; i < 2; ++i)
    FQ_CHECK(extra[i] < s.stride[i], function, "output_padding is {}: it must be less than the stride {}",
             extra[i], s.stride[i]);
  s.h = (s.oh - 1) * s.stride[0] - 2 * s.padding[0] + reach(s.kh, s.dilation[0]) + extra[0];
  s.w = (s.ow - 1) * s.stride[1] - 2 * s.padding[1] + reach(s.kw, s.dilation[1]) + extra[1];
  FQ_CHECK(s.oh > 0 && s.ow > 0 && s.h > 0 && s.w > 0, function,
           "the input {} gives an output of {} x {} pixels: pad less, or give larger images", to_string(x3),
           s.h, s.w);
  return s;
}

Shape lifted(const Shape& shape) {
  return shape.size() == 3 ? Shape{shape[0], shape[1], 1, shape[2]} : shape;
}

Tensor lift(const Tensor& x) {
  return (x.rank() == 3 ? x.reshape(lifted(x.shape())) : x).to(Layout::channels_last);
}

Tensor lower(const Tensor& x, int rank) {
  if (rank == 4) return x;
  return x.to(Layout::row_major).reshape({x.dim(0), x.dim(1), x.dim(3)});
}

Tensor lift_weights(const Tensor& w) {
  const Tensor rows = w.to(Layout::row_major);
  return w.rank() == 3 ? rows.reshape(lifted(w.shape())) : rows;
}

}  // namespace fq::detail
