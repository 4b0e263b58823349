#include "fakequant/cli/tables/inspect_calibration.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/class_table.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/network/network.h"
#include "fakequant/report/calibration_page.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;
using TextCells = std::vector<std::string>;

constexpr std::size_t kTextColumns = 2;  // aligned to the left

std::string number_text(std::optional<double> value) { return value ? fmt::format("{:.4g}", *value) : "-"; }

std::string share_text(std::optional<double> share) {
  return share ? fmt::format("{:.3g} %", 100 * *share) : "-";
}

std::string decibel_text(std::optional<double> value) {
  return value ? fmt::format("{:.1f} dB", *value) : "-";
}

// Returns one amax, or "lowest..highest" for ranges per channel or block.
std::string amax_text(const RangeReport& range) {
  if (!range.highest || *range.lowest == *range.highest) return number_text(range.highest);
  return fmt::format("{:.3g}..{:.3g}", *range.lowest, *range.highest);
}

TextCells quantizer_cells(const QuantizerReport& q) {
  TextCells out{q.name, q.format, number_text(q.minimum), number_text(q.largest)};
  for (const auto& range : q.methods) out.push_back(amax_text(range));
  out.insert(out.end(), {q.in_force.method, amax_text(q.in_force), share_text(q.in_force.clipped),
                         decibel_text(q.in_force.sqnr_db)});
  return out;
}

TextCells heads() {
  TextCells out{"quantizer", "format", "min", "max |x|"};
  for (const auto& method : report_methods()) out.push_back(method);
  out.insert(out.end(), {"in force", "amax", "clipped", "SQNR"});
  return out;
}

// The first columns are text, aligned to the left. Numbers are aligned to the right, and the last column ends
// the line.
std::string aligned(const std::vector<TextCells>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string out;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i)
      out += i < kTextColumns
                 ? fmt::format("{:<{}}  ", line[i], widths[i])
                 : fmt::format("{:>{}}{}", line[i], widths[i], i + 1 < line.size() ? "  " : "\n");
  }
  return out;
}

/// Returns each reason once, with the number of quantizers that it applies to.
std::string reasons(const std::vector<QuantizerReport>& quantizers) {
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& q : quantizers) {
    const auto add = [&](const std::string& reason) {
      auto& names = found[reason];
      // Quantizers come one after another, so the last name is enough to find a repetition.
      if (names.empty() || names.back() != q.name) names.push_back(q.name);
    };
    for (const auto& range : q.methods) add(range.reason);
    add(q.in_force.reason);
  }
  // Ranges without a problem have an empty reason.
  found.erase("");
  std::string out;
  for (const auto& [reason, names] : found)
    out += fmt::format("-: {} ({}{})\n", reason, names.front(),
                       names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "");
  return out;
}

