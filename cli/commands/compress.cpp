#include "fakequant/layers/quantizer/compress.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

struct CompressOptions {
  std::string checkpoint, output;
  bool undo = false;
  GeneralOptions general;
};

/// Number and size in bytes of the weights of one format.
struct Sizes {
  std::int64_t weights = 0, elements = 0, before = 0, after = 0;

  void add(const CompressedWeight& weight) {
    ++weights;
    elements += weight.elements;
    // Float weights have 4 bytes per element.
    before += 4 * weight.elements;
    after += weight.code_bytes + weight.scale_bytes;
  }
  void add(const Sizes& other) {
    weights += other.weights;
    elements += other.elements;
    before += other.before;
    after += other.after;
  }
};

// Weights of one format share a line of the table.
std::map<std::string, Sizes> format_sizes(const std::vector<CompressedWeight>& weights) {
  std::map<std::string, Sizes> out;
  for (const auto& weight : weights) out[to_string(weight.format)].add(weight);
  return out;
}

/// Returns the parameters that stay floats: biases, normalisation, layers that are not quantized.
Sizes float_sizes(const Module& model) {
  Sizes out;
  for (const auto& parameter : model.parameters()) {
    // Compressed weights are parameters whose tensor holds codes.
    if (holds_codes(parameter)) continue;
    const std::int64_t bytes = parameter.tensor().nbytes();
    out.add({1, parameter.numel(), bytes, bytes});
  }
  return out;
}

std::int64_t file_bytes(const std::string& path) {
  std::error_code none;
  const auto bytes = std::filesystem::file_size(path, none);
  return none ? 0 : static_cast<std::int64_t>(bytes);  // 0 for a device
}

ordered_json record(const std::string& name, const Sizes& sizes, Output& output) {
  output.line(fmt::format("{:<16} {:>6} parameters {:>12} bytes -> {:>12} bytes, {:.2f} bits each", name,
                          sizes.weights, sizes.before, sizes.after,
                          8 * double(sizes.after) / double(std::max<std::int64_t>(sizes.elements, 1))));
  return {{"parameters", sizes.weights},
          {"elements", sizes.elements},
          {"bytes_before", sizes.before},
          {"bytes_after", sizes.after}};
}

ordered_json compressed(Network& network, Output& output) {
  const auto formats = format_sizes(compress(network.module()));
  auto out = ordered_json::object(), named = ordered_json::object();
  Sizes all;
  for (const auto& [name, sizes] : formats) {
    named[name] = record(name, sizes, output);
    all.add(sizes);
  }
  out["formats"] = std::move(named);
  const Sizes floats = float_sizes(network.module());
  out["floats"] = record("floats", floats, output);
  all.add(floats);
  out["total"] = record("total", all, output);
  // `fold` needs float weights, so it cannot follow.
  if (const auto norms = network.live_batch_norms(); norms > 0)
    output.line(fmt::format("{} batch norms are not folded: to export this network, fold it before", norms));
  return out;
}

FlagSet compress_flags(CompressOptions& options) {
  FlagSet set(
      "compress",
      "Keeps the weights of a quantized checkpoint as packed codes, INT4 in an eighth of the size. The "
      "network computes the same bits.",
      "CHECKPOINT -o FILE [flags]");
  set.group("Files")
      .argument(options.checkpoint, "checkpoint", "FILE", "a calibrated checkpoint")
      .required()
      .output(options.output, "output,o", "FILE", "the compressed checkpoint", kind::checkpoint)
      .required()
      .toggle(options.undo, "undo", "restore float weights from the codes, for training");
  add_general_flags(set, options.general);
  return set;
}

/// Throws ArgumentError if the weights cannot be compressed, or cannot be restored by --undo.
void check_weights(const Network& network, const CompressOptions& options) {
  FQ_CHECK(network.quantized(), "compress", "{} has no quantizers: run fakequant calibrate first",
           options.checkpoint);
  FQ_CHECK(is_compressed(network.module()) == options.undo, "compress", "{} is {}", options.checkpoint,
           options.undo ? "not compressed: leave out --undo" : "compressed already");
}

void write_compressed(const CompressOptions& options, const Network& network, Output& output,
                      ordered_json& result) {
  // Read before the output is written: both flags may name one file.
  const std::int64_t before = file_bytes(options.checkpoint);
  network.save(options.output);
  const std::int64_t after = file_bytes(options.output);
  result["file_bytes_before"] = before;
  result["file_bytes_after"] = after;
  output.line(fmt::format("{}: {} bytes, {} before", options.output, after, before));
}

Plan plan_compress(const CompressOptions& options, PlannedFiles& planned) {
  const auto network = planned.network(options.checkpoint);
  planned.add(options.output);
  Plan plan;
  if (!network) return plan;
  check_weights(*network, options);
  plan.add(
      fmt::format("{} {}", options.undo ? "restore float weights from the codes of" : "pack the weights of",
                  options.checkpoint),
      // The handles of both steps share one module, so the second step writes the packed weights.
      [&options, network = *network](Output& output, ordered_json& result) mutable {
        result["output"] = options.output;
        if (options.undo)
          decompress(network.module());
        else
          result.update(compressed(network, output));
      });
  plan.add(fmt::format("write {}", options.output),
           [&options, network = *network](Output& output, ordered_json& result) {
             write_compressed(options, network, output, result);
           });
  return plan;
}

}  // namespace

Command compress_command() {
  return {"compress", "keep the weights as packed codes", typed(compress_flags, plan_compress), true};
}

}  // namespace fq::cli
