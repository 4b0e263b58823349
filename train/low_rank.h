#pragma once

/// Low-rank adapters (LoRA; Hu et al., arXiv:2106.09685) of quantized weights, trained inside of the
/// rounding.
///
///     TrainerOptions options{.epochs = 2};
///     options.low_rank = {.rank = 8, .alpha = 16};  // the Trainer merges after every step
///
/// A layer computes with the codes of W + alpha / rank * B A on the grid that W was calibrated on (LR-QAT;
/// Bondarenko et al., arXiv:2406.06385), W [out, in] being frozen, A [rank, in] and B [out, rank] trained. So
/// what is trained is what is deployed: one matrix of codes, with no product beside it, and no rounding when
/// the adapters are merged. An optimizer keeps (in + out) * rank numbers of a layer in place of in * out.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"

namespace fq {

class Module;

/// Which weights have adapters, and how large these are.
struct LowRankOptions {
  std::int64_t rank = 0;     ///< of A and B, at most the smaller side of each weight; 0 for no adapters
  double alpha = 0;          ///< B A counts alpha / rank times; 0 for twice the rank
  std::string layers = "*";  ///< paths of layers, a pattern as "block?_fc*"

  /// What B A is multiplied by.
  [[nodiscard]] double scale() const { return alpha == 0 ? 2 : alpha / static_cast<double>(rank); }
};

/// The adapters of a model's quantized weights, of whatever format and target. A kernel of a convolution is
/// the matrix [out, all others]. A starts uniform within 1 / sqrt(in), from this thread's random stream, B as
/// zeros: at first the weights are what they were.
class LowRankAdapters {
 public:
  /// The model outlives it and keeps its parameters, which ask for no gradient while it lives but for the
  /// weights that have adapters. Throws ArgumentError for a rank below 1 or beyond a weight's, naming it, for
  /// an alpha that is negative or not finite, and for layers that match no quantized weight, naming the
  /// nearest.
  LowRankAdapters(Module& model, const LowRankOptions& options);
  ~LowRankAdapters();
  LowRankAdapters(const LowRankAdapters&) = delete;  // the model has one

  /// What is trained: "<layer>.lora_A" and "<layer>.lora_B", for `make_optimizer`.
  [[nodiscard]] const Module& parameters() const noexcept { return *parameters_; }
  /// Gives A and B their gradients from those of the weights, which are forgotten: dA = s B^T dW, dB = s dW
  /// A^T.
  void take_gradients();
  /// Writes W + s B A into the weights of the model, after a step of A and B.
  void merge();

  /// "<layer>/lora_A", "/lora_B" and "/base", which is W; shared, not copied.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes it back; the weights of the model are left to whoever loads the model. Throws ArgumentError for
  /// that of other layers, ranks or shapes; then nothing changed.
  void load_state(const StateDict& state);

 private:
  struct Adapter {
    std::string layer;
    Variable weight, a, b;
    Tensor base;
  };

  double scale_;
  std::vector<Adapter> adapters_;
  std::vector<Variable> frozen_;
  std::shared_ptr<Module> parameters_;
};

}  // namespace fq