// JSON has no infinity. An infinite SQNR is null, and "exact" is true.
ordered_json number(std::optional<double> value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json range_json(const RangeReport& range) {
  ordered_json out{{"method", range.method}, {"amax", nullptr}};
  if (range.highest) out["amax"] = {*range.lowest, *range.highest};
  out["clipped"] = number(range.clipped);
  out["sqnr_db"] = number(range.sqnr_db);
  out["exact"] = range.sqnr_db.has_value() && !std::isfinite(*range.sqnr_db);
  if (!range.reason.empty()) out["reason"] = range.reason;
  return out;
}

/// Returns a line for each quantizer. Unknown numbers are "-", and the reasons follow below.
std::string calibration_table(const std::vector<QuantizerReport>& quantizers) {
  std::vector<TextCells> lines{heads()};
  for (const auto& q : quantizers) lines.push_back(quantizer_cells(q));
  std::string out = aligned(lines) + reasons(quantizers);
  out.pop_back();  // end of the last line
  return out;
}

/// Returns the calibration as JSON (keys: docs/formats.md).
ordered_json calibration_json(const std::vector<QuantizerReport>& quantizers) {
  ordered_json out = ordered_json::array();
  for (const auto& q : quantizers) {
    ordered_json one{{"name", q.name},
                     {"aliases", q.aliases},
                     {"kind", q.is_weight ? "weight" : "activation"},
                     {"format", q.format},
                     {"granularity", q.granularity},
                     {"count", q.count},
                     {"minimum", number(q.minimum)},
                     {"largest", number(q.largest)},
                     {"calibrated", q.is_chosen},
                     {"in_force", range_json(q.in_force)}};
    auto methods = ordered_json::array();
    for (const auto& range : q.methods) methods.push_back(range_json(range));
    if (!methods.empty()) one["methods"] = std::move(methods);
    out.push_back(std::move(one));
  }
  return out;
}

constexpr const char* kInspect = "inspect";
AmaxOptions amax_options(const InspectOptions& options) {
  AmaxOptions out;
  if (options.calibration.percentile) out.percentile = *options.calibration.percentile;
  return out;
}

/// Returns the first given flag of a quantization; an empty text without one.
std::string quantization_flag(const QuantizationOptions& options) {
  if (options.preset) return "--preset";
  return options.config ? "--config" : options.first_detail();
}

void check_not_quantizing(const InspectOptions& options, const std::string& why) {
  const std::string flag = quantization_flag(options.quantization);
  FQ_CHECK(flag.empty(), kInspect, "{}: {}", flag, why);
}

std::string file_name(const std::string& path) {
  return fq::detail::valid_utf8(std::filesystem::path(path).filename().string());
}

void take_state_file(const InspectOptions& options, CalibrationPage& page) {
  const std::string& path = options.file;
  // A state has statistics and no network, so it can neither read data nor merge another state.
  FQ_CHECK(options.data.data.empty() && options.state.empty(), kInspect,
           "{}: {} is a calibration state. Use the checkpoint instead",
           options.data.data.empty() ? "--state" : "--data", path);
  check_not_quantizing(options, path + " is a calibration state, collected with its own settings");
  const StateDict state = load_state(path, "calibration");
  page.quantizers = calibration_report(state, path, amax_options(options));
  page.facts = {{"calibration state", file_name(path)}};
  if (state.has_attribute("samples")) page.facts.emplace_back("samples", state.attribute("samples").dump());
}

Network quantized_network(const InspectOptions& options, Output& output) {
  Network network = load_network(options.file);
  check_not_compressed(network, kInspect, options.file);
  if (network.quantized()) {
    check_not_quantizing(options, options.file + " is already quantized");
    return network;
  }
  FQ_CHECK(!options.data.data.empty() || !options.state.empty(), kInspect,
           "{} is a float checkpoint: use --data or --state, or a quantized checkpoint", options.file);
  const Quantization chosen = read_quantization(options.quantization);
  output.line(quantization_text(options.quantization, chosen));
  place_quantizers(network, options.quantization, options.calibration, chosen, std::nullopt);
  return network;
}

void take_data(Network& network, const InspectOptions& options, CalibrationPage& page) {
  const DataOptions& given = options.data;
  auto data = open_network_data(network, given.data, given.split, Labels::none, kInspect);
  data = some_samples(std::move(data), options.calibration.sample_count(), 0);
  const auto ranks = run_ranks();
  DataLoader loader(data, share_of_rank({.batch_size = given.batch, .shuffle = false}, *ranks));
  network.module().to(chosen_device(options.general, kInspect));
  // Observes the data again with histograms, for all methods. The ranges of the network stay.
  page.quantizers = calibration_report(network.module(), loader, 0, amax_options(options), ranks);
  page.facts.emplace_back("samples", std::to_string(data->size()));
  page.facts.emplace_back("data", fmt::format("{} ({})", file_name(given.data), given.split));
}

void take_checkpoint(const InspectOptions& options, Output& output, CalibrationPage& page) {
  const bool has_data = !options.data.data.empty();
  FQ_CHECK(!has_data || options.state.empty(), kInspect, "--data and --state: use one");
  Network network = quantized_network(options, output);
  page.facts = {{"checkpoint", file_name(options.file)}, {"model", network.identity().model.name()}};
  if (has_data) take_data(network, options, page);
  if (const auto names = network.identity().class_names; !names.empty())
    page.facts.emplace_back("classes", names_text(names));
  // With data, the report is complete. Otherwise it uses the statistics of --state, or the ranges of the
  // checkpoint alone.
  if (has_data) return;
  if (!options.state.empty()) {
    const auto samples = load_calibration(network.module(), options.state);
    page.facts.emplace_back("samples", std::to_string(samples));
    page.facts.emplace_back("state", file_name(options.state));
  }
  page.quantizers = calibration_report(network.module(), amax_options(options));
}

bool lacks_histograms(const CalibrationPage& page) {
  return std::ranges::any_of(page.quantizers,
                             [](const auto& q) { return !q.is_weight && q.histogram.counts.empty(); });
}

/// Returns the path of a quantizer's module.
std::string owner(const std::string& quantizer) { return quantizer.substr(0, quantizer.rfind('.')); }

void take_plan(const std::string& path, CalibrationPage& page) {
  page.plan = QuantizationPlan::load(path);
  const auto planned = [&page](const std::string& quantizer) {
    return std::ranges::find(page.plan->layers, owner(quantizer), &PlannedLayer::layer) !=
           page.plan->layers.end();
  };
  const auto known = [&planned](const QuantizerReport& q) {
    return planned(q.name) || std::ranges::any_of(q.aliases, planned);
  };
  // One common layer is enough: a plan may leave layers out.
  FQ_CHECK(std::ranges::any_of(page.quantizers, known), kInspect,
           "{} is of another network: it has no layer of this one, such as '{}'", path,
           owner(page.quantizers.front().name));
}

}  // namespace

