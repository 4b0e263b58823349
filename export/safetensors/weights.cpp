#include "fakequant/export/safetensors/weights.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/export/safetensors/detail/weight_names.h"
#include "fakequant/export/safetensors/detail/weight_source.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq {
namespace {

using Names = std::vector<std::string>;

constexpr std::size_t kMostListed = 20;
constexpr std::size_t kNearest = 2;

std::map<std::string, Tensor> state_tensors(const Module& model) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, value] : model.named_parameters()) out.emplace(name, value.tensor());
  for (const auto& [name, value] : model.named_buffers()) out.emplace(name, value);
  return out;
}

/// Returns the names of parameters and buffers in the model.
Names state_names(const Module& model) {
  Names out;
  for (const auto& [name, value] : model.named_parameters()) out.push_back(name);
  for (const auto& [name, value] : model.named_buffers()) out.push_back(name);
  return out;
}

// Files store a 1x1 convolution as [out, in, 1, 1] or [out, in].
Shape squeezed_shape(const Shape& shape) {
  Shape out;
  std::ranges::copy_if(shape, std::back_inserter(out), [](std::int64_t size) { return size != 1; });
  return out;
}

/// Returns the mismatch between a tensor and its parameter. Empty if there is none.
std::string misfit(const SafetensorsEntry& entry, const Tensor& place) {
  // Integers without scales are codes, whose values are unknown.
  if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16" && entry.dtype != "F64")
    return fmt::format("is {}: use F32, F16, BF16 or F64", entry.dtype);
  if (squeezed_shape(entry.shape) == squeezed_shape(place.shape())) return {};
  Shape reversed(entry.shape.rbegin(), entry.shape.rend());
  const bool transposed = entry.shape.size() == 2 && reversed == place.shape();
  return fmt::format("is {}, the model's is {}{}", to_string(entry.shape), to_string(place.shape()),
                     transposed ? " (transposed)" : "");
}

std::string near(const std::string& name, const Names& names) {
  const auto found = detail::nearest(name, names, kNearest);
  return found.empty() ? "" : fmt::format(" (nearest: {})", fmt::join(found, ", "));
}

/// Returns a list for a message, with at most kMostListed names.
std::string name_list(const Names& all) {
  const Names shown(all.begin(), all.begin() + std::ptrdiff_t(std::min(all.size(), kMostListed)));
  const std::string rest =
      all.size() > kMostListed ? fmt::format(" and {} more", all.size() - kMostListed) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), rest);
}

class Loading {
 public:
  Loading(Module& model, const std::string& path, const WeightOptions& options)
      : path_(path), options_(options), source_(path), places_(state_tensors(model)) {
    Names file;
    for (const auto& entry : source_.entries()) {
      entries_.emplace(entry.name, &entry);
      // A counter of PyTorch's batch norms, which has no parameter here.
      if (!entry.name.ends_with("num_batches_tracked")) file.push_back(entry.name);
    }
    match_ = detail::match_weights(state_names(model), file, options.renames);
  }

  LoadedWeights run() {
    // Pairs of different shapes are removed first, so that `check_names` counts only the usable ones.
    check_shapes();
    check_names();
    // All values are read before the first copy, so an error leaves the model unchanged.
    std::vector<std::pair<Tensor, Tensor>> changes;
    for (const auto& [place, name] : match_.places) {
      Tensor target = places_.at(place);
      changes.emplace_back(target, read_value(name, place, target));
      out_.set.emplace_back(place, name);
    }
    for (auto& [target, value] : changes) target.copy_from(value);
    out_.kept.insert(out_.kept.end(), match_.missing.begin(), match_.missing.end());
    for (const Names* names : {&match_.extra, &match_.dropped})
      out_.unused.insert(out_.unused.end(), names->begin(), names->end());
    return std::move(out_);
  }

 private:
  void check_shapes() {
    for (auto at = match_.places.begin(); at != match_.places.end();) {
      const std::string why = misfit(*entries_.at(at->second), places_.at(at->first));
      if (why.empty()) {
        ++at;
        continue;
      }
      misshaped_.push_back(fmt::format("{} {}", at->second, why));
      if (options_.partial) {
        out_.kept.push_back(at->first);
        out_.unused.push_back(at->second);
      }
      at = match_.places.erase(at);
    }
  }

