#include "fakequant/cli/predictions.h"

#include <optional>

#include "fakequant/cli/code_recorder.h"
#include "fakequant/core/detail/join.h"

namespace fq::cli {
namespace {

std::int64_t bytes_of(const std::vector<Tensor>& parts) {
  std::int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += part.nbytes();
  return bytes;
}

/// Answers of the batches since the last part.
class Part {
 public:
  Part(Network& network, const PredictionOptions& options)
      : recorder_(*network.module), inputs_(options.inputs) {}

  CodeRecorder& recorder() { return recorder_; }

  void add(const Tensor& x, const Tensor& y) {
    if (inputs_) x_.push_back(x);
    logits_.push_back(y.to(Device::cpu()).to(Layout::row_major));
    recorder_.next_batch();
  }

  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = bytes_of(x_) + bytes_of(logits_);
    for (const auto& [name, parts] : recorder_.codes()) sum += bytes_of(parts);
    return sum;
  }

  void flush(const std::function<void(const StateDict&)>& use) {
    if (logits_.empty()) return;
    StateDict state;
    if (inputs_) state.set("x", fq::detail::join(x_, 0));
    state.set("logits", fq::detail::join(logits_, 0));
    for (const auto& [name, parts] : recorder_.codes())
      state.set("codes/" + name, fq::detail::join(parts, 0));
    x_.clear();
    logits_.clear();
    recorder_.forget();
    use(state);
  }

 private:
  CodeRecorder recorder_;
  std::vector<Tensor> x_, logits_;
  bool inputs_;
};

}  // namespace

void predict_parts(Network& network, std::shared_ptr<const Dataset> data, const PredictionOptions& options,
                   const std::function<void(const StateDict&)>& use, Output& output,
                   const std::string& label) {
  Part part(network, options);
  std::optional<RecordScope> scope;
  if (options.codes) scope.emplace(part.recorder());
  const auto add = [&](const Tensor& x, const Tensor& y) {
    part.add(x, y);
    if (part.bytes() >= options.part_bytes) part.flush(use);
  };
  if (options.inputs || options.codes)
    for_each_batch(
        network, std::move(data), options.batch,
        [&](const Batch& samples, const Variable& y) { add(samples.x, y.tensor()); }, output, label);
  else
    for_each_output(
        network, std::move(data), options.batch, [&](const Tensor& y, const Tensor&) { add({}, y); }, output,
        label);
  part.flush(use);
}

}  // namespace fq::cli
