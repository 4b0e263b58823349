#include "fakequant/export/scales.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/io/atomic_file.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/layers/quantize.h"

namespace fq {
namespace {

using nlohmann::json;

json format_json(const Format& format) {
  if (!format.is_integer())
    return {{"type", "float"},
            {"exponent", format.floating().exponent},
            {"mantissa", format.floating().mantissa}};
  const IntFormat& f = format.integer();
  return {{"type", "int"}, {"bits", f.bits}, {"unsigned", f.is_unsigned}, {"narrow_range", f.narrow_range}};
}

json values_json(const Tensor& values) {
  return values.rank() == 0 ? json(values.item()) : json(values.to_vector<float>());
}

json granularity_json(const QuantDescriptor& descriptor) {
  if (!descriptor.block_sizes().empty()) return {{"blocks", descriptor.dict()["block_sizes"]}};
  const auto& axes = descriptor.axis().values();
  if (axes.empty()) return "tensor";
  return {{"axis", axes.size() == 1 ? json(axes[0]) : json(axes)}};
}

/// Not where each input has its own.
bool has_scales(const TensorQuantizer& q) {
  return q.enabled() && q.descriptor().needs_amax() && !q.descriptor().has_dynamic_blocks();
}

json quantizer_json(const NamedQuantizer& entry) {
  const TensorQuantizer& q = *entry.quantizer;
  json out{{"name", entry.name},
           {"aliases", entry.aliases},
           {"enabled", q.enabled()},
           {"format", format_json(q.descriptor().format())},
           {"granularity", granularity_json(q.descriptor())},
           {"dynamic", q.descriptor().dynamic() || q.descriptor().has_dynamic_blocks()},
           {"zero_point", q.zero_point()}};
  if (has_scales(q)) {
    const QuantSpec spec = q.spec();
    out["amax"] = values_json(spec.amax);
    out["scale"] = values_json(spec.scale);
  } else if (q.enabled() && q.amax().defined()) {
    out["amax"] = values_json(q.amax());
  }
  return out;
}

}  // namespace

json scales_json(Module& model) {
  json quantizers = json::array();
  for_each_quantizer(model,
                     [&](const NamedQuantizer& entry) { quantizers.push_back(quantizer_json(entry)); });
  return {{"format", "fakequant-scales"}, {"version", 1}, {"quantizers", std::move(quantizers)}};
}

void save_scales_json(const std::string& path, Module& model) {
  write_file(path, scales_json(model).dump(2) + "\n");
}

void save_scales_h5(const std::string& path, Module& model) {
  StateDict state;
  state.set_attribute("scales", scales_json(model));
  for_each_quantizer(model, [&](const NamedQuantizer& entry) {
    const TensorQuantizer& q = *entry.quantizer;
    if (!has_scales(q)) return;
    const QuantSpec spec = q.spec();
    state.set(entry.name + "/amax", spec.amax);
    state.set(entry.name + "/scale", spec.scale);
    state.set(entry.name + "/zero_point", Tensor::scalar(q.zero_point(), DType::i32));
  });
  save_state(path, state, "scales");
}

}  // namespace fq
