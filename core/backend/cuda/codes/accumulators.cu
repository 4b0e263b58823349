#include "fakequant/core/backend/cuda/codes/channel_reader.cuh"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

std::uint8_t* mask_data(Tensor* mask) {
  return mask != nullptr ? mutable_device_data<std::uint8_t>(*mask) : nullptr;
}

/// Calls f(source) with the reader of an accumulator. The data of the source lives until the call returns.
template <class F>
struct WithSource {
  const Grid* grid;  // null for floats
  const std::string& nan_text;
  F f;

  [[nodiscard]] float offset() const { return grid != nullptr ? static_cast<float>(grid->zero_point) : 0.0f; }

  void operator()(const ProductSums& x) const {
    // The reader may be destroyed after the launch: its memory is freed in stream order.
    f(ChannelReader(x, grid, nan_text).source());
  }
  void operator()(const NormalizedSums& x) const { f(ChannelReader(x, grid, nan_text).source()); }
  void operator()(const PooledSums& x) const {
    f(PooledPixels{device_data<std::int32_t>(x.sums), device_data<float>(x.scale),
                   static_cast<float>(x.count)});
  }
  void operator()(const Averages& x) const { f(AverageValues{device_data<float>(x.values), offset()}); }
  void operator()(const CodeAddition& x) const {
    const auto& a = x.a.grid;
    const auto& b = x.b.grid;
    f(AddedCodes{device_data<void>(x.a.codes), device_data<void>(x.b.codes), CodeFormat::of(a.format),
                 CodeFormat::of(b.format), device_data<float>(a.scale), device_data<float>(b.scale),
                 static_cast<float>(a.zero_point), static_cast<float>(b.zero_point), offset()});
  }
  void operator()(const AccumulatorConcat&) const {}  // joined by the caller
  void operator()(const AccumulatorMove&) const {}    // moved by the caller
  void operator()(const DeferredFloats&) const {}     // computed by the caller
};

template <class F>
void with_source(const Accumulator& x, const Grid* grid, const std::string& nan_text, F f) {
  std::visit(WithSource<F>{grid, nan_text, f}, x.value);
}

template <class Source>
// Eight elements per thread: one byte of the mask. The ReLU keeps NaN, as on the host.
struct WriteValues {
  Source source;
  float* out;
  std::uint8_t* mask;  // may be null
  bool relu;

  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    source.values(first, count, v);
    unsigned bits = 0;
    for (int j = 0; j < group_size; ++j) {
      if (j >= count || !relu) continue;
      const bool passes = scalar::less_(0.0f, v[j]);
      v[j] = passes || scalar::is_nan_(v[j]) ? v[j] : 0.0f;
      bits |= static_cast<unsigned>(passes) << j;
    }
    store_group(out + first, count, v);
    if (mask != nullptr) mask[first / 8] = static_cast<std::uint8_t>(bits);
  }
};

template <class Source>
// The float values are only needed for the mask. Their formula differs from the formula of the codes.
struct WriteCodes {
  Source source;
  const float *step, *amax;
  CodeFormat format;
  bool relu;
  void* codes;
  std::uint8_t* mask;  // may be null

  FQ_HD void operator()(std::int64_t first, int count) const {
    const auto row = grid_row(format.grid, *step, *amax);
    const SumGrid grid{row.scale, fq::detail::sum_reader(row, relu)};
    float q[group_size], v[group_size] = {};
    source.codes(first, count, grid, mask != nullptr, q, v);
    store_integer_codes(codes, format.dtype, first, count, q);
    if (mask == nullptr) return;
    unsigned bits = 0;
    for (int j = 0; j < group_size; ++j)
      if (j < count) bits |= static_cast<unsigned>(fq::detail::passes(grid.reader, v[j])) << j;
    mask[first / 8] = static_cast<std::uint8_t>(bits);
  }
};

struct BiasCodes {
  const float *bias, *scale;
  bool one_scale;
  std::int32_t room;
  std::int32_t* out;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t c) const {
    out[c] = fq::detail::bias_code(bias[c], scale[one_scale ? 0 : c], room);
    if (scalar::is_nan_(bias[c])) raise(alarm);
  }
};

}  // namespace

void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask) {
  if (out.numel() == 0) return;
  auto* values = mutable_device_data<float>(out);
  with_source(x, nullptr, {}, [&]<class Source>(const Source& source) {
    launch_groups(out.device(), out.numel(), WriteValues<Source>{source, values, mask_data(mask), x.relu});
  });
}

void accumulator_codes(const Accumulator& x, QuantizedTensor& out, const std::string& nan_text) {
  if (out.codes.numel() == 0) return;
  const Grid& grid = out.grid;
  with_source(x, &grid, nan_text, [&]<class Source>(const Source& source) {
    launch_groups(out.codes.device(), out.codes.numel(),
                  WriteCodes<Source>{source, device_data<float>(grid.scale), device_data<float>(grid.amax),
                                     CodeFormat::of(grid.format), x.relu,
                                     mutable_device_data<void>(out.codes), mask_data(&out.mask)});
  });
}

void bias_codes(const Tensor& b, const Tensor& scale, std::int32_t room, const std::string& nan_text,
                Tensor& out) {
  launch_each(b.device(), b.numel(),
              BiasCodes{device_data<float>(b), device_data<float>(scale), scale.numel() == 1, room,
                        mutable_device_data<std::int32_t>(out), alarm(b.device(), nan_text)});
}

}  // namespace fq::cuda
