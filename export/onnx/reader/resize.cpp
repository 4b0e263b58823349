#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/export/onnx/reader/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

using nlohmann::ordered_json;

/// The numbers of all axes, where the file gives those of some.
template <class T>
std::vector<T> of_all_axes(const OpImport& op, const std::vector<T>& given, std::size_t rank, T otherwise) {
  const auto named = op.integers("axes");
  if (named.empty()) {
    op.check(given.size() == rank, "it has {} sizes for {} axes", given.size(), rank);
    return given;
  }
  const auto axes = axes_of(op, named, static_cast<int>(rank));
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
  Shape shape;                 ///< of all axes
  std::vector<double> scales;  ///< empty where they are those of the shape
};

Target target(const OpImport& op, const Shape& from, std::size_t scales_at, std::size_t sizes_at) {
  if (op.has_input(sizes_at)) {
    Shape sizes = of_all_axes<std::int64_t>(op, integers_of(op, op.constant(sizes_at)), from.size(), 0);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] == 0 || (i == 0 && op.is_batch(sizes[0]))) sizes[i] = from[i];
    const auto policy = op.text("keep_aspect_ratio_policy", "stretch");
    op.check(policy == "stretch", "it keeps the aspect ratio ('{}')", policy);
    return {sizes, {}};
  }
  op.check(op.has_input(scales_at), "it has neither scales nor sizes");
  Target out{from, of_all_axes<double>(op, numbers(op, scales_at), from.size(), 1)};
  bool exact = true;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double size = static_cast<double>(from[i]) * out.scales[i];
    op.check(size >= 1 && size < 1e9, "it makes {} elements of {}", size, from[i]);
    out.shape[i] = static_cast<std::int64_t>(std::floor(size));
    exact = exact && static_cast<double>(out.shape[i]) == size;
  }
  if (exact) out.scales.clear();
  return out;
}

ImportValue resized(const OpImport& op, const Target& to, const std::string& mode, std::string coordinates,
                    std::string rounding) {
  const ImportValue& x = op.value();
  std::size_t first = 0;
  while (first < to.shape.size() && to.shape[first] == x.shape[first]) ++first;
  if (first == to.shape.size()) return x;
  op.check(first > 0, "it resizes the batch");
  for (std::size_t i = first; i < to.shape.size(); ++i)
    op.check(to.shape[i] <= kLargestPad, "it makes {} elements of an axis: up to {} are supported",
             to.shape[i], kLargestPad);
  op.check(mode == "nearest" || mode == "linear" || mode == "cubic", "its mode is '{}'", mode);
  const auto from = static_cast<std::ptrdiff_t>(first);
  ordered_json options{{"sizes", Shape(to.shape.begin() + from, to.shape.end())}};
  if (mode != "nearest") options["mode"] = mode;
  if (coordinates != (mode == "nearest" ? "asymmetric" : "half_pixel")) options["coordinates"] = coordinates;
  if (mode == "nearest" && rounding != "floor") options["rounding"] = rounding;
  if (mode == "cubic" && op.number("cubic_coeff_a", -0.75) != -0.75)
    options["cubic"] = op.number("cubic_coeff_a", -0.75);
  if (!to.scales.empty()) options["scales"] = std::vector<double>(to.scales.begin() + from, to.scales.end());
  return op.layer("resize", options, {x});
}

}  // namespace

ImportValue resize(const OpImport& op) {
  const bool old = op.opset() < 11;
  const auto coordinates = op.text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  const std::vector<std::string> known{"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"};
  op.check(
      std::ranges::find(known, coordinates) != known.end(),
      "its coordinates are '{}': half_pixel, pytorch_half_pixel, align_corners and asymmetric are supported",
      coordinates);
  op.check(op.integer("antialias", 0, 0, 1) == 0, "it filters before it makes smaller ('antialias')");
  op.check(op.integer("exclude_outside", 0, 0, 1) == 0,
           "it leaves out what lies outside ('exclude_outside')");
  auto rounding = op.text("nearest_mode", old ? "floor" : "round_prefer_floor");
  if (rounding.starts_with("round_")) rounding.erase(0, 6);
  return resized(op, target(op, op.value().shape, old ? 1 : 2, 3), op.text("mode", "nearest"), coordinates,
                 rounding);
}

ImportValue upsample(const OpImport& op) {
  auto mode = op.text("mode", "nearest");
  if (mode == "bilinear") mode = "linear";
  return resized(op, target(op, op.value().shape, 1, 4), mode, "asymmetric", "floor");
}

}  // namespace fq::detail::onnx_ops
