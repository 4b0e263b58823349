#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/train/data/detail/checks/data_checks.h"

namespace fq::cli {
namespace {

using fq::detail::Verdict;
using nlohmann::ordered_json;

void print(const fq::detail::Finding& finding, Output& output) {
  output.line(fmt::format("{:<5} {:<6} {:<10} {}", name(finding.verdict), finding.group, finding.about,
                          finding.text));
}

struct CheckDataOptions {
  std::string file;
  bool strict = false;
  GeneralOptions general;
};

FlagSet check_data_flags(CheckDataOptions& options) {
  FlagSet set("dataset check",
              "Reads a data set and prints its content and possible errors: shapes, values, labels, "
              "balance and duplicates. Exit status 1 if something is wrong.",
              "FILE [flags]");
  set.group("Data set")
      .argument(options.file, "file", "FILE", "the data set")
      .required()
      .toggle(options.strict, "strict", "a doubt is an error, too");
  add_plain_flags(set, options.general);
  return set;
}

void check_data(const CheckDataOptions& options, Output& output, ordered_json& result) {
  const auto stop = [](std::int64_t) {
    if (stop_requested()) throw Interrupted("dataset check");
  };
  ordered_json list = ordered_json::array();
  std::int64_t wrong = 0, doubts = 0;
  for (const auto& finding : fq::detail::check_data_set(options.file, stop)) {
    print(finding, output);
    wrong += finding.verdict == Verdict::wrong ? 1 : 0;
    doubts += finding.verdict == Verdict::doubt ? 1 : 0;
    list.push_back({{"verdict", name(finding.verdict)},
                    {"group", finding.group},
                    {"about", finding.about},
                    {"text", finding.text}});
  }
  const std::string counts = fmt::format("{}: {} wrong, {} doubted", options.file, wrong, doubts);
  output.line(counts);
  result = {{"file", options.file}, {"wrong", wrong}, {"doubted", doubts}, {"findings", std::move(list)}};
  if (wrong > 0 || (options.strict && doubts > 0)) throw FailedCheck("[dataset check] " + counts, result);
}

Plan plan_check_data(const CheckDataOptions& options, PlannedFiles&) {
  Plan plan;
  plan.add("check " + options.file,
           [&options](Output& output, ordered_json& result) { check_data(options, output, result); });
  return plan;
}

}  // namespace

Command dataset_check_command() {
  return {"dataset check", "print the content of a data set, and possible errors",
          typed(check_data_flags, plan_check_data)};
}

}  // namespace fq::cli
