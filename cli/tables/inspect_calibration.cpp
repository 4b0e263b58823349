#include "fakequant/cli/tables/inspect_calibration.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/calibration_table.h"
#include "fakequant/cli/tables/class_labels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/network/network.h"
#include "fakequant/report/calibration_page.h"
#include "fakequant/train/calibration/calibration_state.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kInspect = "inspect";
constexpr std::initializer_list<const char*> kQuantizing{"preset", "config",  "target", "scale",
                                                         "strict", "keep-bn", "method"};

void refuse(const Flags& flags, std::initializer_list<const char*> names, const std::string& why) {
  for (const char* name : names) FQ_CHECK(!flags.given(name), kInspect, "--{}: {}", name, why);
}

struct InspectOptions {
  QuantizationOptions quantization = {.command = kInspect};
  CalibrationOptions calibration;
};

void add_options(FlagSet& set, InspectOptions& options) {
  set.group("Quantization");
  add_preset_flag(set, options.quantization);
  add_config_flags(set, options.quantization);
  add_format_flags(set, options.quantization);
  set.group("Calibration");
  add_method_flag(set, options.quantization);
  add_weight_flags(set, options.quantization);
  add_percentile_flag(set, options.calibration);
  add_samples_flag(set, options.calibration);
}

InspectOptions inspect_options(const Flags& flags) {
  InspectOptions options;
  FlagSet set(kInspect, "", "");
  add_options(set, options);
  set.assign(flags);
  return options;
}

AmaxOptions amax_options(const Flags& flags) {
  AmaxOptions out;
  if (flags.given("percentile")) out.percentile = flags.number("percentile", 0, 100);
  return out;
}

std::string file_name(const std::string& path) {
  return fq::detail::valid_utf8(std::filesystem::path(path).filename().string());
}

void take_state_file(const Flags& flags, CalibrationPage& page) {
  const std::string path = flags.text("file");
  refuse(flags, {"data", "state"}, path + " is a calibration state: give the checkpoint in its place");
  refuse(flags, kQuantizing, path + " is a calibration state, collected with its own settings");
  const StateDict state = load_state(path, "calibration");
  page.quantizers = calibration_report(state, path, amax_options(flags));
  page.facts = {{"calibration state", file_name(path)}};
  if (state.has_attribute("samples")) page.facts.emplace_back("samples", state.attribute("samples").dump());
}

Network quantized_network(const Flags& flags, Output& output) {
  const std::string path = flags.text("file");
  Network network = load_network(path);
  check_not_compressed(network, kInspect, path);
  if (network.quantized()) {
    refuse(flags, kQuantizing, path + " is quantized already");
    return network;
  }
  FQ_CHECK(flags.given("data") || flags.given("state"), kInspect,
           "{} is a float checkpoint: give --data or --state, or a quantized checkpoint", path);
  const InspectOptions options = inspect_options(flags);
  const Quantization chosen = read_quantization(options.quantization);
  output.line(quantization_text(options.quantization, chosen));
  place_quantizers(network, options.quantization, options.calibration, chosen, std::nullopt);
  return network;
}

void take_data(Network& network, const Flags& flags, CalibrationPage& page) {
  auto data = open_data_for(network, flags, flags.text("split"), Labels::none);
  data = some_samples(std::move(data), inspect_options(flags).calibration.sample_count(), 0);
  const auto ranks = run_ranks();
  DataLoader loader(
      data, share_of_rank({.batch_size = flags.integer("batch", 1, 1 << 20), .shuffle = false}, *ranks));
  network.module().to(device_of(flags));
  page.quantizers = calibration_report(network.module(), loader, 0, amax_options(flags), ranks);
  page.facts.emplace_back("samples", std::to_string(data->size()));
  page.facts.emplace_back("data", fmt::format("{} ({})", file_name(flags.text("data")), flags.text("split")));
}

