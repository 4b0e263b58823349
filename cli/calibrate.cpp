#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/file_kind.h"
#include "fakequant/cli/flag_groups.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/core/check.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {

FlagSet calibrate_flags() {
  FlagSet set("calibrate",
              "Puts quantizers into a float network and chooses their ranges on training images.",
              "CHECKPOINT --data FILE|--import FILE|--merge FILE.. -o FILE [flags]");
  set.group("Files")
      .argument("checkpoint", "FILE", "a float checkpoint")
      .output("output,o", "FILE", "the quantized checkpoint", kind::checkpoint)
      .value("import", "FILE",
             "ranges from a safetensors state of ModelOpt or pytorch-quantization; --data is then for "
             "quantizers that it has none of");
  add_data_flags(set, "train");
  add_quantization_flags(set);
  add_calibration_flags(set);
  add_state_flags(set);
  add_general_flags(set);
  return set;
}

nlohmann::ordered_json calibrate(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const std::string path = flags.text("state").empty() ? flags.required("output") : flags.text("output");
  static_cast<void>(read_quantization(flags));
  const auto lock = lock_state(flags);
  Network network = load_network(flags.required("checkpoint"));
  check_not_compressed(network, "calibrate", flags.text("checkpoint"));
  FQ_CHECK(!network.quantized(), "calibrate", "{} is quantized already: give a float checkpoint",
           flags.text("checkpoint"));
  std::shared_ptr<const Dataset> data;
  if (flags.given("data") || !(flags.given("import") || flags.given("merge")))
    data = open_data_for(network, flags, flags.text("split"), Labels::none);
  const Stopwatch watch;
  quantize_and_calibrate(network, flags, data, output);
  warn_unless_exportable(network, "calibrate");
  if (!path.empty()) save_network(network, path);
  std::ostringstream table;
  print_quant_summary(*network.module, table);
  output.line(table.str() + fmt::format("calibrated in {}, {}", duration(watch.seconds()),
                                        path.empty() ? flags.text("state") : path));
  const auto& config = network.identity.at("quantization");
  return {{"output", path},
          {"preset", config.value("preset", nlohmann::json())},
          {"quantizers", named_quantizers(*network.module).size()},
          {"seconds", watch.seconds()}};
}

}  // namespace fq::cli
