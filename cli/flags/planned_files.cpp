#include "fakequant/cli/flags/planned_files.h"

#include <filesystem>

#include <fmt/format.h>

#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

std::string key_of(const std::string& path) {
  std::string key = std::filesystem::path(path).lexically_normal().string();
  while (key.size() > 1 && key.ends_with('/')) key.pop_back();
  return key;
}

}  // namespace

void PlannedFiles::add(const std::string& path, const Network& network) {
  identities_[key_of(path)] = network.identity();
}

void PlannedFiles::add(const std::string& path) { identities_[key_of(path)] = std::nullopt; }

bool PlannedFiles::holds(const std::string& path) const { return identities_.contains(key_of(path)); }

std::optional<Network> PlannedFiles::network(const std::string& path) const {
  const auto found = identities_.find(key_of(path));
  if (found == identities_.end()) return load_network(path);
  if (!found->second) return std::nullopt;
  return Network::create(*found->second);
}

void PlannedFiles::check_there(const std::string& command, const std::string& flag,
                               const std::string& path) const {
  std::error_code error;
  if (holds(path) || std::filesystem::exists(path, error)) return;
  throw FileError(
      path, {},
      fmt::format("[{}] --{}: there is no file {}, and no phase before writes it", command, flag, path));
}

void stand_in_ranges(Network& network) {
  for (const auto& entry : named_quantizers(network.module())) {
    auto& quantizer = *entry.quantizer;
    if (quantizer.descriptor().needs_amax() && !quantizer.amax().defined())
      quantizer.set_amax(Tensor::scalar(1));
  }
}

}  // namespace fq::cli
