#include "fakequant/core/backend/cuda/loops/map.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/activations.h"

namespace fq::cuda {
namespace {

// The formulas of the host (numerics/detail/activations.h).
template <class F>
struct Value {
  F f;
  template <class T>
  FQ_HD T operator()(T x) const {
    return f.value(x);
  }
};

// `saved` is the output of the function if F::of_output, else its input.
template <class F>
struct Gradient {
  F f;
  template <class T>
  FQ_HD T operator()(T dy, T saved) const {
    return dy * f.slope(saved);
  }
};

// `saved` is the input, rounded to bf16.
template <class F>
struct RoundedGradient {
  const float* dy;
  const bfloat16* saved;
  float* dx;
  F f;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size], x[group_size];
    load_group(dy + first, count, v);
    load_converted(saved + first, count, x);
    for (int j = 0; j < group_size; ++j)
      if (j < count) v[j] = v[j] * f.slope(x[j]);
    store_group(dx + first, count, v);
  }
};

// Two Philox blocks of four numbers per thread.
struct KeepMask {
  fq::detail::DropoutBlocks blocks;
  const std::uint64_t* step;  // null: use the step of `blocks`
  std::uint8_t* mask;
  FQ_HD void operator()(std::int64_t first, int count) const {
    std::uint8_t keep[group_size];
    fq::detail::DropoutBlocks own = blocks;
    // A captured launch must not reuse the step of its capture: each training step has its own mask.
    if (step != nullptr) own.step = *step;
    own.keep(first / 4, keep);
    own.keep(first / 4 + 1, keep + 4);
    store_group(mask + first, count, keep);
  }
};

template <class T>
struct Keep {
  const T* x;
  const std::uint8_t* mask;
  T* y;
  fq::detail::Kept<T> kept;
  FQ_HD void operator()(std::int64_t first, int count) const {
    T v[group_size];
    std::uint8_t keep[group_size];
    load_group(x + first, count, v);
    load_group(mask + first, count, keep);
    for (int j = 0; j < group_size; ++j)
      if (j < count) v[j] = kept(v[j], keep[j]);
    store_group(y + first, count, v);
  }
};

}  // namespace

void activate(const Tensor& x, const fq::detail::Activation& activation, Tensor& y) {
  visit_float(x.dtype(), [&]<class T>(T) {
    // One kernel per activation and dtype: the formula is known at compile time.
    std::visit([&]<class F>(F f) { map<T>(x, y, Value<F>{f}); }, activation.f);
  });
}

void activate_backward(const Tensor& dy, const Tensor& saved, const fq::detail::Activation& activation,
                       Tensor& dx) {
  if (saved.dtype() == DType::bf16)
    return std::visit(
        [&]<class F>(const F& f) {
          if constexpr (fq::detail::follows_products<F>)
            launch_groups(dx.device(), dx.numel(),
                          RoundedGradient<F>{device_data<float>(dy), device_data<bfloat16>(saved),
                                             mutable_device_data<float>(dx), f});
          else
            throw BackendError("[activate_backward] the function has no kernel for a bf16 input");
        },
        activation.f);
  visit_float(dy.dtype(), [&]<class T>(T) {
    std::visit([&]<class F>(F f) { map<T>(dy, saved, dx, Gradient<F>{f}); }, activation.f);
  });
}

void keep_mask(const fq::detail::DropoutBlocks& blocks, Tensor& mask) {
  const Device device = mask.device();
  launch_groups(device, mask.numel(),
                KeepMask{blocks, captured_step(device), mutable_device_data<std::uint8_t>(mask)});
}

void keep(const Tensor& x, const Tensor& mask, double scale, Tensor& y) {
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_groups(x.device(), x.numel(),
                  Keep<T>{device_data<T>(x),
                          device_data<std::uint8_t>(mask),
                          mutable_device_data<T>(y),
                          {static_cast<T>(scale)}});
  });
}

}  // namespace fq::cuda
