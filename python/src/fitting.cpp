#include <optional>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arguments.h"
#include "bindings.h"
#include "fakequant/core/error.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/ranks/shares.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

nb::dict to_dict(const EpochReport& report) {
  nb::dict out;
  out["epoch"] = report.epoch;
  out["epochs"] = report.epochs;
  out["loss"] = report.loss;
  out["accuracy"] = report.accuracy;
  out["learning_rate"] = report.learning_rate;
  out["best"] = report.best;
  out["seconds"] = report.seconds;
  if (report.validation) out["validation"] = evaluation_dict(*report.validation);
  return out;
}

nb::dict to_dict(const StepReport& report) {
  nb::dict out;
  out["epoch"] = report.epoch;
  out["step"] = report.step;
  out["steps"] = report.steps;
  out["loss"] = report.loss;
  out["accuracy"] = report.accuracy;
  out["learning_rate"] = report.learning_rate;
  out["images_per_second"] = report.images_per_second;
  out["seconds_left"] = report.seconds_left;
  return out;
}

// Names are parsed here, because the library takes enumerations and the command has a parser of its own.
AmaxMode amax_mode(const std::string& name) {
  if (name == "frozen") return AmaxMode::frozen;
  if (name == "running") return AmaxMode::running;
  if (name == "learned") return AmaxMode::learned;
  throw nb::value_error(("[fit] amax is '" + name + "': frozen, running and learned are allowed").c_str());
}

AmaxGradient amax_gradient(const std::string& name) {
  if (name == "clip") return AmaxGradient::clip;
  if (name == "lsq") return AmaxGradient::lsq;
  throw nb::value_error(("[fit] amax_gradient is '" + name + "': clip and lsq are allowed").c_str());
}

Reduction parse_reduction(const std::string& name) {
  if (name == "exact") return Reduction::exact;
  if (name == "fp32") return Reduction::fp32;
  if (name == "bf16") return Reduction::bf16;
  throw nb::value_error(("[fit] reduce is '" + name + "': exact, fp32 and bf16 are allowed").c_str());
}

/// Calls the Python callbacks of a training run. An exception of a callback, or KeyboardInterrupt, stops the
/// run after the current batch with a consistent model. It is thrown after the run has ended.
class Listener {
 public:
  Listener(nb::object on_step, nb::object on_epoch, Interrupts& interrupts)
      : on_step_(std::move(on_step)), on_epoch_(std::move(on_epoch)), interrupts_(interrupts) {}

  [[nodiscard]] TrainerCallbacks callbacks() {
    TrainerCallbacks out;
    out.on_step = [this](const StepReport& report) {
      run_locked([&] {
        if (!on_step_.is_none()) on_step_(to_dict(report));
      });
    };
    out.on_epoch = [this](const EpochReport& report) {
      run_locked([&] {
        history.append(to_dict(report));
        if (!on_epoch_.is_none()) on_epoch_(history[nb::len(history) - 1]);
      });
    };
    return out;
  }

  nb::list history;

 private:
  template <class F>
  void run_locked(F f) {
    // Callbacks run on the thread of the Trainer, which has released the lock.
    const Locked gil;
    // After an interrupt the Trainer still finishes the batch. No callback runs then.
    if (interrupts_.due()) return;
    try {
      f();
    } catch (const nb::python_error&) {
      interrupts_.end_call(std::current_exception());
    }
  }

  nb::object on_step_, on_epoch_;
  Interrupts& interrupts_;
};

