#include "fakequant/network/evaluation.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"
#include "fakequant/export/detail/code_names.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/detail/evaluation.h"

namespace fq {
namespace detail {

/// Records codes in logical order by name (CodeNames).
class CodeRecorder : public Recorder {
 public:
  explicit CodeRecorder(Module& model);

  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                 Attributes attributes) override;
  void next_batch() { names_.next_pass(); }
  /// Returns the codes of all batches since `forget`.
  [[nodiscard]] const std::map<std::string, std::vector<Tensor>>& codes() const noexcept { return codes_; }
  void forget() { codes_.clear(); }

 private:
  // Names of all parts of weight quantizers. The second part of a sequence quantizes the output of the first
  // part, so its input is not a parameter.
  std::set<std::string> weights_;
  std::set<const Node*> parameters_;  // their codes do not depend on the samples
  CodeNames names_;
  std::map<std::string, std::vector<Tensor>> codes_;
};

CodeRecorder::CodeRecorder(Module& model) {
  for (const auto& parameter : model.parameters()) parameters_.insert(parameter.node().get());
  for (auto& [path, module] : model.named_modules())
    if (auto* quant = dynamic_cast<QuantModule*>(module);
        quant != nullptr && quant->weight_quantizer() != nullptr)
      for (const auto* part : quantizer_parts(*quant->weight_quantizer())) weights_.insert(part->name());
}

void CodeRecorder::record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                             Attributes) {
  // Only codes that depend on the samples are recorded, that is, codes of activations. They are kept on the
  // host, because a part has the codes of many batches.
  const QuantizedTensor* value = op == "quantize" ? output.quantized() : nullptr;
  if (value == nullptr || parameters_.contains(inputs.at(0).node().get()) ||
      weights_.contains(value->grid.name))
    return;
  codes_[names_.of(value->grid.name, module_path())].push_back(
      value->codes.to(Device::cpu()).to(Layout::row_major));
}

}  // namespace detail

namespace {

std::int64_t total_bytes(const std::vector<Tensor>& parts) {
  std::int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += part.nbytes();
  return bytes;
}

/// Returns the axis of codes that holds the samples, or a multiple of them: axis 0, unless the network
/// computes sequence first. Returns no axis if the codes do not depend on the samples.
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

// Returns the number of elements whose codes differ.
std::int64_t different_codes(const Tensor& a, const Tensor& b) {
  // Two codes of E2M1 share a byte.
  if (bit_width(a.dtype()) < 8) return different_codes(unpack_codes(a), unpack_codes(b));
  const auto bytes = static_cast<std::size_t>(bit_width(a.dtype()) / 8);
  const auto *x = static_cast<const std::byte*>(a.raw()), *y = static_cast<const std::byte*>(b.raw());
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i) * bytes;
    count += std::equal(x + at, x + at + bytes, y + at) ? 0 : 1;
  }
  return count;
}

void count_codes(const detail::CodeRecorder& before, const detail::CodeRecorder& after, FoldChange& change) {
  for (const auto& [name, parts] : before.codes()) {
    const auto found = after.codes().find(name);
    if (found == after.codes().end()) continue;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      change.codes += parts[i].numel();
      change.different += different_codes(parts[i], found->second.at(i));
    }
  }
}

}  // namespace

Evaluation evaluate(const Network& network, const std::shared_ptr<const Dataset>& data,
                    std::int64_t batch_size, const MetricOptions& options) {
  check_fits(network, *data, "evaluate");
  check_task(network, *data, "evaluate");
  check_calibrated(network, "evaluate");
  const Task task = network.task();
  DataLoader loader(data, {.batch_size = batch_size, .shuffle = false, .device = network.module().device()});
  return evaluate(network.module(), loader, nullptr, task_loss(task, *data), task_metrics(task, *data),
                  options);
}

struct Scoring::Sum : detail::ScoreSum {
  using ScoreSum::ScoreSum;
};

Scoring::Scoring(const Network& network, const Dataset& data, const MetricOptions& options)
    : sum_(std::make_unique<Sum>(task_loss(network.task(), data), task_metrics(network.task(), data),
                                 options)),
      accuracy_(one_class_each(network.task(), data)) {}
Scoring::~Scoring() = default;

void Scoring::add(const Tensor& logits, const Tensor& labels) { sum_->add(Variable(logits), labels); }
Evaluation Scoring::score() const { return sum_->mean(); }

