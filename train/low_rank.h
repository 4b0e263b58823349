#pragma once

/// Low-rank adapters (LoRA; Hu et al., arXiv:2106.09685) of quantized weights. Training sees the merged
/// weights after quantization.
///
///     TrainerOptions options{.epochs = 2};
///     options.low_rank = {.rank = 8, .alpha = 16};  // the Trainer merges after every step
///
/// A layer computes with the codes of W + alpha / rank * B A, on the grid that was calibrated for W (LR-QAT;
/// Bondarenko et al., arXiv:2406.06385). W [out, in] is frozen; A [rank, in] and B [out, rank] are trained.
/// So the trained layer is the deployed layer: it has one matrix of codes, no additional product, and merging
/// the adapters adds no rounding error. An optimizer keeps (in + out) * rank numbers per layer instead of in
/// * out.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"

namespace fq {

class Module;

/// Selection and size of the adapters.
struct LowRankOptions {
  std::int64_t rank = 0;     ///< rank of A and B, at most the smaller side of each weight; 0 for no adapters
  double alpha = 0;          ///< numerator of the factor alpha / rank of B A; 0 for twice the rank
  std::string layers = "*";  ///< pattern of layer paths, for example "block?_fc*"

  /// Returns the factor of B A.
  [[nodiscard]] double scale() const { return alpha == 0 ? 2 : alpha / static_cast<double>(rank); }
};

/// Adapters of the quantized weights of a model, for any format and target. A convolution kernel is used as
/// the matrix [out, all other axes]. A begins uniform within 1 / sqrt(in), from the random stream of the
/// calling thread. B begins as zeros, so that the weights do not change at first.
class LowRankAdapters {
 public:
  /// Adds adapters to the layers that match. While the object lives, the other parameters of the model
  /// require no gradient. The model must outlive the object and keep its parameters. Throws ArgumentError for
  /// a rank below 1, for a rank larger than a weight allows, naming the layer, for an alpha that is negative
  /// or not finite, and for a pattern that matches no quantized weight, with a suggestion.
  LowRankAdapters(Module& model, const LowRankOptions& options);
  ~LowRankAdapters();
  LowRankAdapters(const LowRankAdapters&) = delete;  // a model has one set of adapters

  /// Returns the trained parameters, "<layer>.lora_A" and "<layer>.lora_B", for `make_optimizer`.
  [[nodiscard]] const Module& parameters() const noexcept { return *parameters_; }
  /// Computes the gradients of A and B from the gradients dW of the weights, then clears dW: dA = s B^T dW,
  /// dB = s dW A^T, where s is the factor of B A.
  void take_gradients();
  /// Writes W + s B A into the weights of the model. Call it after each optimizer step.
  void merge();

  /// Returns "<layer>/lora_A", "<layer>/lora_B" and "<layer>/base", which is W. Tensors are shared, not
  /// copied.
  [[nodiscard]] StateDict state_dict() const;
  /// Sets A, B and W from `state_dict`. Does not change the weights of the model; load these with the model.
  /// Throws ArgumentError for a state of other layers, ranks or shapes; then nothing has changed.
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
