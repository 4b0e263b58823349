#pragma once

/// Weights of a network trained elsewhere, from safetensors, into a model of ours.
///
///     auto model = build_model(ModelSpec::load("models/resnet20.json"), {3, 32, 32}, 10);
///     load_weights(*model, "resnet20.safetensors");
///     load_weights(*model, "other.safetensors", {.renames = read_weight_renames("names.json")});

#include <string>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// A name in the file, or a pattern with `*` and `?`, and the name in the model that stands for it: each `*`
/// there is what the `*` in the same place of the pattern matched. An empty name leaves the tensor out.
struct WeightRename {
  std::string from, to;
};

/// Reads renames as JSON, an object of names in the file and names in the model, comments allowed; null
/// leaves a tensor out:
///
///     {"backbone.*": "*", "head.weight": "fc.weight", "ema.*": null}
///
/// Throws FileError with the line for anything else, and for a name with more `*` than its pattern has.
[[nodiscard]] std::vector<WeightRename> read_weight_renames(const std::string& path);

/// How tensors of a file find their places.
struct WeightOptions {
  std::vector<WeightRename> renames =
      {};  ///< whole names go before patterns, earlier patterns before later ones
  /// What does not fit is no error: the model keeps the values that it has, and the file's are left out.
  bool partial = false;
};

/// What became of a file and a model.
struct LoadedWeights {
  std::vector<std::pair<std::string, std::string>> set;  ///< parameters and buffers, and the tensor each took
  std::vector<std::string> kept;                         ///< those that have what they had
  std::vector<std::string> unused;                       ///< tensors that were left out
};

/// Sets parameters and buffers of a model to the tensors of a safetensors file, or of the files that a
/// `model.safetensors.index.json` names, which lie beside it.
///
/// Names and layouts are those of a PyTorch state dict: `conv1.weight` [out, in / groups, kh, kw] (of
/// transposed convolutions [in, out / groups, ..]), `fc.weight` [out, in], `bn1.running_mean`,
/// `lstm.weight_ih_l0`, `lstm.bias_hh_l0_reverse` (gates in PyTorch's order; layers above the first are
/// modules `lstm_l1`, ..). A name is looked for as it is; with `.` and `_` taken for each other, as the
/// importer names nodes (`layer1_0_conv1` for `layer1.0.conv1`); and both also without the part in front that
/// all or most names of one side have (`model.`, `module.`, `_orig_mod.`). `num_batches_tracked` is passed
/// over. Shapes may differ by axes of length 1. F16, BF16 and F64 become f32, values beyond its range are an
/// error.
///
/// Everything that does not fit is told at once: parameters and buffers without a tensor, tensors without a
/// place, each with the nearest names, shapes and types that differ, renames that name nothing. Throws
/// FileError for that, for values that are NaN or infinite, as SafetensorsFile, and for other files, saying
/// how a safetensors file is made of them; ArgumentError for a model whose weights are compressed. Then
/// nothing was changed.
LoadedWeights load_weights(Module& model, const std::string& path, const WeightOptions& options = {});

}  // namespace fq