std::int64_t weight_bytes(const Network& network) {
  // A parameter may have several readers, for example in tied layers. Its codes are stored once, in the
  // format of the reader with the fewest bits.
  struct Codes {
    int bits = 32;
    std::int64_t readers = 0;
  };
  std::unordered_map<const void*, Codes> codes;
  for (auto& [path, module] : network.module().named_modules()) {
    auto* quant = dynamic_cast<QuantModule*>(module);
    auto* quantizer = quant != nullptr ? quant->weight_quantizer() : nullptr;
    if (quantizer == nullptr) continue;
    int bits = 0;
    for (const auto* part : quantizer_parts(*quantizer))
      // A sequential quantizer has several parts. The part with the fewest bits decides the size of the
      // codes.
      if (part->enabled()) bits = std::min(bits == 0 ? 32 : bits, part->descriptor().format().bits());
    if (bits == 0) continue;
    Codes& own = codes[quant->quantized_weight().node().get()];
    own = {std::min(own.bits, bits), own.readers + 1};
  }
  const auto named = network.module().named_parameters();
  std::int64_t bytes = 0;
  for (const auto& parameter : network.module().parameters()) {
    const auto* node = parameter.node().get();
    const Codes own = codes.contains(node) ? codes.at(node) : Codes{};
    if (own.readers > 0) bytes += (parameter.numel() * own.bits + 7) / 8;
    if (std::ranges::count(named, node, [](const auto& entry) { return entry.second.node().get(); }) >
        own.readers)
      bytes += 4 * parameter.numel();  // read as floats too, as the table of a tied layer
  }
  return bytes;
}

struct PredictionParts::Body {
  Body(const Network& network, const PredictionOptions& given, std::function<void(const StateDict&)> called)
      : recorder(network.module()), options(given), use(std::move(called)) {
    if (options.codes) scope.emplace(recorder);
  }

  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = total_bytes(x) + total_bytes(logits);
    for (const auto& [name, parts] : recorder.codes()) sum += total_bytes(parts);
    return sum;
  }

  void set_codes(StateDict& state) {
    nlohmann::json axes = nlohmann::json::object();
    for (const auto& [name, parts] : recorder.codes()) {
      const auto axis = batch_axis(parts, sizes);
      // Codes without an axis of samples are equal in all batches, so one batch is stored.
      state.set("codes/" + name, axis ? detail::join(parts, *axis) : parts.front());
      if (axis != 0) axes[name] = axis ? nlohmann::json(*axis) : nlohmann::json(nullptr);
    }
    state.set_attribute("batch", sizes.front());
    if (!axes.empty()) state.set_attribute("batch_axes", axes);
  }

  detail::CodeRecorder recorder;
  PredictionOptions options;
  std::function<void(const StateDict&)> use;
  std::optional<RecordScope> scope;
  std::vector<Tensor> x, logits;
  std::vector<std::int64_t> sizes;  // sizes of the batches
};

PredictionParts::PredictionParts(const Network& network, const PredictionOptions& options,
                                 std::function<void(const StateDict&)> use)
    : body_(std::make_unique<Body>(network, options, std::move(use))) {}
PredictionParts::~PredictionParts() = default;

void PredictionParts::add(const Tensor& x, const Tensor& logits) {
  if (body_->options.inputs) body_->x.push_back(x);
  // Files have row-major order. The layout of the computation depends on the device.
  body_->logits.push_back(logits.to(Device::cpu()).to(Layout::row_major));
  if (x.defined()) body_->sizes.push_back(x.dim(0));
  body_->recorder.next_batch();
  if (body_->bytes() >= body_->options.part_bytes) finish();
}

void PredictionParts::finish() {
  if (body_->logits.empty()) return;
  StateDict state;
  if (body_->options.inputs) state.set("x", detail::join(body_->x, 0));
  state.set("logits", detail::join(body_->logits, 0));
  if (!body_->recorder.codes().empty()) body_->set_codes(state);
  body_->x.clear();
  body_->logits.clear();
  body_->sizes.clear();
  body_->recorder.forget();
  body_->use(state);
}

struct FoldComparison::Body {
  Body(const Network& one, const Network& other, const Dataset& data, const MetricOptions& options)
      : after(other),
        codes(one.module()),
        other_codes(other.module()),
        score(one, data, options),
        other_score(one, data, options),
        scope(codes) {
    // `add` calls the folded network itself. The caller runs the other one.
    after.module().eval();
  }

  Network after;
  FoldChange change;
  detail::CodeRecorder codes, other_codes;
  Scoring score, other_score;
  RecordScope scope;
};

FoldComparison::FoldComparison(const Network& before, const Network& after, const Dataset& data,
                               const MetricOptions& options) {
  check_task(before, data, "fold");
  check_calibrated(before, "fold");
  body_ = std::make_unique<Body>(before, after, data, options);
}
FoldComparison::~FoldComparison() = default;

void FoldComparison::add(const Batch& samples, const Tensor& logits) {
  Module& after = body_->after.module();
  body_->score.add(logits, samples.y);
  {
    // The inner scope replaces the recorder of the other network for this forward pass.
    const RecordScope scope(body_->other_codes);
    body_->other_score.add(after(Variable(samples.x.to(after.device()))).tensor(), samples.y);
  }
  count_codes(body_->codes, body_->other_codes, body_->change);
  for (detail::CodeRecorder* recorder : {&body_->codes, &body_->other_codes}) {
    recorder->forget();
    recorder->next_batch();
  }
}

FoldChange FoldComparison::change() const {
  FoldChange out = body_->change;
  out.accuracy = body_->score.accuracy();
  out.before = body_->score.score();
  out.after = body_->other_score.score();
  return out;
}

}  // namespace fq
