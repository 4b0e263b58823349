#include "fakequant/layers/quantizer/detail/binary_codes.h"

#include <cmath>
#include <vector>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"

namespace fq::detail {
namespace {

constexpr float kLeastMean = 0x1p-24f;  // QuantSpec::from_amax

/// Which channel an element of a row-major tensor belongs to.
struct Channels {
  std::int64_t count = 1, inner;

  Channels(const Shape& shape, int axis) : inner(numel(shape)) {
    if (axis < 0) return;
    count = shape[static_cast<std::size_t>(axis)];
    inner = numel(Shape(shape.begin() + axis + 1, shape.end()));
  }
  [[nodiscard]] std::size_t of(std::size_t i) const {
    return i / static_cast<std::size_t>(inner) % static_cast<std::size_t>(count);
  }
};

Tensor means(const std::vector<float>& values, const Channels& channels) {
  std::vector<double> sums(static_cast<std::size_t>(channels.count));
  for (std::size_t i = 0; i < values.size(); ++i) sums[channels.of(i)] += std::abs(values[i]);
  const double elements = static_cast<double>(values.size()) / static_cast<double>(channels.count);
  std::vector<float> out;
  for (const double sum : sums) out.push_back(static_cast<float>(sum / elements));
  return listed(Tensor::from<float>(out, {channels.count}));
}

}  // namespace

QuantizedTensor binary_codes(const Tensor& x, const QuantizerSettings& settings) {
  const QuantDescriptor& d = settings.descriptor;
  const Granularity granularity = d.granularity(x.rank());
  const auto spec_of = [&](const Granularity& by, const Tensor& amax) {
    auto out = QuantSpec::from_amax(d.format(), by, amax, settings.name, settings.pow2, settings.zero_point);
    out.pass_through_bwd = true;
    return out;
  };
  if (x.device().is_meta())
    return quantize(x, spec_of(Granularity::per_tensor(), Tensor::scalar(1.0)), false);
  const std::vector<float> values = x.to(Device::cpu()).to(Layout::row_major).to_vector<float>();
  const Channels channels(x.shape(), granularity.single_axis(x.rank()));
  const Tensor mean = means(values, channels);
  check_finite(mean, "quantizer", settings.name);
  const std::vector<float> range = mean.to_vector<float>();
  std::vector<std::int8_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = range[channels.of(i)] <= kLeastMean ? 0 : values[i] < 0 ? -1 : 1;
  const Tensor row_major = Tensor::from<std::int8_t>(codes, x.shape());
  return {row_major.to(x.layout()).to(x.device()),
          spec_of(channels.count == 1 ? Granularity::per_tensor() : granularity, mean).to(x.device()),
          {}};
}

}  // namespace fq::detail
