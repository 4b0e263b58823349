#include "fakequant/train/ptq/algorithm.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/text.h"
#include "fakequant/train/ptq/ada_round.h"
#include "fakequant/train/ptq/awq_clip.h"
#include "fakequant/train/ptq/awq_lite.h"
#include "fakequant/train/ptq/bias_correction.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/equalize.h"
#include "fakequant/train/ptq/gptq.h"
#include "fakequant/train/ptq/smooth_quant.h"

namespace fq::ptq {
namespace {

constexpr int kMostIterations = 1000000;

const std::vector<std::string>& options_of(const std::string& name) {
  static const std::map<std::string, std::vector<std::string>> table{
      {"", {}},
      {"smoothquant", {"alpha"}},
      {"equalize", {"iterations", "tolerance"}},
      {"bias_correction", {}},
      {"gptq", {"damping", "perc_damp", "act_order"}},
      {"awq_lite", {"alpha_step"}},
      {"awq_clip", {"lowest", "min_clip_ratio", "step", "shrink_step"}},
      {"awq_full", {"alpha_step", "lowest", "min_clip_ratio", "step", "shrink_step"}},
      {"adaround", {"iterations", "learning_rate", "regularization", "warmup"}},
  };
  const auto found = table.find(name);
  FQ_CHECK(found != table.end(), "quantize", "the algorithm '{}' is not known here", name);
  return found->second;
}

void check_option(const std::string& algorithm, const std::string& key, const nlohmann::json& value) {
  if (key == "act_order") {
    FQ_CHECK(value.is_boolean(), "quantize", "'{}' of {} is {}: use true or false", key, algorithm,
             value.dump());
  } else if (key == "iterations") {
    FQ_CHECK(value.is_number_integer() && value >= 1 && value <= kMostIterations, "quantize",
             "'{}' of {} is {}: use a whole number from 1 to {}", key, algorithm, value.dump(),
             kMostIterations);
  } else {
    FQ_CHECK(value.is_number(), "quantize", "'{}' of {} is {}: give a number", key, algorithm, value.dump());
  }
}

/// On the CPU while it lives: the algorithms read and write weights one by one.
class OnHost {
 public:
  explicit OnHost(Module& model) : model_(model), device_(model.device()) { model_.to(Device::cpu()); }
  ~OnHost() {
    try {
      model_.to(device_);
    } catch (const Error&) {  // the GPU is lost: the next call there says so, with the model on the host
    }
  }
  OnHost(const OnHost&) = delete;  // tied to its block
  OnHost& operator=(const OnHost&) = delete;

 private:
  Module& model_;
  Device device_;
};

}  // namespace

Algorithm::Algorithm(const QuantConfig& config, std::int64_t samples)
    : name_(config.weight_algorithm), options_(config.weight_options), samples_(samples) {
  const auto& known = options_of(name_);
  if (options_ == nullptr) return;
  for (const auto& [key, value] : options_->items()) {
    FQ_CHECK(std::ranges::find(known, key) != known.end(), "quantize", "'{}' is no option of {}{}", key,
             name_, detail::did_you_mean(key, known));
    check_option(name_, key, value);
  }
}

double Algorithm::number(const char* key, double fallback) const {
  return options_ != nullptr ? options_->value(key, fallback) : fallback;
}

bool Algorithm::on(const char* key) const { return options_ != nullptr && options_->value(key, false); }

bool Algorithm::runs_before() const noexcept {
  return name_ == "smoothquant" || name_ == "awq_lite" || name_ == "awq_full" || name_ == "equalize";
}

Report Algorithm::before(Module& model, DataLoader& data) const {
  const OnHost host(model);
  if (name_ == "smoothquant")
    return smooth_quant(model, data, {.alpha = number("alpha", 0.5), .samples = samples_});
  if (name_ == "awq_lite" || name_ == "awq_full")
    return awq_lite(model, data, {.alpha_step = number("alpha_step", 0.1), .samples = samples_});
  if (name_ != "equalize") return {};
  EqualizeOptions options;
  options.iterations = static_cast<int>(number("iterations", options.iterations));
  options.tolerance = number("tolerance", options.tolerance);
  return equalize(model, input_shape_of(data), options);
}

Report Algorithm::after(Module& model, DataLoader& data) const {
  const OnHost host(model);
  if (name_ == "awq_clip" || name_ == "awq_full")
    return awq_clip(model, data,
                    {.lowest = number("lowest", number("min_clip_ratio", 0.5)),
                     .step = number("step", number("shrink_step", 0.05)),
                     .samples = samples_});
  if (name_ == "gptq")
    return gptq(model, data,
                {.damping = number("damping", number("perc_damp", 0.01)),
                 .act_order = on("act_order"),
                 .samples = samples_});
  if (name_ == "bias_correction") return correct_bias(model, data, {.samples = samples_});
  if (name_ != "adaround") return {};
  AdaRoundOptions options{.samples = samples_};
  options.iterations = static_cast<int>(number("iterations", options.iterations));
  options.learning_rate = number("learning_rate", options.learning_rate);
  options.regularization = number("regularization", options.regularization);
  options.warmup = number("warmup", options.warmup);
  return ada_round(model, data, options);
}

}  // namespace fq::ptq
