#include <algorithm>
#include <cmath>

#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view names[] = {"resize_nearest", "resize_linear", "resize_cubic"};

/// One axis with its old and new size.
struct Axis {
  const Resize& options;
  std::int64_t from, to;
  double scale;

  // Returns the position in the input of the center of output element i, by the
  // coordinate_transformation_mode of ONNX Resize.
  [[nodiscard]] double place(std::int64_t i) const {
    const auto at = static_cast<double>(i);
    switch (options.coordinates) {
      case ResizeCoordinates::align_corners:
        return to == 1 ? 0.0 : at * static_cast<double>(from - 1) / static_cast<double>(to - 1);
      case ResizeCoordinates::asymmetric:
        // Divides by given scales as ONNX Runtime does: in doubles 21 / 0.7 is above 30, and `ceil` gives 31.
        return options.scales.empty() ? at / scale : float(at) / float(scale);
      case ResizeCoordinates::pytorch_half_pixel:
        if (to == 1) return 0.0;
        [[fallthrough]];
      default:
        return (at + 0.5) / scale - 0.5;
    }
  }
  /// Clamps a position to the axis: positions outside read the border.
  [[nodiscard]] std::int64_t within(double at) const {
    return static_cast<std::int64_t>(std::clamp(at, 0.0, static_cast<double>(from - 1)));
  }
  [[nodiscard]] std::int64_t nearest(std::int64_t i) const {
    const double x = place(i);
    switch (options.rounding) {
      case ResizeRounding::prefer_floor:
        return within(std::ceil(x - 0.5));
      case ResizeRounding::prefer_ceil:
        return within(std::floor(x + 0.5));
      case ResizeRounding::ceil:
        return within(std::ceil(x));
      default:
        return within(std::floor(x));
    }
  }
  /// Adds the weights of output element i to the mix.
  void linear(std::int64_t i, detail::AxisMix& mix) const {
    const double x = std::clamp(place(i), 0.0, static_cast<double>(from - 1)), low = std::floor(x);
    // At the border both indices may be the same: their weights then add up to 1.
    mix.add(within(low), 1.0 - (x - low));
    mix.add(within(low + 1), x - low);
  }
  /// Adds the four weights of cubic convolution (Keys 1981) for output element i.
  void cubic(std::int64_t i, detail::AxisMix& mix) const {
    const double x = place(i), low = std::floor(x), t = x - low, a = options.cubic;
    const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    const double weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    for (int k = 0; k < 4; ++k) mix.add(within(low - 1 + k), weights[k]);
  }
};

Variable moved(const Variable& x, int axis, const Axis& sizes) {
  TakeMove move{axis, {}};
  for (std::int64_t i = 0; i < sizes.to; ++i) move.from.push_back(sizes.nearest(i));
  return detail::record_move(names[0], x, move, {});
}

Variable mixed(const Variable& input, int axis, const Axis& sizes, std::string_view op) {
  const auto x = detail::floats(input, op);
  detail::AxisMix mix;
  for (std::int64_t i = 0; i < sizes.to; ++i) {
    sizes.options.mode == ResizeMode::linear ? sizes.linear(i, mix) : sizes.cubic(i, mix);
    mix.end_row();
  }
  return detail::record_mix(op, x, axis, std::move(mix));
}

void check(const Variable& x, const Resize& options) {
  constexpr std::string_view op = "resize";
  FQ_CHECK(x.defined() && !options.sizes.empty() && options.sizes.size() <= x.shape().size(), op,
           "{} sizes are given for {}: use one for each of the last axes", options.sizes.size(),
           x.defined() ? to_string(x.shape()) : "an undefined input");
  FQ_CHECK(options.scales.empty() || options.scales.size() == options.sizes.size(), op,
           "{} scales are given for {} sizes: use one for each size, or none", options.scales.size(),
           options.sizes.size());
  for (const auto scale : options.scales)
    FQ_CHECK(scale > 0 && std::isfinite(scale), op, "a scale is {}: it must be above 0", scale);
  for (std::size_t i = 0; i < options.sizes.size(); ++i) {
    const std::int64_t from = x.shape()[x.shape().size() - options.sizes.size() + i];
    FQ_CHECK(from > 0 && options.sizes[i] > 0 && options.sizes[i] < (std::int64_t{1} << 32), op,
             "an axis of {} elements cannot become one of {}", from, options.sizes[i]);
  }
}

Attributes resize_attributes(const Resize& o) {
  constexpr const char* coordinates[] = {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"};
  constexpr const char* roundings[] = {"prefer_floor", "prefer_ceil", "floor", "ceil"};
  return {{"sizes", o.sizes},
          {"scales", o.scales},
          {"coordinates", std::string(coordinates[static_cast<int>(o.coordinates)])},
          {"rounding", std::string(roundings[static_cast<int>(o.rounding)])},
          {"cubic", o.cubic}};
}

}  // namespace

Variable resize(const Variable& x, const Resize& options) {
  check(x, options);
  const std::string_view op = names[static_cast<int>(options.mode)];
  const bool moves = options.mode == ResizeMode::nearest;
  const Variable read = moves ? x : detail::floats(x, op).variable;
  auto attributes = detail::traced([&] { return resize_attributes(options); });
  return detail::composite(op, {read}, std::move(attributes), [&] {
    Variable y = read;
    const int first = x.rank() - static_cast<int>(options.sizes.size());
    for (std::size_t i = 0; i < options.sizes.size(); ++i) {
      const int axis = first + static_cast<int>(i);
      const std::int64_t from = y.dim(axis), to = options.sizes[i];
      const double scale =
          options.scales.empty() ? static_cast<double>(to) / static_cast<double>(from) : options.scales[i];
      const Axis sizes{options, from, to, scale};
      y = moves ? moved(y, axis, sizes) : mixed(y, axis, sizes, op);
    }
    return y;
  });
}

}  // namespace fq::ops
