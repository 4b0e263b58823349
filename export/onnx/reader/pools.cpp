#include <algorithm>

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

constexpr std::int64_t kMostTaps = 256;  // taps of a dilated window along one axis

/// Returns a value to pool. Layers pool images and volumes, so a sequence [N, C, L] becomes an image of
/// height 1.
ImportValue pool_input(const OpImport& op) {
  const ImportValue& x = op.value();
  op.check(x.shape.size() >= 3 && x.shape.size() <= 5,
           "its input has {} axes: sequences, images and volumes are supported", x.shape.size());
  if (x.shape.size() > 3) return x;
  return op.reshaped(x, {x.shape[0], x.shape[1], 1, x.shape[2]}, "image");
}

ImportValue restore_rank(const OpImport& op, const ImportValue& y) {
  if (op.value().shape.size() > 3) return y;
  return op.reshaped(y, {y.shape[0], y.shape[1], y.shape[3]}, "sequence");
}

bool all(const Shape& sizes, std::int64_t value) {
  return std::ranges::count(sizes, value) == std::ssize(sizes);
}

/// Reads the window of a pool. Layers round the number of positions down.
Window pool_window(const OpImport& op, const ImportValue& image) {
  const std::size_t axes = op.value().shape.size() - 2;
  op.check(op.has("kernel_shape"), "its attribute 'kernel_shape' is missing");
  const Shape sizes(image.shape.end() - static_cast<std::ptrdiff_t>(axes), image.shape.end());
  Window window = read_window(op, op.sizes("kernel_shape", axes, 1, 1), sizes);
  if (axes == 1) {
    for (auto* list : {&window.kernel, &window.stride, &window.dilation}) list->insert(list->begin(), 1);
    for (auto* list : {&window.before, &window.after}) list->insert(list->begin(), 0);
  }
  return window;
}

NodeOptions pool_options(const Window& window) {
  NodeOptions options{{"kernel", one_or_list(window.kernel)}};
  if (window.stride != window.kernel) options["stride"] = one_or_list(window.stride);
  if (!all(window.before, 0)) options["padding"] = one_or_list(window.before);
  if (!window.equal_pads()) options["padding_end"] = one_or_list(window.after);
  return options;
}

/// Whether ceil_mode adds a window.
bool rounds_up(const OpImport& op, const Window& window, const ImportValue& image) {
  if (op.integer("ceil_mode", 0, 0, 1) == 0) return false;
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    const std::int64_t room = image.shape[2 + i] + window.before[i] + window.after[i] - window.extent(i);
    if (room % window.stride[i] != 0) return true;
  }
  return false;
}

bool is_whole_image(const Window& window, const ImportValue& image) {
  return window.kernel == Shape(image.shape.begin() + 2, image.shape.end()) && all(window.before, 0) &&
         all(window.after, 0);
}

/// Windows along one axis of an image.
struct Taps {
  std::int64_t kernel, stride, dilation, before, after, size, windows;

  Taps(const Window& window, std::size_t i, std::int64_t image, bool ceil)
      : kernel(window.kernel[i]),
        stride(window.stride[i]),
        dilation(window.dilation[i]),
        before(window.before[i]),
        after(window.after[i]),
        size(image) {
    const std::int64_t room = size + before + after - window.extent(i);
    windows = room < 0 ? 0 : (room + (ceil ? stride - 1 : 0)) / stride + 1;
    if (ceil && (windows - 1) * stride >= size + before) --windows;  // the window would begin after the image
  }
  /// Returns the end of the last window in the padded image.
  [[nodiscard]] std::int64_t end() const { return (windows - 1) * stride + (kernel - 1) * dilation + 1; }
  /// Returns the number of elements of window `w` that count.
  [[nodiscard]] std::int64_t count(std::int64_t w, bool with_pads) const {
    std::int64_t out = 0;
    for (std::int64_t tap = 0; tap < kernel; ++tap) {
      const std::int64_t place = w * stride + tap * dilation - before;
      out += with_pads ? place < size + after : place >= 0 && place < size;
    }
    return out;
  }
};

/// Returns 1 / elements of each window, [1, windows..].
Tensor window_weights(const OpImport& op, const std::vector<Taps>& axes) {
  const bool with_pads = op.integer("count_include_pad", 0, 0, 1) == 1;
  Shape shape{1};
  for (const auto& taps : axes) shape.push_back(taps.windows);
  Tensor out = Tensor::full(shape, 1.0);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    std::int64_t rest = i, count = 1;
    for (std::size_t axis = axes.size(); axis-- > 0; rest /= axes[axis].windows)
      count *= axes[axis].count(rest % axes[axis].windows, with_pads);
    op.check(count > 0, "one of its windows covers only padding");
    out.mutable_data<float>()[i] = 1.0F / static_cast<float>(count);
  }
  return out;
}

