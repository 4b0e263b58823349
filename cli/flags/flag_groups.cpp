#include "fakequant/cli/flags/flag_groups.h"

#include <fmt/ranges.h>

#include "fakequant/cli/augmentation.h"
#include "fakequant/cli/commands/profile.h"
#include "fakequant/cli/flags/attention_formats.h"
#include "fakequant/cli/flags/limits.h"
#include "fakequant/cli/optimization.h"
#include "fakequant/cli/runs/run_flags.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/builtin_models.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::cli {

void add_general_flags(FlagSet& set) {
  set.group("General")
      .toggle("help,h", "this text")
      .toggle("json", "one JSON object a line on standard output, for machines")
      .value("device", "NAME",
             "where to compute: cpu, cuda, cuda:N, or auto for the first GPU that can be used", "cpu")
      .value("threads", "THREADS", "threads to compute on (default: OMP_NUM_THREADS, or every core)");
  if (set.writes())
    set.toggle("force", "replace files of another kind than those that are written, and run directories")
        .toggle("quiet", "nothing on standard output, with --json the result alone");
}

void add_general_flags(FlagSet& set, GeneralOptions& options) {
  set.group("General")
      .toggle(options.help, "help,h", "print this text")
      .toggle(options.json, "json", "print one JSON object a line on standard output, for machines")
      .value(options.device, "device", "NAME",
             "where to compute: cpu, cuda, cuda:N, or auto for the first GPU that can be used")
      .value(options.threads, "threads", "THREADS", {1, kMostThreads},
             "threads to compute on (default: OMP_NUM_THREADS, or every core)");
  if (set.writes())
    set.toggle(options.force, "force", "replace files of another kind, and run directories")
        .toggle(options.quiet, "quiet", "print nothing on standard output, with --json only the result");
}

Device chosen_device(const GeneralOptions& options, std::string_view command) {
  const Device given = Device::parse(options.device);
  const Launched here = launched();
  if (here.ranks == 1 || !given.is_cuda()) return given;
  FQ_CHECK(here.ranks_here <= cuda_device_count(), command,
           "{} processes on this machine have {} GPUs. Start at most one for each, or leave out --device "
           "cuda",
           here.ranks_here, cuda_device_count());
  return Device::cuda(here.rank_here);
}

void add_data_flags(FlagSet& set, const char* split) {
  set.group("Data").value("data,d", "FILE", "HDF5 data set with groups of x and y");
  if (split != nullptr) set.value("split", "GROUP", "the group of the data set to read", split);
  set.value("batch,b", "SAMPLES", "samples in a batch", "64");
}

std::string network_help() {
  return fmt::format("a model file (models/*.json), or built in: {}", fmt::join(builtin_models(), ", "));
}

void add_model_flags(FlagSet& set) {
  set.need({"model-options"}, "model");
  set.group("Model")
      .value("model,m", "FILE|NAME", network_help().c_str())
      .value("model-options", "JSON",
             "options of a built-in model, as {\"widths\": [16, 32, 32]}, or {\"signals\": true} for [C, L]");
}

void add_training_flags(FlagSet& set, const char* epochs, const char* rate) {
  set.group("Training")
      .value("epochs,e", "EPOCHS", "passes over the training data", epochs)
      .value("steps", "STEPS", "steps of the run in place of --epochs; 0: as many as those have", "0");
  set.need({"rank-timeout"}, "micro-batch").need({"allow-changes"}, "resume");
  add_optimization_flags(set, rate);
  set.value("label-smoothing", "SHARE", "of a target spread over all classes", "0")
      .value("clip", "NORM", "largest norm of all gradients together; 0: any", "0")
      .toggle("keep-last",
              "train on the rest of an epoch that is less than --batch too; without, it is left out, others "
              "each epoch")
      .value("accumulate", "BATCHES", "batches whose gradients make one step", "1")
      .value("micro-batch", "SAMPLES",
             "a step sums the gradients of parts of its batch of so many samples, exactly: the result is the "
             "same "
             "for any number of processes, started by mpiexec or Slurm, that share them out; 0: off",
             "0")
      .value("rank-timeout", "SECONDS", "one process waits so long for another", "600")
      .value("reduce", "NAME",
             "how processes sum gradients: exact, or with fewer bytes fp32 or bf16, which gives up that the "
             "result does not depend on how many there are",
             "exact")
      .toggle("shard-optimizer",
              "each process keeps the optimizer's state of its part of the parameters alone; the same result")
      .value("ema", "DECAY", "average the weights with this decay a step, and save the average; 0: off", "0")
      .value("early-stopping", "EPOCHS", "stop after so many epochs without a better validation; 0: never",
             "0")
      .value("val-fraction", "SHARE", "of the training data held out to choose the best epoch", "0")
      .value("seed", "NUMBER", "of weights, order, augmentation and dropout", "0")
      .value("augment", "LIST", augment_help().c_str());
  add_sampling_flags(set);
  set.value("save-every", "STEPS", "write the checkpoint every so many steps too; 0: each epoch only", "0")
      .value(
          "checkpoint-blocks", "PATTERN",
          "gradient checkpointing: modules, or runs of nodes, that are computed again for backward, such as "
          "stage?_block?")
      .optional_output("profile", "FILE",
                       "measure where the time of a step goes, and write a trace for Perfetto there; with =, "
                       "by default <output>.profile.json",
                       profile_files)
      .toggle("no-capture", "on a GPU: launch kernels one by one, not as CUDA graphs of the step")
      .toggle("resume",
              "go on from the output, if it is there; --resume RUN of a run directory: with the flags that "
              "it began "
              "with, but for those given anew")
      .toggle("allow-changes",
              "with --resume: go on though rate, schedule, seed or another setting is not what the run began "
              "with")
      .toggle("dry-run",
              "check flags, data, network and files, tell what would be written, and write nothing")
      .toggle("verbose", "a line of progress every second where there is no bar");
  add_run_folder_flags(set);
}

