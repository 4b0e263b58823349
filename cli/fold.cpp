#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flag_groups.h"
#include "fakequant/cli/network.h"
#include "fakequant/core/check.h"

namespace fq::cli {

FlagSet fold_flags() {
  FlagSet set("fold", "Folds batch normalisation into the linear and convolution layers before it.",
              "CHECKPOINT -o FILE [flags]");
  set.group("Files")
      .argument("checkpoint", "FILE", "a float checkpoint")
      .value("output,o", "FILE", "the folded checkpoint");
  add_general_flags(set);
  return set;
}

nlohmann::ordered_json fold(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const std::string path = flags.required("output");
  Network network = load_network(flags.required("checkpoint"));
  FQ_CHECK(!network.quantized(), "fold", "{} is quantized: fold before quantizing", flags.text("checkpoint"));
  const std::size_t count = fold_network(network);
  save_network(network, path);
  output.line(fmt::format("{} batch norms folded, {}", count, path));
  return {{"output", path}, {"folded", count}};
}

}  // namespace fq::cli
