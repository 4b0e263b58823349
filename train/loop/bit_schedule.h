#pragma once

/// Bits that fall while a network is trained (progressive quantization; Zhuang et al. 2018).
///
///     const TrainerOptions options{.epochs = 6, .progressive = parse_bit_stages("8,4,2")};  // of w2a2
///
/// A network that loses much at once may lose less when it gets there by and by. The Trainer keeps a schedule
/// where TrainerOptions::progressive has stages.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/io/state_dict.h"

namespace fq {

class Module;
class TensorQuantizer;

/// A part of a run and the fewest bits in it.
struct BitStage {
  int bits = 8;      ///< 2 to 8
  double share = 0;  ///< of the steps of the run; 0 for an equal part of what the other stages leave
};

/// The stages of a text such as "8,4,2" or "8:0.25,4:0.25,2". Throws ArgumentError for what is not such a
/// list, and as `check`.
[[nodiscard]] std::vector<BitStage> parse_bit_stages(std::string_view text);
/// The text of stages, "8:0.25,4:0.25,2"; "none" for none.
[[nodiscard]] std::string to_string(const std::vector<BitStage>& stages);
/// Throws ArgumentError for bits that do not fall from stage to stage or are not 2 to 8, and for shares that
/// are negative or leave no step to a stage.
void check(const std::vector<BitStage>& stages);

/// Moves the quantizers with static ranges of integers through the stages: in each a quantizer has the bits
/// of the stage, or its own where those are more, so that the last stage is the network as it was quantized.
class BitSchedule {
 public:
  /// Nothing changes yet. `steps` are those of the whole run. The model outlives it.
  ///
  /// Throws ArgumentError as `check`, for more stages than steps, where no quantizer is of static integers,
  /// and where the last stage has other bits than the fewest of those quantizers.
  BitSchedule(Module& model, std::vector<BitStage> stages, std::int64_t steps);

  /// Before a step, counted from 0: moves on to its stage, never back. Whether quantizers have other bits
  /// than before; then their ranges, which stay, have to be calibrated anew.
  bool advance(std::int64_t step);
  /// Whether the network has the bits that it will be deployed with.
  [[nodiscard]] bool finished() const noexcept { return stage_ + 1 == static_cast<int>(stages_.size()); }
  /// The fewest bits now; those of the network before the first step.
  [[nodiscard]] int bits() const noexcept;

  /// Attribute `stage`; the bits themselves are in the state of the quantizers.
  [[nodiscard]] StateDict state_dict() const;
  /// Throws ArgumentError for a stage that there is none of.
  void load_state(const StateDict& state);

 private:
  struct Member {
    TensorQuantizer* quantizer;
    int own_bits;
  };

  std::vector<BitStage> stages_;
  std::vector<std::int64_t> begins_;  // the first step of each stage
  std::vector<Member> members_;
  int stage_ = -1;  // before the first step
};

}  // namespace fq
