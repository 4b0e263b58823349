#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/export/safetensors/file.h"
#include "fakequant/export/safetensors/modelopt.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

constexpr std::string_view kAmax = "._amax";
constexpr std::string_view kFactor = "._pre_quant_scale";

/// Quantizer path -> key of the file.
using Keys = std::map<std::string, std::string>;

/// Converts names of pytorch-quantization: "conv1._input_quantizer" is "conv1.input_quantizer" here.
std::string quantizer_path(std::string_view key) {
  std::string out;
  while (!key.empty()) {
    const auto end = std::min(key.find('.'), key.size());
    std::string_view part = key.substr(0, end);
    key.remove_prefix(std::min(end + 1, key.size()));
    if (part.starts_with('_') && part.ends_with("_quantizer")) part.remove_prefix(1);
    out += (out.empty() ? "" : ".") + std::string(part);
  }
  return out;
}

struct Change {
  TensorQuantizer* quantizer;
  Tensor amax, factor;
};

// Whether the quantizer takes a range from the file. A range from its config is never replaced.
bool wants_range(const TensorQuantizer& q) {
  return q.params().enabled && q.descriptor().needs_amax() && !q.descriptor().amax().defined();
}

class Importing {
 public:
  Importing(Module& model, const std::string& path) : model_(model), path_(path), file_(path) {
    for (const auto& entry : file_.entries()) {
      add_key(entry.name, kAmax, ranges_);
      add_key(entry.name, kFactor, factors_);
    }
    note_weights();
  }

  ImportedRanges run() {
    ImportedRanges out;
    // All values are read and checked before the first change, so an error leaves the model unchanged.
    std::vector<Change> changes;
    for (const auto& entry : named_quantizers(model_)) {
      auto& q = *entry.quantizer;
      const Change change{&q, wants_range(q) ? read_range(entry) : Tensor{}, read_factor(entry)};
      if (change.amax.defined()) out.set.push_back(entry.name);
      if (wants_range(q) && !change.amax.defined() && !q.amax().defined()) out.missing.push_back(entry.name);
      changes.push_back(change);
    }
    for (const auto& [q, amax, factor] : changes) {
      if (amax.defined()) q->set_amax(amax);
      if (factor.defined())
        q->update([&factor = factor](QuantParams& params) { params.pre_quant_scale = factor; });
    }
    for (const Keys* keys : {&ranges_, &factors_})
      for (const auto& [quantizer, key] : *keys)
        if (!used_.contains(key)) out.unused.push_back(key);
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& why) const {
    throw FileError(path_, key, fmt::format("[import_ranges] {}: '{}' {}", path_, key, why));
  }

  void add_key(const std::string& key, std::string_view suffix, Keys& keys) {
    if (!key.ends_with(suffix)) return;
    const auto [known, added] = keys.emplace(quantizer_path(key.substr(0, key.size() - suffix.size())), key);
    // "_input_quantizer" and "input_quantizer" of one module have the same path here.
    if (!added) fail(key, fmt::format("and '{}' name one quantizer", known->second));
  }

  void note_weights() {
    for (const auto& [path, module] : model_.named_modules()) {
      auto* quant = dynamic_cast<QuantModule*>(module);
      if (quant == nullptr || quant->weight_quantizer() == nullptr) continue;
      for (const auto* part : quantizer_parts(*quant->weight_quantizer()))
        weights_[part] = quant->quantized_weight().shape();
    }
  }

  /// Returns the values under the names of the quantizer, its own name first.
  std::vector<std::pair<std::string, Tensor>> values(const NamedQuantizer& entry, const Keys& keys,
                                                     float least) {
    std::vector<std::pair<std::string, Tensor>> out;
    auto names = entry.aliases;
    names.insert(names.begin(), entry.name);
    for (const auto& name : names)
      if (const auto key = keys.find(name); key != keys.end()) {
        used_.insert(key->second);
        out.emplace_back(key->second, read(key->second, least));
      }
    return out;
  }

  Tensor read(const std::string& key, float least) const {
    const Tensor stored = file_.read(key);
    if (!is_floating(stored.dtype()))
      fail(key, fmt::format("is {}, not a float type", fq::name(stored.dtype())));
    const Tensor out = stored.to(DType::f32);
    for (const float v : out.to_vector<float>())
      if (!(v >= least && std::isfinite(v))) fail(key, fmt::format("has the value {}", v));
    return out;
  }

  /// Returns the expected shape. No value if the shape depends on the input.
  [[nodiscard]] std::optional<Shape> expected(const TensorQuantizer& q) const {
    const QuantDescriptor& d = q.descriptor();
    // Dynamic blocks have a range of the whole tensor. Ranges per axis of an activation depend on its shape.
    if (d.has_dynamic_blocks() || (d.axis().empty() && d.block_sizes().empty())) return Shape{};
    const auto weight = weights_.find(&q);
    if (weight == weights_.end()) return {};
    return d.granularity(static_cast<int>(weight->second.size())).scale_shape(weight->second);
  }

  Tensor read_range(const NamedQuantizer& entry) {
    const auto found = values(entry, ranges_, 0);
    const auto shape = expected(*entry.quantizer);
    for (const auto& [key, value] : found) {
      if (shape && value.numel() != numel(*shape))
        fail(key, fmt::format("has {} elements {}, the quantizer '{}' has ranges {}", value.numel(),
                              to_string(value.shape()), entry.name, to_string(*shape)));
      if (value.numel() != found[0].second.numel())
        fail(key,
             fmt::format("and '{}' have different numbers of elements for '{}'", found[0].first, entry.name));
    }
    if (found.empty()) return {};
    // The largest range of the aliases clips no value of any of the modules that share the quantizer.
    return ranges_.contains(entry.name) ? found[0].second : largest(found);
  }

  static Tensor largest(const std::vector<std::pair<std::string, Tensor>>& found) {
    Tensor out = found[0].second.clone();
    for (const auto& [key, value] : found)
      for (std::int64_t i = 0; i < out.numel(); ++i)
        out.mutable_data<float>()[i] = std::max(out.data<float>()[i], value.data<float>()[i]);
    return out;
  }

  Tensor read_factor(const NamedQuantizer& entry) {
    // The least normal float: the inverse of a smaller factor may overflow.
    const auto found = values(entry, factors_, std::numeric_limits<float>::min());
    if (found.empty()) return {};
    if (!entry.quantizer->params().enabled)
      fail(found[0].first, fmt::format("is for '{}', which is off: enable the quantizer first", entry.name));
    for (const auto& [key, value] : found)
      if (!bitwise_equal(value, found[0].second))
        fail(key, fmt::format("and '{}' differ, though '{}' is one quantizer", found[0].first, entry.name));
    if (found.size() != entry.aliases.size() + 1)
      fail(found[0].first, fmt::format("is missing for some names of '{}', which {} modules share",
                                       entry.name, entry.aliases.size() + 1));
    return found[0].second;
  }

  Module& model_;
  const std::string& path_;
  SafetensorsFile file_;
  Keys ranges_, factors_;
  std::set<std::string> used_;
  std::map<const TensorQuantizer*, Shape> weights_;
};

}  // namespace

ImportedRanges import_ranges(Module& model, const std::string& path) {
  check_not_compressed(model, "import_ranges");
  return Importing(model, path).run();
}

}  // namespace fq