void add_quantization_flags(FlagSet& set) {
  set.group("Quantization")
      .value(
          "preset", "NAME",
          "int8, int8_weight_only, ternary, binary, w4a8, w3a8, w2a8, w4a4, w3a3, w2a2, int4_blockwise, "
          "int2_blockwise, fp8, "
          "fp8_per_channel_per_token, "
          "fp8_2d_blockwise, nvfp4, mxfp8, mxfp6, mxfp4, mxint8, or a ModelOpt constant (calibrate without "
          "--config: int8); for one engine alone: int8_dynamic (ort_dynamic), 8da8w and 8da4w (xnnpack), "
          "q4_0 and q8_0 (ggml)")
      .value("config", "FILE", "a quantization config (JSON) in place of a preset")
      .value(
          "target", "NAME",
          "ort, tensorrt, ort_dynamic, xnnpack, ggml, openvino (as ort) or none: the engine the numbers are "
          "for (default: of the config or the preset, ort)")
      .value("scale", "NAME", "free or pow2: scales raised to powers of two (default: of the config, free)")
      .value(
          "edge-bits", "BITS",
          "bits of integers in the first and the last layer, 8 (E4M3) with nvfp4 and mxfp4; 0: as the preset "
          "(default: 8 with presets of 4 bits and fewer, else 0)");
  add_attention_flags(set);
  set.toggle("strict", "a layer that no engine can multiply codes of is an error, not a warning")
      .toggle(
          "keep-bn",
          "do not fold batch normalisation first: an export folds it, which rounds otherwise than what was "
          "trained but for integers with free scales");
}

void add_calibration_flags(FlagSet& set) {
  const std::string algorithms = "on weights and scales, around calibration: " +
                                 fq::detail::alternatives(QuantConfig::weight_algorithm_names()) +
                                 " (default: of the config, none)";
  set.group("Calibration")
      .value("method", "NAME",
             "max, moving_average, percentile, entropy, mse, octav, lsq, mse_search, or none for no ranges "
             "(default: of the config; one_pass_mse with presets of 4 bits and fewer, else max)")
      .value("weight-method", "NAME",
             "the same for weights, which have no passes over data (default: of the config; mse with presets "
             "of 4 bits and fewer, else max)")
      .value("algorithm", "NAME", algorithms.c_str())
      .value("percentile", "PERCENT", "of the values that lie in the range, for that method", "99.99")
      .value("samples", "SAMPLES", "training samples to look at", "512");
}

void add_range_flags(FlagSet& set) {
  set.group("Ranges while training")
      .value("amax", "NAME",
             "ranges of activations; frozen: as calibrated; running: they follow; learned: they are trained "
             "(default: learned with 4 bits and fewer, else frozen)")
      .value("weight-amax", "NAME", "ranges of weights: frozen or learned (default: as --amax)")
      .value("amax-gradient", "NAME",
             "of learned ranges: clip (of their bounds) or lsq (of the step) (default: lsq with 4 bits and "
             "fewer, else clip)")
      .value("amax-lr", "FACTOR",
             "of learned ranges: their learning rate over that of the weights (default: 3 with activations "
             "of 2 bits, 0.1 with w3a8, w2a8 and int2_blockwise, else 1)")
      .value("amax-momentum", "SHARE", "of a step that running ranges go towards those of a batch", "0.01")
      .value("freeze-amax-after", "STEPS", "running ranges stay after so many steps; -1: never", "-1")
      .value("backward", "NAME",
             "numbers that gradients of quantized layers are multiplied in: bf16 (rounded once) or fp32",
             "bf16")
      .value("quant-start", "STEPS", "train so many steps in float first", "0")
      .value("freeze-bn-after", "STEPS", "batch norm keeps its statistics after so many steps; -1: never",
             "-1")
      .value("reestimate-bn", "BATCHES",
             "after each epoch the statistics of live batch norms are those of so many training batches; 0: "
             "the running ones",
             "0");
}

Device device_of(const Flags& flags) {
  const Device given = Device::parse(flags.text("device"));
  const Launched here = launched();
  if (here.ranks == 1 || !given.is_cuda()) return given;
  FQ_CHECK(
      here.ranks_here <= cuda_device_count(), flags.command(),
      "{} processes on this machine have {} GPUs: start at most one for each, or leave --device cuda out",
      here.ranks_here, cuda_device_count());
  return Device::cuda(here.rank_here);
}

void check_general_flags(const Flags& flags) {
  if (!flags.knows("device")) return;
  static_cast<void>(describe(device_of(flags)));  // throws for a GPU that cannot be used
  if (flags.given("threads")) static_cast<void>(flags.integer("threads", 1, kMostThreads));
}

void apply_general_flags(const Flags& flags) {
  check_general_flags(flags);
  if (flags.given("threads")) use_threads(int(flags.integer("threads", 1, kMostThreads)));
}

}  // namespace fq::cli