void take_checkpoint(const Flags& flags, Output& output, CalibrationPage& page) {
  FQ_CHECK(!flags.given("data") || !flags.given("state"), kInspect, "--data and --state: give one");
  Network network = quantized_network(flags, output);
  page.facts = {{"checkpoint", file_name(flags.text("file"))}, {"model", network.identity().model.name()}};
  if (flags.given("data")) take_data(network, flags, page);
  if (const auto names = network.identity().class_names; !names.empty())
    page.facts.emplace_back("classes", names_text(names));
  if (flags.given("data")) return;
  if (flags.given("state")) {
    const auto samples = load_calibration(network.module(), flags.text("state"));
    page.facts.emplace_back("samples", std::to_string(samples));
    page.facts.emplace_back("state", file_name(flags.text("state")));
  }
  page.quantizers = calibration_report(network.module(), amax_options(flags));
}

bool lacks_histograms(const CalibrationPage& page) {
  return std::ranges::any_of(page.quantizers,
                             [](const auto& q) { return !q.is_weight && q.histogram.counts.empty(); });
}

/// The path of what a quantizer belongs to.
std::string owner(const std::string& quantizer) { return quantizer.substr(0, quantizer.rfind('.')); }

void take_plan(const Flags& flags, CalibrationPage& page) {
  const std::string path = flags.text("plan");
  if (path.empty()) return;
  FQ_CHECK(flags.given("html"), kInspect, "--plan is shown on the page: give --html");
  page.plan = QuantizationPlan::load(path);
  const auto planned = [&page](const std::string& quantizer) {
    return std::ranges::find(page.plan->layers, owner(quantizer), &PlannedLayer::layer) !=
           page.plan->layers.end();
  };
  const auto known = [&planned](const QuantizerReport& q) {
    return planned(q.name) || std::ranges::any_of(q.aliases, planned);
  };
  FQ_CHECK(std::ranges::any_of(page.quantizers, known), kInspect,
           "{} is of another network: it has no layer of this one, such as '{}'", path,
           owner(page.quantizers.front().name));
}

}  // namespace

void add_inspect_calibration_flags(FlagSet& set) {
  set.group("Calibration report")
      .toggle("calibration", "ranges of each quantizer, by each method, and what they clip and cost")
      .value("state", "FILE",
             "what calibrate --state collected for this checkpoint, in place of what it holds")
      .output("html", "FILE", "write a page with histograms and a table to look at", kind::page)
      .value("plan", "FILE", "a plan of fakequant sensitivity, to show on the page");
  add_data_flags(set, "train");
  static InspectOptions bound;  // takes no values: `inspect_options` reads them
  add_options(set, bound);
}

void check_no_calibration_flags(const Flags& flags) {
  refuse(flags, {"state", "html", "plan", "data", "split", "samples", "percentile"},
         "it is for --calibration");
  refuse(flags, kQuantizing, "it is for --calibration");
}

ordered_json inspect_calibration(const Flags& flags, Output& output) {
  const std::string path = read_checkpoint_path(flags.required("file"));
  CalibrationPage page{.title = "Calibration of " + file_name(path), .quantizers = {}};
  if (state_file_info(path).kind == "calibration")
    take_state_file(flags, page);
  else
    take_checkpoint(flags, output, page);
  take_plan(flags, page);
  output.line(calibration_table(page.quantizers));
  if (!flags.given("data") && lacks_histograms(page))
    output.line(
        "histograms of activations: calibrate --method one_pass keeps them, --data collects them now");
  const std::string html = flags.text("html");
  if (!html.empty()) {
    if (is_first_rank()) save_calibration_html(html, page);
    output.line(html);
  }
  ordered_json facts = ordered_json::object();
  for (const auto& [name, value] : page.facts) facts[name] = value;
  return {{"kind", "calibration"},
          {"facts", facts},
          {"html", html.empty() ? ordered_json(nullptr) : ordered_json(html)},
          {"quantizers", calibration_json(page.quantizers)}};
}

}  // namespace fq::cli
