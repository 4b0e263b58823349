#include "fakequant/cli/predictions.h"

#include <algorithm>
#include <nlohmann/json.hpp>
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

/// The axis of codes that holds the samples, or a multiple of them: axis 0, unless the network computes
/// sequence first. Nothing where the codes do not depend on the samples.
std::optional<int> batch_axis(const std::vector<Tensor>& parts, const std::vector<std::int64_t>& samples) {
  const Shape& first = parts.front().shape();
  for (int axis = 0; axis < std::ssize(first); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t each = first[at] / samples.front();
    bool fits = each > 0;
    for (std::size_t i = 0; i < parts.size() && fits; ++i) {
      Shape expected = first;
      expected[at] = each * samples[i];
      fits = parts[i].shape() == expected;
    }
    if (fits) return axis;
  }
  return std::nullopt;
}

/// Answers of the batches since the last part.
class Part {
 public:
  Part(Network& network, const PredictionOptions& options)
      : recorder_(network.module()), inputs_(options.inputs) {}

  CodeRecorder& recorder() { return recorder_; }

  /// `x` may be undefined where neither inputs nor codes are kept.
  void add(const Tensor& x, const Tensor& y) {
    if (inputs_) x_.push_back(x);
    logits_.push_back(y.to(Device::cpu()).to(Layout::row_major));
    if (x.defined()) samples_.push_back(x.dim(0));
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
    if (!recorder_.codes().empty()) set_codes(state);
    x_.clear();
    logits_.clear();
    samples_.clear();
    recorder_.forget();
    use(state);
  }

 private:
  void set_codes(StateDict& state) {
    nlohmann::json axes = nlohmann::json::object();
    for (const auto& [name, parts] : recorder_.codes()) {
      const auto axis = batch_axis(parts, samples_);
      state.set("codes/" + name, axis ? fq::detail::join(parts, *axis) : parts.front());
      if (axis != 0) axes[name] = axis ? nlohmann::json(*axis) : nlohmann::json(nullptr);
    }
    state.set_attribute("batch", samples_.front());
    if (!axes.empty()) state.set_attribute("batch_axes", axes);
  }

  CodeRecorder recorder_;
  std::vector<Tensor> x_, logits_;
  std::vector<std::int64_t> samples_;  // of each batch
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
