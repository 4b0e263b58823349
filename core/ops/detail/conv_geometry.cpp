#include "fakequant/core/ops/detail/conv_geometry.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

using Numbers = std::vector<std::int64_t>;
constexpr std::int64_t kLargest = 1 << 24;  // of strides, paddings, dilations: avoids overflow of sizes

// Returns one number per axis. A single number applies to all axes, none means `fallback`.
Numbers one_an_axis(const Numbers& given, std::int64_t fallback, int axes, std::int64_t least,
                    std::string_view what, std::string_view function) {
  Numbers all = given;
  if (all.empty()) all = {fallback};
  if (all.size() == 1) all.resize(static_cast<std::size_t>(axes), all[0]);
  FQ_CHECK(static_cast<int>(all.size()) == axes, function, "{} has {} numbers: use {} or one", what,
           given.size(), axes);
  for (const auto value : all)
    FQ_CHECK(least <= value && value <= kLargest, function, "{} is {}: it must be {} to {}", what, value,
             least, kLargest);
  return all;
}

/// Returns the last two numbers (height, width). A single number is the width.
std::array<std::int64_t, 2> pair(const Numbers& numbers, std::int64_t height) {
  if (numbers.size() == 1) return {height, numbers[0]};
  return {numbers[numbers.size() - 2], numbers.back()};
}

/// Returns advice on which convolution takes an input of this rank.
std::string_view rank_advice(std::size_t rank) {
  if (rank == 3)
    return ": conv1d takes signals [N, C, L], and images [N, H, W] need an axis of channels, [N, 1, H, W]";
  if (rank == 5) return ": conv3d takes volumes [N, C, D, H, W]";
  return rank == 4 ? ": conv2d takes images [N, C, H, W]" : "";
}

void check_ranks(const Shape& x, const Shape& w, int axes, std::string_view function) {
  const auto rank = static_cast<std::size_t>(axes + 2);
  FQ_CHECK(x.size() == rank, function, "the input is {}, of {} axes, and must have {}{}", to_string(x),
           x.size(), rank, rank_advice(x.size()));
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

// Returns the extent of a dilated kernel in input elements.
std::int64_t reach(std::int64_t kernel, std::int64_t dilation) { return (kernel - 1) * dilation + 1; }

/// Returns the number of kernel positions along each axis of the image. Checks the channels.
Numbers positions(const Shape& x, const Shape& w, const ops::ConvOptions& o, std::string_view function) {
  check_ranks(x, w, static_cast<int>(o.stride.size()), function);
  check_groups(o.groups, x[1], "input", function);
  check_groups(o.groups, w[0], "output", function);
  FQ_CHECK(x[1] == w[1] * o.groups, function,
           "the input {} has {} channels, the weight {} with groups {} expects {}", to_string(x), x[1],
           to_string(w), o.groups, w[1] * o.groups);
  Numbers reaches, sizes, out;
  bool fits = true;
  for (std::size_t i = 0; i < o.stride.size(); ++i) {
    reaches.push_back(reach(w[2 + i], o.dilation[i]));
    sizes.push_back(x[2 + i] + 2 * o.padding[i]);
    fits = fits && x[2 + i] > 0 && sizes[i] >= reaches[i];
    out.push_back((sizes[i] - reaches[i]) / o.stride[i] + 1);
  }
  FQ_CHECK(fits, function,
           "the kernel reaches over {} pixels, the padded input {} has {}: pad more, or give larger images",
           fmt::join(reaches, " x "), to_string(x), fmt::join(sizes, " x "));
  return out;
}

/// Returns the output sizes of a transposed convolution. Checks the channels.
Numbers transposed_sizes(const Shape& x, const Shape& w, const ops::ConvOptions& o, const Numbers& extra,
                         std::string_view function) {
  check_ranks(x, w, static_cast<int>(o.stride.size()), function);
  check_groups(o.groups, x[1], "input", function);
  FQ_CHECK(x[1] == w[0], function, "the input {} has {} channels, the weight {} expects {}", to_string(x),
           x[1], to_string(w), w[0]);
  Numbers out;
  bool fits = true;
  for (std::size_t i = 0; i < o.stride.size(); ++i) {
    FQ_CHECK(extra[i] < o.stride[i], function, "output_padding is {}: it must be less than the stride {}",
             extra[i], o.stride[i]);
    // The inverse of the formula in `positions`, as in torch.nn.ConvTranspose. Several input sizes give one
    // output size; `extra` (output_padding) selects among them.
    out.push_back((x[2 + i] - 1) * o.stride[i] - 2 * o.padding[i] + reach(w[2 + i], o.dilation[i]) +
                  extra[i]);
    fits = fits && x[2 + i] > 0 && out[i] > 0;
  }
  FQ_CHECK(fits, function, "the input {} gives an output of {} pixels: pad less, or give larger images",
           to_string(x), fmt::join(out, " x "));
  return out;
}

}  // namespace