/// Sums the elements of dilated windows, one axis after the other, and multiplies by the shares.
ImportValue dilated_mean(const OpImport& op, const Window& window, const ImportValue& image) {
  const bool ceil = op.integer("ceil_mode", 0, 0, 1) == 1;
  std::vector<Taps> axes;
  std::vector<std::int64_t> after;
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    const Taps& taps = axes.emplace_back(window, i, image.shape[2 + i], ceil);
    op.check(taps.windows > 0 && taps.kernel <= kMostTaps && taps.end() <= taps.size + 2 * kLargestPad,
             "its window of {} elements does not fit an axis of {}, or is larger than {}", window.extent(i),
             taps.size, kMostTaps);
    after.push_back(std::max<std::int64_t>(0, taps.end() - taps.size - taps.before));
  }
  ImportValue y = image;
  if (!all(window.before, 0) || !all(after, 0))
    y = op.layer("pad", {{"before", window.before}, {"after", after}}, {y}, {}, "pad");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Taps& taps = axes[i];
    const auto axis = static_cast<int>(i) + 2;
    ImportValue sum;
    for (std::int64_t tap = 0; tap < taps.kernel; ++tap) {
      const std::int64_t begin = tap * taps.dilation;
      NodeOptions options{
          {"axis", axis}, {"begin", begin}, {"end", begin + (taps.windows - 1) * taps.stride + 1}};
      if (taps.stride != 1) options["step"] = taps.stride;
      const ImportValue part = op.layer("slice", options, {y}, {}, "tap");
      sum = tap == 0 ? part : op.layer("add", {}, {sum, part}, {}, "sum");
    }
    y = sum;
  }
  const Tensor shares = window_weights(op, axes);
  const float first = shares.data<float>()[0];
  const auto values = shares.to_vector<float>();
  if (std::ranges::count(values, first) == std::ssize(values))
    return op.layer("scale", {{"factor", shortest(first)}}, {y});
  return op.layer("multiply", {}, {y, op.parameter(shares, shares.shape(), false)});
}

/// Returns the means of each channel of an image, with the shape `shape`.
ImportValue global_mean(const OpImport& op, const ImportValue& image, const Shape& shape) {
  return op.reshaped(op.layer("global_avg_pool", {}, {image}), shape,
                     shape.size() == 2 ? "flatten" : "reshape");
}

/// Returns the shape after a mean over `axes`.
Shape reduced(const Shape& shape, const std::vector<int>& axes, bool keep) {
  Shape out;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    const bool gone = std::ranges::find(axes, i) != axes.end();
    if (!gone || keep) out.push_back(gone ? 1 : shape[static_cast<std::size_t>(i)]);
  }
  return out;
}

}  // namespace

ImportValue max_pool(const OpImport& op) {
  const ImportValue image = pool_input(op);
  const Window window = pool_window(op, image);
  auto options = pool_options(window);
  if (!all(window.dilation, 1)) options["dilation"] = one_or_list(window.dilation);
  if (rounds_up(op, window, image)) options["ceil_mode"] = true;
  return restore_rank(op, op.layer("max_pool", options, {image}));
}

ImportValue average_pool(const OpImport& op) {
  const ImportValue image = pool_input(op);
  const Window window = pool_window(op, image);
  if (all(window.kernel, 1) && all(window.stride, 1)) return op.value();
  if (is_whole_image(window, image)) {
    op.recognise("global pooling");
    return restore_rank(op, op.layer("global_avg_pool", {}, {image}));
  }
  if (!all(window.dilation, 1)) return restore_rank(op, dilated_mean(op, window, image));
  auto options = pool_options(window);
  if (rounds_up(op, window, image)) options["ceil_mode"] = true;
  if (!all(window.before, 0) || !all(window.after, 0) || options.find("ceil_mode") != nullptr)
    options["count_include_pad"] = op.integer("count_include_pad", 0, 0, 1) == 1;
  return restore_rank(op, op.layer("avg_pool", options, {image}));
}

ImportValue global_average_pool(const OpImport& op) {
  return restore_rank(op, op.layer("global_avg_pool", {}, {pool_input(op)}));
}

ImportValue global_max_pool(const OpImport& op) {
  const ImportValue image = pool_input(op);
  const Shape kernel(image.shape.begin() + 2, image.shape.end());
  return restore_rank(op, op.layer("max_pool", {{"kernel", one_or_list(kernel)}}, {image}));
}

ImportValue reduce_mean(const OpImport& op) {
  const ImportValue& x = op.value();
  const int rank = static_cast<int>(x.shape.size());
  const auto given = op.list("axes", 1);
  if (given.empty() && op.integer("noop_with_empty_axes", 0, 0, 1) == 1) return x;
  auto axes = normalized_axes(op, given, rank);
  std::ranges::sort(axes);
  if (batch_axis(x.shape) != 0 || op.result_type().is_integer()) return reduce_any_mean(op);
  const Shape shape = reduced(x.shape, axes, op.integer("keepdims", 1, 0, 1) == 1);
  const bool pixels = (rank == 4 && axes == std::vector{2, 3}) || (rank == 3 && axes == std::vector{2}) ||
                      (rank == 5 && axes == std::vector{2, 3, 4});
  const bool tokens = rank == 3 && axes == std::vector{1};
  if (!pixels && !tokens) return reduce_any_mean(op);
  op.recognise("global pooling");
  if (pixels) return global_mean(op, pool_input(op), shape);
  const auto transposed = op.layer("transpose", {{"axes", Shape{0, 2, 1}}}, {x}, {}, "transpose");
  return global_mean(op, op.reshaped(transposed, {x.shape[0], x.shape[2], 1, x.shape[1]}, "image"), shape);
}

}  // namespace fq::detail::onnx_ops
