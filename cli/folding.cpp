#include "fakequant/cli/folding.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/text/network_tokenizer.h"

namespace fq::cli {

FoldChange compare(const Network& before, const Network& after, const std::shared_ptr<const Dataset>& data,
                   std::int64_t batch, Output& output) {
  FoldComparison comparison(before, after, *data, metric_options_of(before));
  for_each_batch(
      before, data, batch,
      [&](const Batch& samples, const Variable& logits) { comparison.add(samples, logits.tensor()); }, output,
      "compare");
  return comparison.change();
}

void print(const FoldChange& change, Output& output) {
  if (change.codes > 0)
    output.line(fmt::format("{} of {} codes changed ({:.3g} %)", change.different, change.codes,
                            100 * double(change.different) / double(change.codes)));
  if (change.accuracy)
    output.line(fmt::format("accuracy {} before, {} after",
                            percent(change.before.accuracy, change.before.count),
                            percent(change.after.accuracy, change.after.count)));
  else
    output.line(fmt::format("loss {:.6f} before, {:.6f} after", change.before.loss, change.after.loss));
}

nlohmann::ordered_json to_json(const FoldChange& change) {
  nlohmann::ordered_json out{{"codes", change.codes}, {"different_codes", change.different}};
  const auto put = [&](const std::string& when, const Evaluation& found) {
    if (change.accuracy) out["accuracy_" + when] = 100 * found.accuracy;
    out["loss_" + when] = found.loss;
  };
  put("before", change.before);
  put("after", change.after);
  out["count"] = change.before.count;
  return out;
}

}  // namespace fq::cli
