#include "fakequant/core/error.h"
#include "fakequant/reference/observers/observers.h"
#include "functions.h"

namespace fq::golden {
namespace {

using torch_ref::ObserverOptions;

std::optional<int> bound(const Case& c, const std::string& attribute) {
  return c.optional_integer(attribute);
}

ObserverOptions case_options(const Case& c, const std::string& scheme) {
  const std::string dtype = c.text("dtype", "quint8");
  if (dtype != "qint8" && dtype != "quint8") throw ArgumentError("[golden] observers of " + dtype);
  ObserverOptions options{dtype == "qint8" ? DType::i8 : DType::u8,
                          torch_ref::qscheme(c.text("qscheme", scheme)), c.flag("reduce_range", false),
                          bound(c, "quant_min"), bound(c, "quant_max")};
  if (c.has("eps")) options.eps = c.number("eps", 0);
  return options;
}

template <class Observer>
Outputs observe(const Case& c, Observer observer) {
  for (const Tensor& batch : c.batches()) observer.observe(batch);
  const auto [scale, zero_point] = observer.calculate_qparams();
  Outputs out{{"scale", scale}, {"zero_point", zero_point}};
  if constexpr (!std::is_same_v<Observer, torch_ref::HistogramObserver>) {
    out["min_val"] = observer.min_val();
    out["max_val"] = observer.max_val();
  }
  return out;
}

Outputs affine_observer(const Case& c) {
  torchao::QParamsOptions options;
  options.range = {bound(c, "quant_min"), bound(c, "quant_max")};
  if (c.has("eps")) options.eps = c.number("eps", 0);
  if (c.has("scale_dtype")) options.scale_dtype = dtype_named(c.text("scale_dtype"));
  if (c.has("zero_point_dtype")) options.zero_point_dtype = dtype_named(c.text("zero_point_dtype"));
  const auto axis = c.optional_integer("axis");
  const auto mapping = torchao::mapping_type(c.text("mapping_type"));
  const auto type = torchao::IntegerType::named(c.text("target_dtype"));
  using Observer = torchao::AffineQuantizedMinMaxObserver;
  if (axis) return observe(c, Observer(mapping, type, torchao::PerAxis{*axis}, options));
  return observe(c, Observer(mapping, type, torchao::PerTensor{}, options));
}

}  // namespace

void add_observers(Functions& functions) {
  functions["minmax_observer"] = [](const Case& c) {
    return observe(c, torch_ref::MinMaxObserver(case_options(c, "per_tensor_affine")));
  };
  functions["moving_average_minmax_observer"] = [](const Case& c) {
    return observe(c, torch_ref::MovingAverageMinMaxObserver(c.number("averaging_constant", 0.01),
                                                             case_options(c, "per_tensor_affine")));
  };
  functions["per_channel_minmax_observer"] = [](const Case& c) {
    return observe(c, torch_ref::PerChannelMinMaxObserver(c.integer("ch_axis", 0),
                                                          case_options(c, "per_channel_affine")));
  };
  functions["moving_average_per_channel_minmax_observer"] = [](const Case& c) {
    return observe(c, torch_ref::MovingAveragePerChannelMinMaxObserver(
                          c.number("averaging_constant", 0.01), c.integer("ch_axis", 0),
                          case_options(c, "per_channel_affine")));
  };
  functions["histogram_observer"] = [](const Case& c) {
    return observe(
        c, torch_ref::HistogramObserver(case_options(c, "per_tensor_affine"), c.integer("bins", 2048)));
  };
  functions["affine_quantized_minmax_observer"] = affine_observer;
}

}  // namespace fq::golden
