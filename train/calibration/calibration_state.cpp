#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"

namespace fq {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const std::string& name, const std::string& what) {
  throw FileError(path, name, fmt::format("[load_calibration] {}: {} {}", path, name, what));
}

// Row-major bytes, so that the layout of a device or of channels_last does not matter.
std::uint32_t checksum(const Tensor& values, std::uint32_t before = 0) {
  const Tensor rows = values.to(Device::cpu()).to(Layout::row_major);
  return crc32c(rows.raw(), static_cast<std::size_t>(rows.nbytes()), before);
}

bool is_count(const Json& object, const char* key) {
  return object.contains(key) && detail::whole_if<std::int64_t>(object[key], 0);
}

// Returns the CRC-32C of each parameter and buffer, without learned ranges: these differ before and after
// calibration.
Json checksums(const Module& model) {
  Json out = Json::object();
  for (const auto& [name, value] : model.named_parameters())
    if (!name.ends_with("_quantizer.amax")) out[name] = checksum(value.tensor());
  for (const auto& [name, value] : model.named_buffers()) out[name] = checksum(value);
  return out;
}

/// Returns the settings that the collected numbers depend on. Searches try the codes of a format, so that
/// they depend on bits and sign. For other methods, bits and sign matter only for the choice of a range.
Json settings(const TensorQuantizer& q) {
  Json out = Json::object(), all = q.descriptor().dict();
  for (const char* key : {"axis", "block_sizes"})
    if (all.contains(key)) out[key] = all[key];
  const std::string& method = q.descriptor().calib_method();
  out["calib_method"] = method;
  if (detail::find_calib_method(method)->tries_codes)
    for (const char* key : {"num_bits", "narrow_range"})
      if (all.contains(key)) out[key] = all[key];
  if (q.params().pre_quant_scale.defined()) out["pre_quant_scale"] = checksum(q.params().pre_quant_scale);
  return out;
}

void check_model(Module& model, const StateDict& state, const std::string& path) {
  const Json here = checksums(model);
  const Json there = state.has_attribute("parameters") ? state.attribute("parameters") : Json::object();
  for (const auto& [name, sum] : here.items())
    if (!there.is_object() || !there.contains(name) || there[name] != sum)
      refuse(path, name, "differs in this model: the state was collected with another model");
}

std::vector<detail::CalibrationTarget> activations(Module& model) {
  auto out = detail::calibration_targets(model, false);
  std::erase_if(out, [](const auto& target) { return target.is_weight(); });
  return out;
}

void check_calibrated(Module& model, const StateDict& state, const std::string& path) {
  std::set<std::string> known;
  for (const auto& [entry, weight] : activations(model)) {
    const std::string prefix = "quantizers/" + entry.name;
    known.insert(entry.name);
    if (!state.has_sub(prefix)) {
      // A quantizer with a range needs no statistics.
      if (entry.quantizer->amax().defined()) continue;
      refuse(path, prefix, "is missing: the state belongs to another model or other settings");
    }
    const Json here = settings(*entry.quantizer);
    const Json there =
        state.has_attribute(prefix + "/settings") ? state.attribute(prefix + "/settings") : Json();
    if (here != there)
      refuse(path, prefix, fmt::format("was collected with {}, here it is {}", there.dump(), here.dump()));
  }
  // A state with more quantizers belongs to another model, too.
  const StateDict saved = state.sub("quantizers");
  for (const auto& [key, value] : saved.attributes().items())
    if (const std::string name = key.substr(0, key.find('/')); !known.contains(name))
      refuse(path, "quantizers/" + name,
             "is not in this model: the state belongs to another model or other settings");
}

std::int64_t read_samples(const StateDict& state, const std::string& path) {
  const Json samples = state.has_attribute("samples") ? state.attribute("samples") : Json();
  const auto count = detail::whole_if<std::int64_t>(samples, 0);
  if (!count) refuse(path, "samples", fmt::format("is {}: it must be a count", samples.dump()));
  return *count;
}

using Take = std::function<void(TensorQuantizer&, const StateDict&, const std::string&)>;

