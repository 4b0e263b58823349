#include "fakequant/core/backend/cuda/elementwise/activations.h"
#include "fakequant/core/backend/cuda/loops/map.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {
namespace {

template <class F>
struct Value {
  F f;
  template <class T>
  FQ_HD T operator()(T x) const {
    return f.value(x);
  }
};

template <class F>
struct Gradient {
  F f;
  template <class T>
  FQ_HD T operator()(T dy, T saved) const {
    return dy * f.slope(saved);
  }
};

}  // namespace

void activate(const Tensor& x, const fq::detail::Activation& activation, Tensor& y) {
  visit_float(x.dtype(), [&]<class T>(T) {
    std::visit([&]<class F>(F f) { map<T>(x, y, Value<F>{f}); }, activation.f);
  });
}

void activate_backward(const Tensor& dy, const Tensor& saved, const fq::detail::Activation& activation,
                       Tensor& dx) {
  visit_float(dy.dtype(), [&]<class T>(T) {
    std::visit([&]<class F>(F f) { map<T>(dy, saved, dx, Gradient<F>{f}); }, activation.f);
  });
}

}  // namespace fq::cuda
