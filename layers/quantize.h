#pragma once

/// quantize(model, config): replaces float modules by quantized modules and gives each tensor one quantizer.
///
///     fold_batch_norm(model, {1, 3, 32, 32});
///     quantize(model, QuantConfig::preset("int8"), {1, 3, 32, 32});
///     calibrate(model, loader);
///     disable_quantizer(model, "fc.*_quantizer");
///     print_quant_summary(model, std::cout);
///
/// The model then computes as the target's engine does: evaluate it, train it, export it. The order matters:
/// fold batch norms before, calibrate after, and make optimizers when all parameters exist.
///
/// A pattern is shell-like: `*` is any run of characters, `?` is one character, `[kv]` is k or v. It must
/// cover a whole path ("conv1.input_quantizer") or one of its aliases.

#include <functional>
#include <iosfwd>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

/// Traces the model and replaces each module that has a quantized counterpart and that a rule enables.
/// `input_shape` is the shape of a batch; the batch size does not matter.
///
/// All readers of one tensor share one quantizer, also through max pooling, flatten, reshape and
/// concatenation. Every path stays an alias. If the target prefers it, activations after a ReLU become
/// unsigned, as the graph shows.
///
/// Returns warnings, which it also logs: patterns that match nothing (with the nearest names), and explicit
/// fields that conflict with the target. For int8 and `ort` it also logs the operators that the engine
/// computes in floats (layers/model/float_operators.h). Throws ArgumentError for a model that is quantized
/// already, for fields that do not fit, and for a shape that the model does not accept.
std::vector<std::string> quantize(Module& model, const QuantConfig& config, const Shape& input_shape);

/// A model that is one part of a network. The caller warns about patterns that match in no part.
struct NetworkPart {
  bool has_first = true;               ///< whether its first layer is the network's: `@first` in rules
  bool has_last = true;                ///< whether its last layer is the network's: `@last` in rules
  std::vector<std::string> unmatched;  ///< result: patterns that match nothing in this part
  std::vector<std::string> names;      ///< result: quantizers that rules could switch on
};
/// Quantizes one part of a network. The returned warnings do not include patterns that match nothing.
std::vector<std::string> quantize(Module& model, const QuantConfig& config, const Shape& input_shape,
                                  NetworkPart& part);

/// Throws ArgumentError if two modules of the model are quantized for different targets, and names both.
void check_one_target(Module& model);
/// Returns the target of the model's quantized modules, or `none` if it has none. Throws as
/// `check_one_target`.
[[nodiscard]] Target model_target(Module& model);

/// Builds the quantized counterpart of a layer from the layer and its number of inputs. The result must be a
/// Module and a QuantModule.
using QuantFactory = std::function<std::shared_ptr<Module>(const Module& layer, std::size_t inputs)>;
/// Registers the factory of the quantized counterpart for modules of exactly this type, not of derived types.
/// A second registration replaces the first. Do not call it while other threads quantize.
void register_quant_module(std::type_index type, QuantFactory make);
/// Registers a counterpart whose constructor takes the layer: `register_quant_module<MyLinear,
/// QuantMyLinear>()` requires a constructor `QuantMyLinear(const MyLinear&)`.
template <class Float, class Quant>
void register_quant_module() {
  register_quant_module(typeid(Float), [](const Module& layer, std::size_t) -> std::shared_ptr<Module> {
    return std::make_shared<Quant>(static_cast<const Float&>(layer));
  });
}

/// A quantizer, its path, and the other paths that share it. The pointer is valid while the module stays in
/// the model.
struct NamedQuantizer {
  std::string name;
  TensorQuantizer* quantizer;
  std::vector<std::string> aliases;
};
/// Returns each quantizer of the model once, in the order of the module tree.
[[nodiscard]] std::vector<NamedQuantizer> named_quantizers(Module& model);
/// Returns the quantizers of the weights of QuantModules. Parts of sequential quantizers are listed one by
/// one. All other quantizers of the model read activations.
[[nodiscard]] std::set<const TensorQuantizer*> weight_quantizers(Module& model);
/// Calls `visit` for each element of `named_quantizers`, in that order.
void visit_quantizers(Module& model, const std::function<void(const NamedQuantizer&)>& visit);
/// Calls `visit` for each quantizer with a path that matches, in the order of `named_quantizers`. Returns the
/// number of calls. If none matches, throws ArgumentError in the name of `function` with the nearest paths.
int visit_quantizers(Module& model, std::string_view pattern, std::string_view function,
                     const std::function<void(const NamedQuantizer&)>& visit);

/// Returns the names of the enabled quantizers that need an amax and have none. A forward pass would throw
/// for the first of them.
[[nodiscard]] std::vector<std::string> uncalibrated_quantizers(Module& model);

/// Enables the quantizers with a path that matches, and returns their number. Throws ArgumentError with the
/// nearest paths if none matches.
int enable_quantizer(Module& model, std::string_view pattern);
/// Disables the quantizers with a path that matches, and returns their number. Their ranges stay. Throws as
/// `enable_quantizer`.
int disable_quantizer(Module& model, std::string_view pattern);
/// Sets fields of the quantizers with a path that matches, and returns their number. Allowed fields are the
/// keys of QuantDescriptor::dict(), `enable`, `pass_through_bwd`, `binary` and `amax_gradient`. Fields that
/// are not given keep their values. Throws ArgumentError if no path matches, and as
/// PartialQuantParams::from_dict.
///
///     set_quantizer_attributes(model, "conv1.*", {{"num_bits", 4}, {"enable", true}});
int set_quantizer_attributes(Module& model, std::string_view pattern, const nlohmann::json& fields);

/// Sets the calib_method of the quantizer's descriptor. A change drops the data that another method
/// collected.
void set_calib_method(TensorQuantizer& quantizer, std::string_view method);

/// Makes the range of each enabled activation quantizer a parameter, as the descriptor's learn_amax does.
/// Quantizers without a range of their own (dynamic, blocks) stay unchanged. Returns the number of ranges.
/// Call it after calibration and before the optimizer is made.
///
/// Throws ArgumentError if a range was not calibrated, if there is no range to learn, and for ranges per axis
/// in arithmetic `reference`.
int learn_ranges(Module& model, AmaxGradient gradient = AmaxGradient::clip);
/// Makes the range of each enabled weight quantizer a parameter, so that ranges follow the weights (Esser et
/// al. 2020). Ranges of blocks stay unchanged. Returns 0 if no weight has a static range.
int learn_weight_ranges(Module& model, AmaxGradient gradient = AmaxGradient::lsq);
/// Prepares ranges for learning before calibration, which then makes each range a parameter. Returns how many
/// ranges will be parameters, which may be 0.
int learn_ranges_once_calibrated(Module& model, bool activations, bool weights, AmaxGradient gradient);

/// Prints a table of all quantizers: path, format, granularity, amax, switches, aliases.
void print_quant_summary(Module& model, std::ostream& out);
/// Replaces each quantized weight by its dequantized codes and disables its quantizer. The network then
/// computes the same results from float weights, as after ModelOpt's fold_weight. This cannot be undone.
void fold_weight(Module& model);

/// Writes the quantizers' descriptors, ranges and switches to a state as "quantizers/<name>/..", as in
/// checkpoints (train/loop/checkpoint.h).
void save_quantizers(Module& model, StateDict& state);
/// Restores these entries in a model that was quantized the same way. Throws ArgumentError for a missing or
/// unknown quantizer.
void load_quantizers(Module& model, const StateDict& state);

}  // namespace fq
