#include "fakequant/cli/folding.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/code_recorder.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/network/data_checks.h"
#include "fakequant/network/qat.h"

namespace fq::cli {
namespace {

std::int64_t different_bytes(const Tensor& a, const Tensor& b) {
  const auto bytes = static_cast<std::size_t>(bit_width(a.dtype()) / 8);
  const auto *x = static_cast<const std::byte*>(a.raw()), *y = static_cast<const std::byte*>(b.raw());
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i) * bytes;
    count += std::equal(x + at, x + at + bytes, y + at) ? 0 : 1;
  }
  return count;
}

void count_codes(const CodeRecorder& before, const CodeRecorder& after, FoldChange& change) {
  for (const auto& [name, parts] : before.codes()) {
    const auto found = after.codes().find(name);
    if (found == after.codes().end()) continue;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      change.codes += parts[i].numel();
      change.different += different_bytes(parts[i], found->second.at(i));
    }
  }
}

}  // namespace

FoldChange compare(Network& before, Network& after, std::shared_ptr<const Dataset> data, std::int64_t batch,
                   Output& output) {
  check_task(before, *data, "fold");
  check_calibrated(before, "fold");
  FoldChange change;
  CodeRecorder codes(before.module()), other_codes(after.module());
  const MetricOptions options = metric_options_of(before);
  Scoring score(before, *data, options), other_score(before, *data, options);
  change.accuracy = score.accuracy();
  after.module().eval();
  const auto visit = [&](const Batch& samples, const Variable& logits) {
    score.add(logits.tensor(), samples.y);
    {
      const RecordScope scope(other_codes);
      other_score.add((after.module())(Variable(samples.x.to(after.module().device()))).tensor(), samples.y);
    }
    count_codes(codes, other_codes, change);
    for (CodeRecorder* recorder : {&codes, &other_codes}) {
      recorder->forget();
      recorder->next_batch();
    }
  };
  const RecordScope scope(codes);
  for_each_batch(before, std::move(data), batch, visit, output, "compare");
  change.before = score.score();
  change.after = other_score.score();
  return change;
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

std::size_t live_batch_norms(Network& network) {
  return static_cast<std::size_t>(std::ranges::count_if(
      network.module().named_modules(),
      [](const auto& entry) { return dynamic_cast<const BatchNorm*>(entry.second) != nullptr; }));
}

void fold_first(Network& network, Output& output) {
  if (live_batch_norms(network) == 0) return;
  if (const auto count = network.fold(); count > 0)
    output.line(fmt::format("{} batch norms folded first: fakequant fold tells what that changes", count));
}

}  // namespace fq::cli
