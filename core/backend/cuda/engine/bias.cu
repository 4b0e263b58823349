#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/tape.h"

namespace fq::cuda {
namespace {

using fq::detail::PendingGradient;

// bias: [C]; y: [.., C] in memory order.
template <class T>
struct AddBias {
  const T* bias;
  Divisor channels;
  T* y;
  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t row = i;
    y[i] += bias[channels.take_remainder(row)];
  }
};

// dy: [rows, C]. SumOf<float> is a pair of floats with about 48 bits.
template <class T>
struct BiasTerms {
  const T* dy;
  FQ_HD void operator()(SumOf<T>& sum, std::int64_t i, std::int64_t) const { sum.add(dy[i]); }
};

/// The slope of a gradient without an activation.
struct NoActivation {};

/// Groups of eight elements of a PendingGradient with rows of a multiple of eight channels: mask, slope,
/// scale and sums in one pass.
// dy: [rows, C], scale: [1] or [C], out: bf16(dy * scale), or null for sums alone.
template <class T, class F, class Out, class Argument = T>
struct GradientTerms {
  const T* dy;
  const std::uint8_t* mask = nullptr;
  const Argument* saved = nullptr;  // unless there is an activation
  F f = {};
  const float* scale = nullptr;
  bool one_scale = false;
  Out* out = nullptr;

  FQ_HD void operator()(GroupSums<SumOf<T>>& sum, std::int64_t group, std::int64_t column) const {
    const std::int64_t first = group * group_size;
    T v[group_size];
    load_group(dy + first, group_size, v);
    apply_bits(mask, first, group_size, v);
    if constexpr (!std::is_same_v<F, NoActivation>) {
      T argument[group_size];
      load_converted(saved + first, group_size, argument);
      for (int j = 0; j < group_size; ++j) v[j] *= f.slope(argument[j]);
    }
    for (int j = 0; j < group_size; ++j) sum.v[j].add(v[j]);
    if constexpr (!std::is_void_v<Out>) {
      bfloat16 rounded[group_size];
      float factor[group_size];
      if (one_scale)
        for (float& each : factor) each = *scale;
      else
        load_group(scale + column * group_size, group_size, factor);
      for (int j = 0; j < group_size; ++j) rounded[j] = bfloat16(scalar::mul_(v[j], factor[j]));
      store_converted(out + first, group_size, rounded);
    }
  }
};

/// Writes the same numbers without the sums.
template <class Terms>
struct WithoutSums {
  Terms terms;
  Divisor groups;  // of a row
  FQ_HD void operator()(std::int64_t first, int) const {
    std::int64_t row = first / group_size;
    const std::int64_t group = row;
    GroupSums<SumOf<float>> unused{};
    terms(unused, group, groups.take_remainder(row));
  }
};

template <class T>
struct PutBias {
  T* db;
  FQ_HD void operator()(std::int64_t c, const SumOf<T>& sum) const { db[c] = static_cast<T>(sum.value()); }
};

template <class T>
void add_typed_bias(const Tensor& bias, Tensor& y) {
  launch_each(y.device(), y.numel(),
              AddBias<T>{device_data<T>(bias), bias.numel(), updated_device_data<T>(y)});
}

bool has_groups(std::int64_t channels) { return channels % group_size == 0; }

/// Sums of columns in groups. Four groups have the work of the elements of other reductions, and fill a GPU.
template <class T, class Terms>
void sum_groups(std::int64_t count, Terms terms, Tensor& db) {
  const ChannelView groups{db.numel() / group_size, 1, count / group_size};
  reduce_channels(db.device(), groups, ReductionShape::of(groups, 4),
                  SumTerms<GroupSums<SumOf<T>>, Terms>{terms},
                  PutGroup<PutBias<T>>{{mutable_device_data<T>(db)}, db.numel()});
}

// Channels are innermost: inner is 1, and neighbouring threads read neighbouring channels.
template <class T>
void typed_bias_gradient(const Tensor& dy, Tensor& db) {
  if (has_groups(db.numel()))
    return sum_groups<T>(dy.numel(), GradientTerms<T, NoActivation, void>{device_data<T>(dy)}, db);
  reduce_channels(dy.device(), {db.numel(), 1, dy.numel()},
                  SumTerms<SumOf<T>, BiasTerms<T>>{{device_data<T>(dy)}},
                  PutBias<T>{mutable_device_data<T>(db)});
}

template <class Argument, class F>
void scale_groups(const PendingGradient& dy, F f, const Tensor& scales, std::int64_t channels, Tensor& out,
                  Tensor& db) {
  using Terms = GradientTerms<float, F, bfloat16, Argument>;
  const Terms terms{device_data<float>(dy.values),     device_data<std::uint8_t>(dy.mask),
                    device_data<Argument>(dy.saved),   f,
                    device_data<float>(scales),        scales.numel() == 1,
                    mutable_device_data<bfloat16>(out)};
  if (db.defined()) return sum_groups<float>(out.numel(), terms, db);
  launch_groups(out.device(), out.numel(), WithoutSums<Terms>{terms, channels / group_size});
}

}  // namespace

void add_bias(const Tensor& bias, Tensor& y) {
  y.dtype() == DType::f64 ? add_typed_bias<double>(bias, y) : add_typed_bias<float>(bias, y);
}

void bias_gradient(const Tensor& dy, Tensor& db) {
  dy.dtype() == DType::f64 ? typed_bias_gradient<double>(dy, db) : typed_bias_gradient<float>(dy, db);
}

void scale_gradient(const PendingGradient& dy, const Tensor& scales, std::int64_t channels, Tensor& out,
                    Tensor& db) {
  const bool by_channel = scales.numel() == 1 || scales.numel() == channels;
  if (!has_groups(channels) || !by_channel || out.dtype() != DType::bf16) {
    PendingGradient evaluated = dy;
    const Tensor& x = evaluated.evaluate();
    scale_to_bf16(x, scales, channels, out);
    if (db.defined()) bias_gradient(x, db);
    return;
  }
  if (!dy.activation) return scale_groups<float>(dy, NoActivation{}, scales, channels, out, db);
  const bool rounded = dy.saved.dtype() == DType::bf16;
  std::visit(
      [&]<class F>(F f) {
        if constexpr (fq::detail::slope_stays_pending<F>)
          rounded ? scale_groups<bfloat16>(dy, f, scales, channels, out, db)
                  : scale_groups<float>(dy, f, scales, channels, out, db);
        else
          throw BackendError("[scale_gradient] the slope of the function cannot be pending");
      },
      dy.activation->f);
}

}  // namespace fq::cuda
