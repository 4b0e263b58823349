#pragma once

/// Network: a model together with its identity, as a checkpoint holds both.
///
///     Network network = Network::load("float.h5");
///     network.fold();
///     network.quantize(preset_config("int8"));
///     network.save("int8.h5");
///
/// network/qat.h calibrates and fine-tunes networks, network/evaluation.h evaluates them.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/gguf/file.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/identity.h"

namespace fq {

/// A handle: copies share the module. `clone` copies the values.
class Network {
 public:
  /// Takes a module that was built as `identity` describes.
  Network(std::shared_ptr<Module> module, Identity identity);

  /// Builds the model of `identity`, folded and quantized as it says, with first values by `seed`. Throws
  /// ArgumentError.
  [[nodiscard]] static Network create(Identity identity, std::uint64_t seed = 0);
  /// Builds a float model. Without `classes` the model is traced: if it gives a list of numbers for each
  /// sample, their number is `classes`.
  [[nodiscard]] static Network create(const ModelSpec& model, const Shape& sample_shape,
                                      std::int64_t classes = 0, std::uint64_t seed = 0);
  /// Builds a model that was read from `file`, with its weights. Throws FileError naming the file.
  [[nodiscard]] static Network from_model(const ImportedModel& model, const std::string& file);
  /// Reads a checkpoint. Throws FileError for a damaged file, a file of another kind, an identity that
  /// describes no network and values that do not fit the model.
  [[nodiscard]] static Network load(const std::string& path);
  /// Does the same with a checkpoint in memory; `path` is for messages.
  [[nodiscard]] static Network from_state(const StateDict& state, const std::string& path);
  /// Reads a network that another tool wrote: an ONNX or GGUF file, float or quantized, or a folder of
  /// save_pretrained of transformers. Codes and scales of a quantized file are kept. Throws FileError.
  [[nodiscard]] static Network import_file(const std::string& path, const ImportOptions& options = {});
  /// Writes a checkpoint without the state of a training run. Throws as `save_checkpoint`.
  void save(const std::string& path) const;

  [[nodiscard]] Module& module() const noexcept { return *module_; }
  [[nodiscard]] const std::shared_ptr<Module>& shared_module() const noexcept { return module_; }
  [[nodiscard]] const Identity& identity() const noexcept { return identity_; }
  [[nodiscard]] Identity& identity() noexcept { return identity_; }

  /// Returns the shape of a batch.
  [[nodiscard]] Shape input_shape(std::int64_t batch = 1) const;
  /// Returns the shape of the outputs of one sample, with a batch of 1. Traces the model.
  [[nodiscard]] Shape output_shape() const;
  /// Returns the number of outputs of each sample; 0 if outputs are not a list of numbers.
  [[nodiscard]] std::int64_t classes() const { return identity_.dense ? 0 : identity_.classes; }
  [[nodiscard]] bool folded() const noexcept { return identity_.folded; }
  [[nodiscard]] bool quantized() const noexcept { return identity_.quantized(); }
  /// Reads loss and metrics of the identity. Throws ArgumentError for an unknown one.
  [[nodiscard]] Task task() const;

  /// Returns a network of the same values that shares nothing. Throws NumericError for NaN and infinity.
  [[nodiscard]] Network clone() const;
  /// Returns a clone with its quantizers switched off.
  [[nodiscard]] Network float_clone() const;

  /// Folds batch norm into the layers before; returns how many batch norms.
  std::size_t fold();
  /// Returns the number of batch norms that are not folded.
  [[nodiscard]] std::size_t live_batch_norms() const;
  /// Places quantizers by a config (QuantConfig::from_json), which the identity keeps. Rules become lists:
  /// files sort the keys of objects, and the order of rules counts. `part`: the network is a part of another
  /// one. Throws ArgumentError as `fq::quantize`.
  void quantize(const nlohmann::ordered_json& config, NetworkPart* part = nullptr);
  /// Returns the ONNX graph of the network. Engines fold batch norm, so call `fold` before. Throws as
  /// `export_onnx`.
  [[nodiscard]] OnnxModel to_onnx(const OnnxExportOptions& options = {}) const;
  /// Returns the GGUF file of the network, with its tokenizer. `name` becomes "general.name"; `f16` rounds
  /// matrices that are not quantized. Throws as `gguf_model`.
  [[nodiscard]] GgufModel to_gguf(const std::string& name, bool f16 = false) const;

 private:
  std::shared_ptr<Module> module_;
  Identity identity_;
};

/// Returns the identity of a checkpoint. Throws FileError if the checkpoint has none.
[[nodiscard]] Identity load_identity(const StateDict& state, const std::string& path);

}  // namespace fq
