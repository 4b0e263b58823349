#include "fakequant/core/descriptor_fields.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/trace.h"

namespace fq {
namespace {

Tensor without_negative_zero(const Tensor& values) {
  Tensor out = values.to(Device::cpu()).to(Layout::row_major).to(DType::f32).clone();
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) v[i] += 0.0f;
  return out;
}

Tensor list(std::initializer_list<double> values) {
  return Tensor::from(std::vector<double>(values), {static_cast<std::int64_t>(values.size())});
}

}  // namespace

std::string to_string(const NumBits& bits) {
  return bits.is_integer() ? fmt::format("{}", bits.bits())
                           : fmt::format("({}, {})", bits.exponent(), bits.mantissa());
}

Amax::Amax(double value) : value_(without_negative_zero(Tensor::scalar(value, DType::f64))) {}
Amax::Amax(std::initializer_list<double> values) : value_(without_negative_zero(list(values))) {}
Amax::Amax(const std::vector<float>& values)
    : value_(without_negative_zero(Tensor::from(values, {static_cast<std::int64_t>(values.size())}))) {}
Amax::Amax(const Tensor& values) {
  FQ_CHECK(
      !values.defined() || !values.device().is_meta(), "amax",
      "amax is computed from an input that has no values, in '{}': where a model is traced, give a constant",
      module_path());
  if (values.defined()) value_ = without_negative_zero(values);
}

std::span<const float> Amax::values() const {
  if (!defined()) return {};
  return {value_.data<float>(), static_cast<std::size_t>(value_.numel())};
}

bool operator==(const Amax& a, const Amax& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return bitwise_equal(a.value_, b.value_);
}

}  // namespace fq
