#pragma once

/// The networks that whole training steps are timed on, with made-up data. bench/peers/networks.py has the
/// same for PyTorch.
///
/// mlp: 784-1024-1024-10, batch 256. cnn, resnet20: as built in, batch 64 of 1x28x28 and 3x32x32.
/// conv4: batch 64 of 64x28x28, four times convolution 64 -> 64 3x3, batch norm, ReLU; global average pool,
/// linear. 10 classes. gpt: 4 layers of width 256, 4 heads, 16 windows of 128 ids out of 96.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/detail/passes.h"
#include "fakequant/train/optimizer.h"

namespace fq::bench {

inline constexpr std::int64_t kClasses = 10;

/// Networks of images, in the order of the report.
[[nodiscard]] const std::vector<std::string>& network_names();
[[nodiscard]] bool has_batch_norm(std::string_view name);

enum class Numbers { fp32, int8, int8_learned, e4m3, nvfp4, mxfp8, mxfp4, int4_blockwise, w8da4, q4_0 };
enum class BatchNorm { live, folded };

struct Network {
  std::shared_ptr<Module> model;
  Tensor x;  ///< input batch, row-major as from a loader; channels_last for conv4, an inner part of a network
  Tensor labels;  ///< i64
};

struct GptSize {
  std::int64_t layers = 4, width = 256, heads = 4, context = 128, batch = 16, vocabulary = 96;
};
/// The built-in gpt and windows of made-up ids, as the function below makes the others.
[[nodiscard]] Network make_gpt(Numbers numbers, const GptSize& size = {});

/// In training mode; quantized by the preset of the numbers and calibrated on `x`, unless fp32. The same seed
/// for every call. int8_learned: int8 whose activations learn their ranges.
[[nodiscard]] Network make_network(std::string_view name, Numbers numbers, BatchNorm batch_norm);

/// A built-in network of another size.
struct NetworkSize {
  std::string name, options;  ///< options as JSON, may be empty
  Shape input;                ///< with the batch
};
[[nodiscard]] Network make_network(const NetworkSize& size, Numbers numbers);

/// forward, cross-entropy, backward, stochastic gradient descent with momentum: the step of a Trainer.
class TrainingStep {
 public:
  explicit TrainingStep(Network network);
  void run() { run(network_.x.dim(0)); }
  /// A step with the first samples of the batch.
  void run(std::int64_t samples);
  void zero_grad() { optimizer_.zero_grad(); }
  /// Forward alone.
  [[nodiscard]] Variable loss() const;

 private:
  Network network_;
  Sgd optimizer_;
  fq::detail::Passes passes_;
};

}  // namespace fq::bench
