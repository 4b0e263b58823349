#include "fakequant/core/backend/cuda/codes/channel_reader.cuh"
#include "fakequant/core/backend/cuda/codes/group_codes.cuh"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/activations.h"

namespace fq::cuda {
namespace {

struct AddSums {
  SumsPlusFloats total;
  float* out;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    total.values(first, count, v);
    store_group(out + first, count, v);
  }
};

/// `Out` takes the values of the function: PlainFloats or TensorCodes.
template <class F, class Input, class Out>
struct ActivateSums {
  ChannelSums sums;
  F f;
  Input* input;  // may be null
  Out out;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    sums.values(first, count, v);
    if (input != nullptr) store_converted(input + first, count, v);
    for (int j = 0; j < group_size; ++j) v[j] = j < count ? f.value(v[j]) : 0.0f;
    out.put(first, count, v);
  }
};

/// Calls f with a function that `activate_sums` computes.
template <class Call>
void visit_function(const fq::detail::Activation& f, const Call& call) {
  std::visit(
      [&]<class F>(const F& own) {
        if constexpr (fq::detail::follows_products<F>)
          call(own);
        else
          throw BackendError("[activate_sums] the function has no kernel for sums");
      },
      f.f);
}

template <class Input, class Out>
void activate_into(const Accumulator& sums, const fq::detail::Activation& f, Tensor* input, const Out& out) {
  const ChannelReader reader(sums);
  Input* kept = input != nullptr ? mutable_device_data<Input>(*input) : nullptr;
  visit_function(f, [&]<class F>(const F& own) {
    launch_groups(sums.device(), numel(sums.shape()),
                  ActivateSums<F, Input, Out>{reader.source(), own, kept, out});
  });
}

template <class Out>
void activate_typed(const Accumulator& sums, const fq::detail::Activation& f, Tensor* input, const Out& out) {
  const bool half = input != nullptr && input->dtype() == DType::bf16;
  half ? activate_into<bfloat16>(sums, f, input, out) : activate_into<float>(sums, f, input, out);
}

}  // namespace

void add_sums(const Accumulator& sums, const Tensor& x, Tensor& out) {
  if (out.numel() == 0) return;
  const ChannelReader reader(sums);
  launch_groups(out.device(), out.numel(),
                AddSums{{reader.source(), device_data<float>(x)}, mutable_device_data<float>(out)});
}

void activate_sums(const Accumulator& sums, const fq::detail::Activation& f, Tensor* input, Tensor* y,
                   QuantizedTensor* codes, const std::string& nan_text) {
  if (numel(sums.shape()) == 0) return;
  if (y != nullptr)
    activate_typed(sums, f, input, PlainFloats<float>{mutable_device_data<float>(*y)});
  else
    activate_typed(sums, f, input, TensorCodes::of(*codes, nan_text));
}

}  // namespace fq::cuda
