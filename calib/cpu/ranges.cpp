#include "fakequant/calib/cpu/ranges.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "fakequant/calib/cpu/range_kernels.h"
#include "fakequant/calib/cpu/rows.h"
#include "fakequant/core/check.h"
#include "fakequant/core/cpu/channels.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t kBlock = 1 << 14;

// As integers, so that a NaN is larger than everything and is found.
std::int32_t magnitude(float v) { return std::bit_cast<std::int32_t>(v) & 0x7fffffff; }

void block_amax(const float* x, std::int64_t begin, std::int64_t end, const Channels& view,
                std::int32_t* out) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t channel = view.at(i);
    if (view.inner == 1) {
      const std::int64_t count = std::min(end - i, view.channels - channel);
      raise_magnitudes(x + i, count, out + channel);
      i += count;
    } else {
      const std::int64_t count = std::min(end - i, view.inner - i % view.inner);
      out[channel] = std::max(out[channel], extremes(x + i, count).magnitude);
      i += count;
    }
  }
}

void channel_amax(const float* x, std::int64_t count, const Channels& view, std::int32_t* out) {
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
#pragma omp parallel if (blocks > 16)
  {
    std::vector<std::int32_t> own(static_cast<std::size_t>(view.channels));
#pragma omp for schedule(static) nowait
    for (std::int64_t b = 0; b < blocks; ++b)
      block_amax(x, b * kBlock, std::min(count, (b + 1) * kBlock), view, own.data());
#pragma omp critical(fakequant_channel_amax)
    for (std::size_t c = 0; c < own.size(); ++c) out[c] = std::max(out[c], own[c]);
  }
}

/// Any set of kept axes of a row-major tensor, an odometer over the rows of the last axis.
void axes_amax(const float* x, const Shape& shape, const Shape& kept, std::int32_t* out) {
  Shape stride(shape.size()), index(shape.size());
  std::int64_t step = 1;
  for (std::size_t a = shape.size(); a-- > 0; step *= kept[a]) stride[a] = kept[a] == 1 ? 0 : step;
  for (std::int64_t i = 0, at = 0, count = numel(shape); i < count; ++i) {
    out[at] = std::max(out[at], magnitude(x[i]));
    for (std::size_t a = shape.size(); a-- > 0;) {
      at += stride[a];
      if (++index[a] < shape[a]) break;
      at -= stride[a] * shape[a];
      index[a] = 0;
    }
  }
}

Extremes wider(const Extremes& a, const Extremes& b) {
  return {std::max(a.magnitude, b.magnitude), std::min(a.minimum, b.minimum)};
}

}  // namespace

Tensor amax(const Tensor& x, const Axes& kept, std::string_view function) {
  const auto axes = kept_axes(kept, x.rank(), function);
  const Shape shape = range_shape(x.shape(), axes);
  Tensor out = Tensor::zeros(shape);
  auto* bits = static_cast<std::int32_t*>(out.mutable_raw());
  if (axes.size() <= 1 || shape.empty()) {
    const int axis = axes.empty() || numel(shape) == 1 ? -1 : axes[0];
    channel_amax(x.data<float>(x.layout()), x.numel(), Channels::of(x.shape(), x.layout(), axis), bits);
  } else {
    axes_amax(x.to(Layout::row_major).data<float>(), x.shape(), shape, bits);
  }
  return out;
}

Range range(const Tensor& x) {
  const float* v = x.data<float>(x.layout());
  const std::int64_t count = x.numel(), blocks = (count + kBlock - 1) / kBlock;
  Extremes all{0, v[0]};
#pragma omp parallel if (blocks > 16)
  {
    Extremes own{0, v[0]};
#pragma omp for schedule(static) nowait
    for (std::int64_t b = 0; b < blocks; ++b)
      own = wider(own, extremes(v + b * kBlock, std::min(kBlock, count - b * kBlock)));
#pragma omp critical(fakequant_range)
    all = wider(all, own);
  }
  return {std::bit_cast<float>(all.magnitude), all.minimum + 0.0f};
}

std::string not_finite_text(bool nan, std::string_view function) {
  return fmt::format("[{}] the batch has {}: calibrate with finite values", function,
                     nan ? "a NaN" : "an infinity");
}

void check_finite(float amax, std::string_view function) {
  if (!std::isfinite(amax)) throw NumericError(not_finite_text(std::isnan(amax), function));
}

void check_finite(const Tensor& amax, std::string_view function) {
  for (const float v : amax.to_vector<float>()) check_finite(v, function);
}

Tensor loaded_amax(const Tensor& saved, std::string_view function) {
  FQ_CHECK(saved.dtype() == DType::f32, function, "the saved amax is {}: it must be f32",
           name(saved.dtype()));
  const auto* v = saved.data<float>();
  for (std::int64_t i = 0; i < saved.numel(); ++i)
    FQ_CHECK(v[i] >= 0 && std::isfinite(v[i]), function,
             "the saved amax has {}: it must be finite and not negative", v[i]);
  return saved.clone();
}

}  // namespace fq::cpu
