#pragma once

/// Weights that jump between two codes (Nagel et al. 2022, "Overcoming oscillations in quantization-aware
/// training").
///
///     OscillationTracker oscillation(model, {.mode = "freeze"});
///     while (train_step()) oscillation.update();  // after the optimizer
///     oscillation.share().oscillating;            // of all weights
///
/// A weight near the middle between two codes is pushed over it and back, step after step, and where training
/// ends is chance. The Trainer keeps a tracker where TrainerOptions::oscillation asks for one.

#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"

namespace fq {

class Module;
class TensorQuantizer;

/// What is done about oscillations.
struct OscillationOptions {
  std::string mode = "off";  ///< of `oscillation_modes`
  double momentum = 0.01;    ///< of moving means, more than 0, at most 1
  double threshold = 0.02;   ///< the frequency above which a weight is frozen, 0 to less than 1
  double weight = 1e-3;      ///< of dampening in the loss at the end of the run, more than 0
};

/// "off", "track" (counts only), "freeze", and "dampen", which counts too.
[[nodiscard]] const std::vector<std::string>& oscillation_modes();

/// Throws ArgumentError for an unknown mode, naming the nearest, and numbers out of range.
void check(const OscillationOptions& options);

/// Shares of the weights that are tracked, 0 to 1.
struct OscillationShare {
  double oscillating = 0;  ///< with a frequency above 0.005, frozen ones left out
  double frozen = 0;
};

/// Follows the codes of the weights on static grids of signed integers of up to 8 bits, all others are left
/// alone. A weight oscillates in a step when its code changes in the other direction than when it changed
/// last; its frequency f moves by momentum * (oscillates - f), from 0, and its mean code moves likewise from
/// the first code. With "freeze" a weight whose f is above the threshold stays at the code nearest to its
/// mean, whatever becomes of the scale: it is set to that code times the scale after each step. With "dampen"
/// the Trainer adds `weight` * (1 - cos(pi * t)) / 2 * sum((w - q * s)^2) to the loss, t the share of the run
/// that is done and the sum over weights within their ranges, so that they come to rest on their codes. State
/// is on the host, four numbers a weight.
class OscillationTracker {
 public:
  /// The model outlives it and keeps its parameters. Throws ArgumentError as `check`, and where there is no
  /// such weight.
  OscillationTracker(Module& model, const OscillationOptions& options);

  /// After a step of the optimizer; ranges must be known. Waits for a GPU.
  void update();
  [[nodiscard]] OscillationShare share() const;

  /// `<quantizer>/code`, `/direction`, `/frequency` and `/mean`, in the shape of the weight, from the first
  /// update on. A frozen weight has a direction of 2 and its code in `code`.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes it back. Throws ArgumentError for that of other weights; then nothing changed.
  void load_state(const StateDict& state);

 private:
  struct Weight {
    std::string name;
    TensorQuantizer* quantizer;
    Variable values;
    std::vector<float> code = {}, direction = {}, frequency = {}, mean = {};
  };
  /// Whether a weight is frozen.
  [[nodiscard]] bool follow(Weight& weight, const std::vector<float>& codes) const;
  static void set_frozen(Weight& weight);

  OscillationOptions options_;
  std::vector<Weight> weights_;
};

}  // namespace fq