std::int64_t take_state(Module& model, const StateDict& state, const std::string& path, const Take& take,
                        bool keep = true) {
  const std::int64_t samples = read_samples(state, path);
  check_model(model, state, path);
  check_calibrated(model, state, path);
  std::vector<TensorQuantizer*> quantizers;
  for (const auto& target : activations(model)) quantizers.push_back(target.entry.quantizer);
  // Restores all quantizers if one of them fails, and in any case with keep = false (`check_merges`).
  detail::CalibrationUndo undo(quantizers);
  for (const auto& [entry, weight] : activations(model)) {
    const std::string prefix = "quantizers/" + entry.name;
    try {
      take(*entry.quantizer, state, prefix);
    } catch (const ArgumentError& error) {
      refuse(path, prefix, fmt::format("cannot be used: {}", error.what()));
    }
  }
  if (keep) undo.keep();
  return samples;
}

void merge_quantizer(TensorQuantizer& q, const StateDict& from, const std::string& prefix) {
  q.observer().merge(from, prefix);
}

}  // namespace

CalibrationShare calibration_share(DataLoader& data) {
  CalibrationShare out;
  data.start_epoch(0);
  while (const auto batch = data.next()) {
    out.images += batch->size();
    // The checksum continues over the batches, so that the batch size does not matter.
    out.checksum = checksum(batch->x, out.checksum);
  }
  return out;
}

std::vector<CalibrationShare> calibration_shares(const StateDict& state, const std::string& path) {
  std::vector<CalibrationShare> out;
  const Json shares = state.has_attribute("shares") ? state.attribute("shares") : Json::array();
  for (const Json& share : shares.is_array() ? shares : Json{shares}) {
    if (!share.is_object() || !is_count(share, "images") || !is_count(share, "crc32c") ||
        share["crc32c"] > std::numeric_limits<std::uint32_t>::max())
      refuse(path, "shares", fmt::format("has {}: each has images and crc32c", share.dump()));
    out.push_back({detail::whole_value<std::int64_t>(share["images"]),
                   detail::whole_value<std::uint32_t>(share["crc32c"])});
  }
  return out;
}

StateDict calibration_state(Module& model, std::int64_t samples,
                            const std::vector<CalibrationShare>& shares) {
  StateDict out;
  out.set_attribute("samples", samples);
  Json listed = Json::array();
  for (const auto& share : shares) listed.push_back({{"images", share.images}, {"crc32c", share.checksum}});
  if (!listed.empty()) out.set_attribute("shares", listed);
  out.set_attribute("parameters", checksums(model));
  for (const auto& [entry, weight] : activations(model)) {
    const std::string prefix = "quantizers/" + entry.name;
    // `save` writes nothing for a quantizer without statistics; it gets no settings then, either.
    const std::size_t before = out.attributes().size();
    entry.quantizer->observer().save(out, prefix);
    if (out.attributes().size() > before) out.set_attribute(prefix + "/settings", settings(*entry.quantizer));
  }
  return out;
}

std::int64_t load_calibration_state(Module& model, const StateDict& state, const std::string& path) {
  return take_state(model, state, path,
                    [](TensorQuantizer& q, const StateDict& from, const std::string& prefix) {
                      q.observer().load(from, prefix);
                    });
}

std::int64_t merge_calibration_state(Module& model, const StateDict& state, const std::string& path) {
  return take_state(model, state, path, merge_quantizer);
}

void check_merges(Module& model, const StateDict& state, const std::string& path) {
  static_cast<void>(take_state(model, state, path, merge_quantizer, false));
}

void save_calibration(Module& model, const std::string& path, std::int64_t samples,
                      const std::vector<CalibrationShare>& shares) {
  save_state(path, calibration_state(model, samples, shares), "calibration");
}

std::int64_t load_calibration(Module& model, const std::string& path) {
  return load_calibration_state(model, load_state(path, "calibration"), path);
}

std::int64_t merge_calibration(Module& model, const std::string& path) {
  return merge_calibration_state(model, load_state(path, "calibration"), path);
}

}  // namespace fq
