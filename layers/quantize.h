#pragma once

/// quantize(model, config): puts quantized modules where float ones were, and one quantizer on each tensor.
///
///     fold_batch_norm(model, {1, 3, 32, 32});
///     quantize(model, QuantConfig::preset("int8"), {1, 3, 32, 32});
///     calibrate(model, loader);
///     disable_quantizer(model, "fc.*_quantizer");
///     print_quant_summary(model, std::cout);
///
/// From then on the model computes as the target's engine does: evaluate it, train it, export it. The order
/// matters: fold before, calibrate after, and make optimizers when all parameters are there.
///
/// A pattern is shell-like, `*` any run of characters, `?` one, `[kv]` k or v, and must cover a whole path,
/// "conv1.input_quantizer", or one of its aliases.

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

/// Traces the model and replaces each module that has a quantized counterpart and is switched on by a rule.
/// `input_shape` is that of a batch, whose size does not matter.
///
/// All readers of one tensor share one quantizer, also through max pooling, flatten, reshape and
/// concatenation; every path stays an alias. By `target` activations after a ReLU become unsigned, as the
/// graph shows.
///
/// Returns warnings, which are also logged: patterns that match nothing (with the nearest names), explicit
/// fields that go against the target. Logged besides, for int8 and `ort`: what the engine computes in floats
/// (layers/model/float_operators.h). Throws ArgumentError for a model that is quantized already, fields that
/// do not fit, and a shape that the model does not take.
std::vector<std::string> quantize(Module& model, const QuantConfig& config, const Shape& input_shape);

/// A model that is one part of a network. Its caller warns of patterns that match in no part.
struct NetworkPart {
  bool has_first = true;               ///< whether its first layer is the network's: `@first` in rules
  bool has_last = true;                ///< whether its last layer is the network's: `@last` in rules
  std::vector<std::string> unmatched;  ///< result: patterns that match nothing in this part
  std::vector<std::string> names;      ///< result: quantizers that rules could switch on
};
/// The same for a part of a network. The warnings do not include patterns that match nothing.
std::vector<std::string> quantize(Module& model, const QuantConfig& config, const Shape& input_shape,
                                  NetworkPart& part);

/// Throws ArgumentError naming two modules that were quantized for different targets, part by part.
void check_one_target(Module& model);
/// The target of the model's quantized parts, `none` where there are none. Throws as `check_one_target`.
[[nodiscard]] Target target_of(Module& model);

/// Builds the quantized counterpart of a layer, given that layer and its number of inputs; the result must be
/// a Module and a QuantModule.
using QuantFactory = std::function<std::shared_ptr<Module>(const Module& layer, std::size_t inputs)>;
/// Makes `quantize` replace modules of that type (exactly, not of types derived from it) by what `make`
/// builds. A type that is registered again gets the new one. Not while other threads quantize.
void register_quant_module(std::type_index type, QuantFactory make);
/// The same for a counterpart whose constructor takes the layer: `register_quant_module<MyLinear,
/// QuantMyLinear>()` where there is a `QuantMyLinear(const MyLinear&)`.
template <class Float, class Quant>
void register_quant_module() {
  register_quant_module(typeid(Float), [](const Module& layer, std::size_t) -> std::shared_ptr<Module> {
    return std::make_shared<Quant>(static_cast<const Float&>(layer));
  });
}

/// A quantizer, the path it is known by, and the other paths that share it. The pointer is good while the
/// module stays in the model.
struct NamedQuantizer {
  std::string name;
  TensorQuantizer* quantizer;
  std::vector<std::string> aliases;
};
/// Each quantizer of the model once, in the order of the module tree.
[[nodiscard]] std::vector<NamedQuantizer> named_quantizers(Module& model);
/// The quantizers of the weights of QuantModules, with the parts of sequential ones one by one; all others
/// read activations.
[[nodiscard]] std::set<const TensorQuantizer*> weight_quantizers(Module& model);
/// Calls `visit` with each of `named_quantizers`, in that order.
void for_each_quantizer(Module& model, const std::function<void(const NamedQuantizer&)>& visit);
/// Calls `visit` with those of which a path matches, in that order; returns how many. Throws ArgumentError in
/// the name of `function` when there is none, naming the nearest.
int for_each_quantizer(Module& model, std::string_view pattern, std::string_view function,
                       const std::function<void(const NamedQuantizer&)>& visit);

/// The names of the quantizers that are to quantize by an amax and have none: a forward pass would throw for
/// the first of them.
[[nodiscard]] std::vector<std::string> uncalibrated_quantizers(Module& model);

/// Switches the quantizers on one of whose paths matches; returns how many. Throws ArgumentError when none
/// matches, naming the nearest.
int enable_quantizer(Module& model, std::string_view pattern);
/// Switches the quantizers off whose path matches; returns how many. Their ranges stay. Throws as
/// `enable_quantizer`.
int disable_quantizer(Module& model, std::string_view pattern);
/// Sets fields of the quantizers one of whose paths matches; returns how many. Fields are keys of
/// QuantDescriptor::dict(), `enable`, `pass_through_bwd`, `binary` and `amax_gradient`; others stay. Throws
/// ArgumentError when none matches, and as PartialQuantParams::from_dict.
///
///     set_quantizer_attributes(model, "conv1.*", {{"num_bits", 4}, {"enable", true}});
int set_quantizer_attributes(Module& model, std::string_view pattern, const nlohmann::json& fields);

/// Gives the quantizer's descriptor that calib_method; what it has collected by another one is dropped.
void set_calib_method(TensorQuantizer& quantizer, std::string_view method);

/// Makes the ranges of all enabled activation quantizers parameters, as the descriptor's learn_amax does;
/// those without a range of their own (dynamic, blocks) stay. Returns how many. Call it after calibration and
/// before the optimizer is made.
///
/// Throws ArgumentError when a range was not calibrated, when there is none, and for ranges per axis in
/// arithmetic `reference`.
int learn_ranges(Module& model, AmaxGradient gradient = AmaxGradient::clip);
/// The same of the quantizers of weights, whose ranges then follow the weights (Esser et al. 2020). 0 where
/// no weight has a static range; ranges of blocks stay.
int learn_weight_ranges(Module& model, AmaxGradient gradient = AmaxGradient::lsq);
/// The same before calibration, which then makes each range a parameter. Returns how many ranges will be
/// parameters, which may be 0.
int learn_ranges_once_calibrated(Module& model, bool activations, bool weights, AmaxGradient gradient);

/// Prints a table of all quantizers: path, format, granularity, amax, switches, aliases.
void print_quant_summary(Module& model, std::ostream& out);
/// Replaces each quantized weight by its dequantized codes and switches its quantizer off: the network then
/// computes the same on float weights, as ModelOpt's fold_weight leaves it. There is no way back.
void fold_weight(Module& model);

/// Puts the quantizers' descriptors, ranges and switches into a state as "quantizers/<name>/..", as
/// checkpoints hold them (train/loop/checkpoint.h).
void save_quantizers(Module& model, StateDict& state);
/// Takes them back into a model that was quantized the same way. Throws ArgumentError for a missing or
/// unknown quantizer.
void load_quantizers(Module& model, const StateDict& state);

}  // namespace fq