  void check_names() const {
    Names parts;
    const auto part = [&](const char* what, const Names& names) {
      if (!names.empty()) parts.push_back(fmt::format("{} {}: {}", names.size(), what, name_list(names)));
    };
    part("renames fit no tensor", described(match_.idle, file_names()));
    if (!options_.partial) {
      // Names without a partner are the likeliest suggestions. If there are none, all names are.
      part("missing in it", described(match_.missing, match_.extra.empty() ? file_names() : match_.extra));
      part("without a parameter in the model",
           described(match_.extra, match_.missing.empty() ? model_names() : match_.missing));
      part("of other shapes or types", misshaped_);
    }
    if (match_.places.empty() && parts.empty()) parts.push_back("no tensor of it fits");
    if (parts.empty()) return;
    fail({}, fmt::format("{} does not fit the model: {}. Rename tensors with --map, or load the matching "
                         "ones with --init-partial",
                         path_, fmt::join(parts, "; ")));
  }

  [[nodiscard]] Names described(const Names& names, const Names& others) const {
    Names out;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto renamed = match_.renamed.find(names[i]);
      const std::string as = renamed == match_.renamed.end() ? "" : fmt::format(" (as {})", renamed->second);
      const std::string& looked_for = as.empty() ? names[i] : renamed->second;
      // The search for near names is slow for thousands of names, so only the listed names get one.
      out.push_back(i < kMostListed ? names[i] + as + near(looked_for, others) : names[i]);
    }
    return out;
  }
  [[nodiscard]] Names file_names() const {
    Names out;
    for (const auto& entry : source_.entries()) out.push_back(entry.name);
    return out;
  }
  [[nodiscard]] Names model_names() const {
    Names out;
    for (const auto& [name, tensor] : places_) out.push_back(name);
    return out;
  }

  [[nodiscard]] Tensor read_value(const std::string& name, const std::string& place,
                                  const Tensor& target) const {
    // Shapes may differ by axes of length 1. A value beyond f32 becomes an infinity, which is an error.
    const Tensor value = source_.read(name).to(target.dtype()).reshape(target.shape());
    if (const auto bad = detail::find_not_finite({{place, value}}))
      fail(name, fmt::format("{}: {} is {} at element {}", path_, name, bad->value, bad->index));
    return value;
  }
  [[noreturn]] void fail(const std::string& tensor, const std::string& why) const {
    throw FileError(path_, tensor, "[load_weights] " + why);
  }

  std::string path_;
  const WeightOptions& options_;
  detail::WeightSource source_;
  std::map<std::string, Tensor> places_;
  std::map<std::string, const SafetensorsEntry*> entries_;
  detail::WeightMatch match_;
  Names misshaped_;
  LoadedWeights out_;
};

}  // namespace

std::vector<WeightRename> read_weight_renames(const std::string& path) {
  const auto text = detail::JsonText::load(path, "map");
  const detail::JsonValue root(*text);
  if (!root.is_object()) root.fail("use an object of names in the file and names in the model");
  std::vector<WeightRename> out;
  for (const auto& [from, to] : root.json().items()) {
    const auto value = root.at(from);
    if (from.empty()) value.fail("a name in the file is empty");
    out.push_back({from, to.is_null() ? "" : value.string()});
    const std::string& name = out.back().to;
    if (!to.is_null() && name.empty())
      value.fail(fmt::format("'{}' gets no name: use null to leave it out", from));
    if (std::ranges::count(name, '*') > std::ranges::count(from, '*'))
      value.fail(fmt::format("'{}' has more * than '{}'", name, from));
  }
  return out;
}

LoadedWeights load_weights(Module& model, const std::string& path, const WeightOptions& options) {
  FQ_CHECK(!is_compressed(model), "load_weights", "the model's weights are compressed: uncompress it first");
  return Loading(model, path, options).run();
}

}  // namespace fq
