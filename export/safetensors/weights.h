#pragma once

/// Loads weights that another framework trained from safetensors into a model.
///
///     auto model = build_model(ModelSpec::load("models/resnet20.json"), {3, 32, 32}, 10);
///     load_weights(*model, "resnet20.safetensors");
///     load_weights(*model, "other.safetensors", {.renames = read_weight_renames("names.json")});

#include <string>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// A rename. `from` is a name in the file, or a pattern with `*` and `?`. `to` is the name in the model. Each
/// `*` in `to` is the text that the `*` at the same position of the pattern matched. An empty `to` excludes
/// the tensor.
struct WeightRename {
  std::string from, to;
};

/// Reads renames from JSON: an object from names in the file to names in the model. Comments are allowed.
/// null excludes a tensor:
///
///     {"backbone.*": "*", "head.weight": "fc.weight", "ema.*": null}
///
/// Throws FileError with the line for other content, and for a name with more `*` than its pattern.
[[nodiscard]] std::vector<WeightRename> read_weight_renames(const std::string& path);

/// Options for matching tensors with parameters.
struct WeightOptions {
  std::vector<WeightRename> renames =
      {};  ///< whole names go before patterns, earlier patterns before later ones
  /// Ignores mismatches: parameters without a tensor keep their values, and tensors without a parameter are
  /// skipped.
  bool partial = false;
};

/// Result of `load_weights`.
struct LoadedWeights {
  std::vector<std::pair<std::string, std::string>> set;  ///< parameters and buffers, and the tensor of each
  std::vector<std::string> kept;                         ///< parameters and buffers that kept their values
  std::vector<std::string> unused;                       ///< tensors that were skipped
};

/// Sets parameters and buffers of a model from a safetensors file, or from the files that a
/// `model.safetensors.index.json` in the same folder names.
///
/// Names and layouts follow a PyTorch state dict: `conv1.weight` [out, in / groups, kh, kw] (transposed
/// convolutions [in, out / groups, ..]), `fc.weight` [out, in], `bn1.running_mean`, `lstm.weight_ih_l0`,
/// `lstm.bias_hh_l0_reverse` (gates in PyTorch's order; layers above the first are modules `lstm_l1`, ..).
///
/// The search tries the exact name first. Then it treats `.` and `_` as equal, because the importer names
/// nodes so (`layer1_0_conv1` for `layer1.0.conv1`). Both steps also try names without the prefix that all or
/// most names of one side share (`model.`, `module.`, `_orig_mod.`). `num_batches_tracked` is ignored. Shapes
/// may differ by axes of length 1. F16, BF16 and F64 become f32. Values outside the range of f32 are an
/// error.
///
/// One FileError reports all mismatches: parameters and buffers without a tensor, tensors without a parameter
/// (each with the nearest names), different shapes and types, and renames that match no name. Also throws
/// FileError for values that are NaN or infinite, as SafetensorsFile, and for other files, with the
/// conversion to safetensors. Throws ArgumentError for a model with compressed weights. The model is
/// unchanged after an error.
LoadedWeights load_weights(Module& model, const std::string& path, const WeightOptions& options = {});

}  // namespace fq
