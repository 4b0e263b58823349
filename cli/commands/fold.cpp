#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/folding.h"
#include "fakequant/cli/initial_weights.h"

namespace fq::cli {

FlagSet fold_flags() {
  FlagSet set(
      "fold",
      "Folds batch normalisation into the linear and convolution layers before it. With --data it tells "
      "how much accuracy and, of a quantized network, how many codes that changes.",
      "CHECKPOINT -o FILE [flags]");
  set.group("Files")
      .argument("checkpoint", "FILE", "a float or quantized checkpoint")
      .output("output,o", "FILE", "the folded checkpoint", kind::checkpoint);
  set.need({"split", "batch"}, "data");
  add_data_flags(set, "test");
  add_general_flags(set);
  return set;
}

nlohmann::ordered_json fold(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const std::string path = flags.required("output"), checkpoint = flags.required("checkpoint");
  Network network = load_network(checkpoint);
  check_not_compressed(network, "fold", checkpoint);
  const std::size_t count = network.fold();
  nlohmann::ordered_json result{{"output", path}, {"folded", count}};
  if (flags.given("data")) {
    Network before = load_network(checkpoint);
    const auto data = open_data_for(network, flags, flags.text("split"));
    for (const Network* computing : {&before, &network}) computing->module().to(device_of(flags));
    const FoldChange change = compare(before, network, data, flags.integer("batch", 1, 1 << 20), output);
    print(change, output);
    result.update(to_json(change));
  }
  network.save(path);
  output.line(fmt::format("{} batch norms folded, {}", count, path));
  return result;
}

}  // namespace fq::cli
