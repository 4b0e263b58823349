#include "fakequant/cli/weight_algorithm.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

DataLoader own_batches(const DataLoader& data) {
  return fq::detail::loader_beside(data, share_of_rank(data.options(), *run_ranks()));
}

}  // namespace

void check_weight_algorithm(const ptq::Algorithm& algorithm, const Flags& flags, bool images) {
  const std::string& name = algorithm.name();
  if (name.empty()) return;
  FQ_CHECK(!flags.knows("state") || flags.text("state").empty(), flags.command(),
           "--state keeps what the network collects as it is, and {} changes it: collect without an "
           "algorithm, then give the states to --merge",
           name);
  FQ_CHECK(!algorithm.runs_before() || !flags.knows("merge") || flags.list("merge").empty(), flags.command(),
           "{} changes the network that the states of --merge were collected with: calibrate in one go",
           name);
  FQ_CHECK(images, flags.command(), "{} looks at samples: give --data, and a --method that is not none",
           name);
}

void WeightAlgorithm::before(Network& network, const DataLoader& data, Output& output) {
  DataLoader own = own_batches(data);
  tell(algorithm_.before(network.module(), own, run_ranks()), output);
}

void WeightAlgorithm::after(Network& network, const DataLoader& data, Output& output) {
  DataLoader own = own_batches(data);
  tell(algorithm_.after(network.module(), own, run_ranks()), output);
  FQ_CHECK(changed_ > 0 || algorithm_.name().empty(), "calibrate",
           "{} found no layer that it can change{}: use another algorithm or format, or none",
           algorithm_.name(), reason_);
}

void WeightAlgorithm::tell(const ptq::Report& report, Output& output) {
  const std::string& name = algorithm_.name();
  const auto object = [&](const std::string& path) {
    return nlohmann::ordered_json{{"event", "weight_algorithm"}, {"algorithm", name}, {"layer", path}};
  };
  for (const auto& [path, before, after] : report.layers) {
    auto told = object(path);
    told["before"] = before;
    told["after"] = after;
    output.record(fmt::format("{} {:<32} {:.6g} -> {:.6g}", name, path, before, after), told);
  }
  for (const auto& [path, reason] : report.skipped) {
    auto told = object(path);
    told["skipped"] = reason;
    output.record(fmt::format("{} {:<32} left alone: it {}", name, path, reason), told);
    if (reason_.empty()) reason_ = fmt::format(" ('{}' {})", path, reason);
  }
  changed_ += report.layers.size();
}

}  // namespace fq::cli