ops::ConvOptions full_options(const ops::ConvOptions& options, int axes, std::string_view function) {
  const auto& end = options.padding_end.empty() ? options.padding : options.padding_end;
  return {one_an_axis(options.stride, 1, axes, 1, "stride", function),
          one_an_axis(options.padding, 0, axes, 0, "padding", function),
          one_an_axis(options.dilation, 1, axes, 1, "dilation", function),
          options.groups,
          one_an_axis(end, 0, axes, 0, "padding_end", function),
          options.padding_mode};
}

Numbers full_output_padding(const Numbers& given, int axes, std::string_view function) {
  return one_an_axis(given, 0, axes, 0, "output_padding", function);
}

Attributes conv_attributes(const ops::ConvOptions& options) {
  return {{"stride", options.stride},
          {"padding", options.padding},
          {"dilation", options.dilation},
          {"groups", options.groups}};
}

ConvShape conv_shape(const Shape& x3, const Shape& w3, const ops::ConvOptions& options,
                     std::string_view function) {
  const auto out = pair(positions(x3, w3, options, function), 1);
  const Shape x = lifted(x3), w = lifted(w3);
  return with_options({x[0], x[1], x[2], x[3], w[0], w[2], w[3], out[0], out[1]}, options);
}

ConvShape conv_transpose_shape(const Shape& x3, const Shape& w3, const ops::ConvOptions& options,
                               const Numbers& output_padding, std::string_view function) {
  const auto out = pair(transposed_sizes(x3, w3, options, output_padding, function), 1);
  const Shape x = lifted(x3), w = lifted(w3);
  // Swaps input and output: the kernels compute a transposed convolution as the input gradient of this one.
  return with_options({x[0], w[1] * options.groups, out[0], out[1], x[1], w[2], w[3], x[2], x[3]}, options);
}

// Padding along the depth is part of the gather below (index -1 reads a zero slab), so the plane has only the
// padding of its height and width.
VolumeShape conv_shape_of_volumes(const Shape& x, const Shape& w, const ops::ConvOptions& options,
                                  std::string_view function) {
  const Numbers out = positions(x, w, options, function);
  VolumeShape s{{}, x[0], x[2], out[0], w[2], {}, w, false};
  s.plane = with_options({x[0] * out[0], x[1] * w[2], x[3], x[4], w[0], w[3], w[4], out[1], out[2]}, options);
  for (std::int64_t slab = 0; slab < s.slabs; ++slab)
    for (std::int64_t tap = 0; tap < s.taps; ++tap) {
      // Negative indices in the front padding already mean zeros.
      const std::int64_t d = slab * options.stride[0] - options.padding[0] + tap * options.dilation[0];
      s.from.push_back(d < s.depth ? d : -1);
    }
  return s;
}

VolumeShape conv_transpose_shape_of_volumes(const Shape& x, const Shape& w, const ops::ConvOptions& options,
                                            const Numbers& output_padding, std::string_view function) {
  const Numbers out = transposed_sizes(x, w, options, output_padding, function);
  VolumeShape s{{}, x[0], x[2], out[0], w[2], {}, w, true};
  s.plane = with_options(
      {x[0] * out[0], w[1] * options.groups, out[1], out[2], x[1] * w[2], w[3], w[4], x[3], x[4]}, options);
  for (std::int64_t slab = 0; slab < s.slabs; ++slab)
    for (std::int64_t tap = 0; tap < s.taps; ++tap) {
      // Input slab d adds tap t to output slab d * stride - padding + t * dilation. Solved for d; there is
      // none if the stride does not divide.
      const std::int64_t at = slab + options.padding[0] - tap * options.dilation[0];
      const std::int64_t d = at / options.stride[0];
      s.from.push_back(at >= 0 && at % options.stride[0] == 0 && d < s.depth ? d : -1);
    }
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