nb::list fit(Network& self, nb::object data, std::optional<std::int64_t> epochs, nb::object validation,
             std::int64_t batch_size, double learning_rate, const std::string& optimizer, double weight_decay,
             const std::string& schedule, double clip_norm, double label_smoothing, const std::string& amax,
             std::int64_t patience, bool restore_best, std::uint64_t seed, const std::string& out,
             nb::object on_epoch, nb::object on_step, const std::string& gradient, bool learn_weight_ranges,
             double amax_rate, bool drop_last, nb::object teacher, double temperature, double teacher_share,
             std::int64_t lora, double lora_alpha, const std::string& lora_layers, std::int64_t micro_batch,
             nb::object given, const std::string& reduce, bool shard_optimizer, std::int64_t steps,
             std::int64_t full_rate_steps) {
  TrainerOptions options;
  if (epochs && steps != 0)
    throw ArgumentError(
        "[fit] epochs and steps are both given, and each sets the length of the run: use one of them");
  options.epochs = epochs.value_or(options.epochs);
  options.steps = steps;
  options.update.full_rate_steps = full_rate_steps;
  options.optimizer.kind = optimizer;
  options.optimizer.learning_rate = learning_rate;
  options.optimizer.weight_decay = weight_decay;
  options.schedule.kind = schedule;
  options.update.clip_norm = clip_norm;
  options.objective.label_smoothing = label_smoothing;
  options.ranges.amax = amax_mode(amax);
  options.ranges.amax_gradient = amax_gradient(gradient);
  options.ranges.learn_weight_ranges = learn_weight_ranges;
  options.ranges.amax_rate = amax_rate;
  if (!teacher.is_none())
    options.objective.distillation = {.teacher = nb::cast<const Network&>(teacher).shared_module(),
                                      .temperature = temperature,
                                      .weight = teacher_share};
  options.low_rank = {.rank = lora, .alpha = lora_alpha, .layers = lora_layers};
  options.validation.patience = patience;
  options.validation.restore_best = restore_best;
  options.seed = seed;
  options.checkpoint.out = out;
  // A step sums `accumulation` gradients of micro_batch samples each. The ranks share these gradients.
  const auto ranks = to_communicator(given);
  options.update.accumulation = micro_batches(batch_size, micro_batch, ranks ? ranks->size() : 1, "fit");
  // One process with micro_batch uses the exact sums too, so that its bits equal the bits of several ranks.
  if (micro_batch > 0) options.distributed.ranks = ranks ? ranks : one_rank();
  options.distributed.reduction = parse_reduction(reduce);
  if (reduce != "exact" && !options.distributed.ranks)
    throw ArgumentError("[fit] reduce requires several processes: use micro_batch and ranks");
  options.distributed.shard_optimizer = shard_optimizer;
  LoaderOptions loader;
  loader.batch_size = micro_batch > 0 ? micro_batch : batch_size;
  loader.seed = seed;
  loader.drop_last = drop_last;
  if (options.distributed.ranks)
    loader = share_of_rank(loader, *options.distributed.ranks, options.update.accumulation);
  const auto samples = to_dataset(data, "fit");
  warn(take_sample_notes(self.identity().inputs, *samples, "fit"));
  // Labels of tokens or pixels need a loss over positions. An empty loss is cross entropy of one class per
  // sample.
  options.objective.loss = default_loss(*samples, label_smoothing);
  options.objective.metrics = default_metrics(*samples);
  auto batches = std::make_shared<DataLoader>(samples, loader);
  std::shared_ptr<DataLoader> held_out;
  if (!validation.is_none()) {
    held_out = sequential_loader(validation, batch_size, "fit", ranks.get());
    warn(check_sample_notes(self.identity().inputs, held_out->data(), "fit"));
  }
  Interrupts interrupts;
  Listener listener(std::move(on_step), std::move(on_epoch), interrupts);
  // Ctrl-C sets the flag in a signal handler. The Trainer stops after the batch.
  options.execution.stop = &interrupts.stop;
  unlocked([&] { return fq::fit(self, batches, options, held_out, listener.callbacks()); });
  // The exception is thrown here, after the Trainer has left a consistent model.
  if (interrupts.due()) interrupts.rethrow();
  return listener.history;
}

}  // namespace

void bind_fitting(nb::module_& m) {
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model.def(
      "fit", &fit, arg("data"), arg("epochs") = none(), arg("validation") = none(), arg("batch_size") = 64,
      arg("learning_rate") = 1e-3, arg("optimizer") = "adamw", arg("weight_decay") = 0.0,
      arg("schedule") = "constant", arg("clip_norm") = 0.0, arg("label_smoothing") = 0.0,
      arg("amax") = "frozen", arg("patience") = 0, arg("restore_best") = false, arg("seed") = 0,
      arg("out") = "", arg("on_epoch") = none(), arg("on_step") = none(), arg("amax_gradient") = "clip",
      arg("learn_weight_ranges") = false, arg("amax_rate") = 1.0, arg("drop_last") = false,
      arg("teacher") = none(), arg("temperature") = 2.0, arg("teacher_share") = 1.0, arg("lora") = 0,
      arg("lora_alpha") = 0.0, arg("lora_layers") = "*", arg("micro_batch") = 0, arg("ranks") = none(),
      arg("reduce") = "exact", arg("shard_optimizer") = false, arg("steps") = 0, arg("full_rate_steps") = 0,
      "Trains on a data set or (x, y). Training a quantized model is quantization-aware training. `on_step` "
      "and `on_epoch` are called with dicts. `teacher` is a Model for distillation, which has the share "
      "`teacher_share` of the loss; the outputs of both models are divided by `temperature`. `lora` is the "
      "rank of low-rank adapters of the quantized weights: only they are trained, and they are merged on the "
      "quantized grid with the factor lora_alpha / lora (2 if lora_alpha is 0). With `micro_batch`, a step "
      "adds up batch_size / micro_batch gradients of micro_batch samples each. `ranks` share these "
      "gradients, and the result has the bits of one process. The length of the run is `epochs`, 10 by "
      "default, or `steps`. `amax` is \"frozen\", \"running\" or \"learned\", `reduce` \"exact\", \"fp32\" "
      "or \"bf16\". `clip_norm` bounds the norm of all gradients, 0 does not. `patience` is the number of "
      "epochs without improvement before the run stops, 0 never stops. A run of fewer than `full_rate_steps` "
      "steps has a lower learning rate (`short_run_rate`). Returns a dict for each epoch. KeyboardInterrupt "
      "or an exception of a callback stops the run after the batch, with a consistent model.");
}

}  // namespace fq::python
