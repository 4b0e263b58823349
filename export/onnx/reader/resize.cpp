#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

/// Returns the numbers of all axes if the file has numbers for some axes.
template <class T>
std::vector<T> fill_axes(const OpImport& op, const std::vector<T>& given, std::size_t rank, T otherwise) {
  const auto named = op.integers("axes");
  if (named.empty()) {
    op.check(given.size() == rank, "it has {} sizes for {} axes", given.size(), rank);
    return given;
  }
  const auto axes = normalized_axes(op, named, static_cast<int>(rank));
  op.check(axes.size() == given.size(), "it has {} sizes for {} axes", given.size(), axes.size());
  std::vector<T> all(rank, otherwise);
  for (std::size_t i = 0; i < axes.size(); ++i) all[static_cast<std::size_t>(axes[i])] = given[i];
  return all;
}

std::vector<double> numbers(const OpImport& op, std::size_t i) {
  std::vector<double> out;
  for (const float v : op.weight(i).to_vector<float>()) out.push_back(shortest(v));
  return out;
}

struct Target {
  Shape shape;                 ///< sizes of all axes
  std::vector<double> scales;  ///< empty if they follow from the shape

  /// Returns the factor of an axis of `from`. With given scales, an axis may keep its size and still change.
  [[nodiscard]] double scale(std::size_t axis, const Shape& from) const {
    return scales.empty() ? static_cast<double>(shape[axis]) / static_cast<double>(from[axis]) : scales[axis];
  }
};

/// Uses one scale for all axes in `sizes`: the smallest or the largest. The output sizes follow from it.
Target uniform_scale_target(const OpImport& op, const Shape& from, const Shape& sizes, bool largest) {
  double scale = largest ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (sizes[i] == 0 || sizes[i] == kSymbolicBatch) continue;
    const double own = static_cast<double>(sizes[i]) / static_cast<double>(from[i]);
    scale = largest ? std::max(scale, own) : std::min(scale, own);
  }
  Target out{from, std::vector<double>(from.size(), 1)};
  bool exact = true;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (sizes[i] == 0 || sizes[i] == kSymbolicBatch) continue;
    const double size = static_cast<double>(from[i]) * scale;
    op.check(size < 1e9, "it makes {} elements of {}", size, from[i]);
    out.shape[i] = static_cast<std::int64_t>(std::floor(size + 0.5));
    out.scales[i] = scale;
    exact = exact && static_cast<double>(out.shape[i]) == size;
    // Layers round down, as Resize with scales. Sizes of a fixed ratio are rounded to nearest.
    op.check(std::floor(size) == std::floor(size + 0.5),
             "it keeps the aspect ratio and rounds {} elements up: use sizes of one ratio", size);
  }
  if (exact) out.scales.clear();
  return out;
}

Target target_from_sizes(const OpImport& op, const Shape& from, std::size_t at) {
  Shape sizes = fill_axes<std::int64_t>(op, integer_list(op, op.constant(at)), from.size(), 0);
  // The batch keeps its size, marked by 0 as the axes without a given size.
  if (op.is_batch(sizes[0])) sizes[0] = 0;
  const auto policy = op.text("keep_aspect_ratio_policy", "stretch");
  if (policy == "not_larger" || policy == "not_smaller")
    return uniform_scale_target(op, from, sizes, policy == "not_smaller");
  op.check(policy == "stretch",
           "its keep_aspect_ratio_policy is '{}': stretch, not_larger and not_smaller are supported", policy);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0) sizes[i] = from[i];
  return {sizes, {}};
}

Target target(const OpImport& op, const Shape& from, std::size_t scales_at, std::size_t sizes_at) {
  if (op.has_input(sizes_at)) return target_from_sizes(op, from, sizes_at);
  op.check(op.has_input(scales_at), "it has neither scales nor sizes");
  Target out{from, fill_axes<double>(op, numbers(op, scales_at), from.size(), 1)};
  bool exact = true;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double size = static_cast<double>(from[i]) * out.scales[i];
    op.check(size >= 1 && size < 1e9, "it makes {} elements of {}", size, from[i]);
    out.shape[i] = static_cast<std::int64_t>(std::floor(size));
    exact = exact && static_cast<double>(out.shape[i]) == size;
  }
  // Scales that follow exactly from the sizes are left out of the model file.
  if (exact) out.scales.clear();
  return out;
}

