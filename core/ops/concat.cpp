#include <algorithm>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kConcat = "concat";

/// Sizes along the axis; throws when the parts differ elsewhere.
std::vector<std::int64_t> sizes_along(const std::vector<Variable>& parts, int axis) {
  const Shape first = parts[0].shape();
  std::vector<std::int64_t> sizes;
  for (const auto& part : parts) {
    Shape shape = part.shape();
    FQ_CHECK(shape.size() == first.size(), kConcat, "{} and {} have different ranks", to_string(first),
             to_string(shape));
    auto& size = shape[static_cast<std::size_t>(axis)];
    sizes.push_back(size);
    size = first[static_cast<std::size_t>(axis)];
    FQ_CHECK(shape == first, kConcat, "{} and {} differ on an axis other than {}", to_string(part.shape()),
             to_string(first), axis);
  }
  return sizes;
}

Backward split(std::vector<std::int64_t> sizes, int axis) {
  return [sizes = std::move(sizes), axis](const Tensor& dy) {
    std::vector<Tensor> out;
    std::int64_t begin = 0;
    for (const auto size : sizes) {
      out.push_back(detail::cut(dy, axis, begin, begin + size));
      begin += size;
    }
    return out;
  };
}

/// All codes of one grid.
bool joinable(const std::vector<Variable>& parts) {
  return std::ranges::all_of(parts, [&](const Variable& part) {
    return part.quantized() != nullptr && detail::is_movable(*part.quantized()) &&
           same_grid(part.quantized()->grid, parts[0].quantized()->grid);
  });
}

QuantizedTensor joined_codes(const std::vector<Variable>& parts, int axis) {
  std::vector<Tensor> codes;
  for (const auto& part : parts) codes.push_back(part.quantized()->codes);
  return detail::with_codes(*parts[0].quantized(), detail::join(codes, axis));
}

bool all_sums(const std::vector<Variable>& parts) {
  return std::ranges::all_of(parts, [](const Variable& part) { return part.accumulator() != nullptr; });
}

/// A ReLU that is pending on every part becomes that of the whole.
Accumulator joined_sums(const std::vector<Variable>& parts, int axis) {
  const bool relu = std::ranges::all_of(parts, [](const Variable& part) { return part.accumulator()->relu; });
  AccumulatorConcat out{{}, axis};
  for (const auto& part : parts) {
    out.parts.push_back(*part.accumulator());
    out.parts.back().relu = !relu && part.accumulator()->relu;
  }
  return {std::move(out), relu};
}

}  // namespace

Variable concat(const std::vector<Variable>& parts, int axis) {
  FQ_CHECK(!parts.empty() && std::ranges::all_of(parts, &Variable::defined), kConcat,
           "{} inputs are given: give one or more, all defined", parts.size());
  const int at = normalize_axis(axis, parts[0].rank(), kConcat);
  auto backward = split(sizes_along(parts, at), at);
  auto attributes = detail::traced([&] { return Attributes{{"axis", std::int64_t{at}}}; });
  if (all_sums(parts))
    return detail::record(kConcat, joined_sums(parts, at), parts, std::move(backward), std::move(attributes));
  if (joinable(parts))
    return detail::record(kConcat, joined_codes(parts, at), parts, std::move(backward),
                          std::move(attributes));
  std::vector<Variable> inputs;
  std::vector<Tensor> tensors;
  for (const auto& part : parts) {
    auto floats =
        tensors.empty() ? detail::floats(part, kConcat) : detail::floats_like(part, tensors[0], kConcat);
    inputs.push_back(floats.variable);
    tensors.push_back(floats.tensor);
  }
  return detail::record(kConcat, detail::join(tensors, at), std::move(inputs), std::move(backward),
                        std::move(attributes));
}

}  // namespace fq::ops
