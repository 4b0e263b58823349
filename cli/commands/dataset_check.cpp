#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/train/data/detail/checks/data_checks.h"

namespace fq::cli {
namespace {

using fq::detail::Finding;
using fq::detail::Verdict;
using nlohmann::ordered_json;

void print(const Finding& finding, Output& output) {
  output.line(fmt::format("{:<5} {:<6} {:<10} {}", name(finding.verdict), finding.group, finding.about,
                          finding.text));
}

}  // namespace

FlagSet check_data_flags() {
  FlagSet set(
      "dataset check",
      "Reads a data set and says, a line each, what it holds and what may be wrong with it: shapes, values, "
      "labels, balance and duplicates. Exit status 1 where something is wrong.",
      "FILE [flags]");
  set.group("Data set")
      .argument("file", "FILE", "the data set")
      .toggle("strict", "what is doubted is wrong, too");
  add_plain_flags(set);
  return set;
}

ordered_json check_data(const Flags& flags, Output& output) {
  const std::string path = flags.required("file");
  const auto stop = [](std::int64_t) {
    if (stop_requested()) throw Interrupted("dataset check");
  };
  ordered_json list = ordered_json::array();
  std::int64_t wrong = 0, doubts = 0;
  for (const Finding& finding : fq::detail::check_data_set(path, stop)) {
    print(finding, output);
    wrong += finding.verdict == Verdict::wrong ? 1 : 0;
    doubts += finding.verdict == Verdict::doubt ? 1 : 0;
    list.push_back({{"verdict", name(finding.verdict)},
                    {"group", finding.group},
                    {"about", finding.about},
                    {"text", finding.text}});
  }
  output.line(fmt::format("{}: {} wrong, {} doubted", path, wrong, doubts));
  ordered_json result{{"file", path}, {"wrong", wrong}, {"doubted", doubts}, {"findings", std::move(list)}};
  if (wrong > 0 || (flags.on("strict") && doubts > 0))
    throw FailedCheck(fmt::format("[dataset check] {}: {} wrong, {} doubted", path, wrong, doubts),
                      std::move(result));
  return result;
}

}  // namespace fq::cli