/// Computation and rounding of source positions.
struct Sampling {
  std::string mode, coordinates, rounding;
};

ImportValue resized(const OpImport& op, const ImportValue& x, const Target& to, const Sampling& how,
                    const std::string& suffix = {}) {
  const auto& [mode, coordinates, rounding] = how;
  op.check(mode == "nearest" || !op.type().is_integer(),
           "it mixes numbers that are {}: convert them to f32 before it", name(op.type().dtype));
  std::size_t first = 0;
  while (first < to.shape.size() && to.scale(first, x.shape) == 1) ++first;
  if (first == to.shape.size()) return x;
  op.check(first > 0, "it resizes the batch");
  for (std::size_t i = first; i < to.shape.size(); ++i)
    op.check(to.shape[i] <= kLargestPad, "it makes {} elements of an axis: up to {} are supported",
             to.shape[i], kLargestPad);
  op.check(mode == "nearest" || mode == "linear" || mode == "cubic", "its mode is '{}'", mode);
  const auto from = static_cast<std::ptrdiff_t>(first);
  NodeOptions options{{"sizes", Shape(to.shape.begin() + from, to.shape.end())}};
  if (mode != "nearest") options["mode"] = mode;
  if (coordinates != (mode == "nearest" ? "asymmetric" : "half_pixel")) options["coordinates"] = coordinates;
  if (mode == "nearest" && rounding != "floor") options["rounding"] = rounding;
  if (mode == "cubic" && op.number("cubic_coeff_a", -0.75) != -0.75)
    options["cubic"] = op.number("cubic_coeff_a", -0.75);
  if (!to.scales.empty()) options["scales"] = std::vector<double>(to.scales.begin() + from, to.scales.end());
  return op.layer("resize", options, {x}, {}, suffix);
}

/// Before opset 11, ONNX did not define the rounding of `nearest`. ONNX Runtime rounds positions up along
/// axes that become smaller, and down along other axes.
ImportValue resized_by_old_version(const OpImport& op, const std::string& mode, std::size_t scales_at) {
  const ImportValue& x = op.value();
  const Target to = target(op, x.shape, scales_at, 4);
  if (mode != "nearest") return resized(op, x, to, {mode, "asymmetric", "floor"});
  Target smaller = to, larger = to;
  bool grows = false;
  for (std::size_t i = 0; i < to.shape.size(); ++i) {
    const double scale = to.scale(i, x.shape);
    grows = grows || scale > 1;
    // The step that does not resize this axis keeps its size: the first one the old size, the second one the
    // new size.
    Target& other = scale < 1 ? larger : smaller;
    other.shape[i] = scale < 1 ? to.shape[i] : x.shape[i];
    if (!other.scales.empty()) other.scales[i] = 1;
  }
  const ImportValue y = resized(op, x, smaller, {mode, "asymmetric", "ceil"}, grows ? "smaller" : "");
  return resized(op, y, larger, {mode, "asymmetric", "floor"});
}

}  // namespace

ImportValue resize(const OpImport& op) {
  if (op.opset() < 11) return resized_by_old_version(op, op.text("mode", "nearest"), 1);
  const auto coordinates = op.text("coordinate_transformation_mode", "half_pixel");
  const std::vector<std::string> known{"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"};
  op.check(
      std::ranges::find(known, coordinates) != known.end(),
      "its coordinates are '{}': half_pixel, pytorch_half_pixel, align_corners and asymmetric are supported",
      coordinates);
  op.check(op.integer("antialias", 0, 0, 1) == 0, "it filters before it makes smaller ('antialias')");
  op.check(op.integer("exclude_outside", 0, 0, 1) == 0,
           "it ignores pixels outside of the image ('exclude_outside')");
  auto rounding = op.text("nearest_mode", "round_prefer_floor");
  if (rounding.starts_with("round_")) rounding.erase(0, 6);
  return resized(op, op.value(), target(op, op.value().shape, 2, 3),
                 {op.text("mode", "nearest"), coordinates, rounding});
}

ImportValue upsample(const OpImport& op) {
  auto mode = op.text("mode", "nearest");
  if (mode == "bilinear") mode = "linear";
  return resized_by_old_version(op, mode, 1);
}

}  // namespace fq::detail::onnx_ops
