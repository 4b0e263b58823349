#include "fakequant/core/backend/cpu/elementwise/activations.h"

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {

void activate(const Tensor& x, const detail::Activation& activation, Tensor& y) {
  detail::visit_float(x.dtype(), "activation", [&]<class T>(T) {
    std::visit([&](auto f) { map<T>(x, y, [f](T v) { return f.value(v); }); }, activation.f);
  });
}

void activate_backward(const Tensor& dy, const Tensor& saved, const detail::Activation& activation,
                       Tensor& dx) {
  detail::visit_float(dy.dtype(), "backward", [&]<class T>(T) {
    std::visit([&](auto f) { map<T>(dy, saved, dx, [f](T g, T v) { return g * f.slope(v); }); },
               activation.f);
  });
}

}  // namespace fq::cpu
