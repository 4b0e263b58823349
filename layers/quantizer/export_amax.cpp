#include <algorithm>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/quantizer/detail/block_view.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {
namespace {

/// The smallest normal and the largest number of a type; of f64 those of f32.
struct Numbers {
  float least, most;

  static Numbers of(DType dtype) {
    if (dtype == DType::f16) return {0x1p-14f, 65504};
    return {std::numeric_limits<float>::min(),
            dtype == DType::bf16 ? 0x1.fep127f : std::numeric_limits<float>::max()};
  }
};

Tensor squeezed(const Tensor& x) {
  Shape shape;
  std::ranges::copy_if(x.shape(), std::back_inserter(shape), [](std::int64_t size) { return size != 1; });
  return x.reshape(shape);
}

Tensor within(const Tensor& range, float least, float most, float instead_of_0) {
  Tensor out = range.to(Device::cpu()).to(DType::f32).clone();
  auto* values = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = std::clamp(values[i] == 0 ? instead_of_0 : values[i], least, most);
  return out.to(range.dtype());
}

}  // namespace

Tensor export_amax(const TensorQuantizer& quantizer, const Shape& input) {
  const QuantDescriptor& d = quantizer.descriptor();
  const Tensor range = quantizer.amax();
  if (!range.defined()) return {};
  const bool blocks = !d.block_sizes().empty() && !d.has_dynamic_blocks();
  FQ_CHECK(!blocks || !input.empty(), "export_amax", "{} has blocks: give the shape of its input",
           detail::quantizer_label(quantizer.name()));
  const auto [smallest, most] = Numbers::of(range.dtype());
  const Tensor out = within(range, d.has_dynamic_blocks() ? 0.0f : smallest, most, d.format().bound());
  if (d.has_dynamic_blocks() || (blocks && numel(input) == 0)) return out;
  const auto view = detail::BlockView::of(d, input);
  if (view.is_last_axis()) {
    Shape rows(input.begin(), input.end() - 1);
    rows.push_back(-1);
    return out.reshape(rows);
  }
  const std::size_t kept = view.kept().values().size();
  const bool per_axis = d.block_sizes().empty() || view.range_shape().size() == input.size();
  if (kept == 0 && per_axis && out.rank() == 0) return out.reshape({1});
  return kept == 1 && per_axis ? squeezed(out) : out;
}

}  // namespace fq