void add_inspect_calibration_flags(FlagSet& set, InspectOptions& options) {
  set.group("Calibration report")
      .toggle(options.reports_calibration, "calibration",
              "ranges of each quantizer by each method, the clipped values and the error")
      .value(options.state, "state", "FILE", "a state that calibrate --state wrote for this checkpoint")
      .output(options.html, "html", "FILE", "write a page with histograms and a table", kind::page)
      .value(options.plan, "plan", "FILE", "a plan of fakequant sensitivity, to show on the page")
      .need({"plan"}, "html")
      .need(
          {"data", "split", "state", "html", "preset", "config", "target", "scale", "edge-bits", "attention",
           "kv", "strict", "keep-bn", "method", "weight-method", "algorithm", "percentile", "samples"},
          "calibration");
  add_data_flags(set, options.data, false);
  set.group("Quantization");
  add_preset_flag(set, options.quantization);
  add_calibrating_flags(set, options.quantization, options.calibration);
}

ordered_json inspect_calibration(const InspectOptions& given, Output& output) {
  InspectOptions options = given;
  options.file = read_checkpoint_path(given.file);
  CalibrationPage page{.title = "Calibration of " + file_name(options.file), .quantizers = {}};
  // The kind in the header of the file decides, not its name.
  if (state_file_info(options.file).kind == "calibration")
    take_state_file(options, page);
  else
    take_checkpoint(options, output, page);
  if (!options.plan.empty()) take_plan(options.plan, page);
  output.line(calibration_table(page.quantizers));
  if (options.data.data.empty() && lacks_histograms(page))
    output.line(
        "histograms of activations: calibrate --method one_pass keeps them, --data collects them now");
  if (!options.html.empty()) {
    if (is_first_rank()) save_calibration_html(options.html, page);
    output.line(options.html);
  }
  ordered_json facts = ordered_json::object();
  for (const auto& [name, value] : page.facts) facts[name] = value;
  return {{"kind", "calibration"},
          {"facts", facts},
          {"html", options.html.empty() ? ordered_json(nullptr) : ordered_json(options.html)},
          {"quantizers", calibration_json(page.quantizers)}};
}

}  // namespace fq::cli
