#pragma once

/// QuantConfig: which quantizers a model gets, as ordered wildcard rules.
///
///     QuantConfig config = QuantConfig::preset("int8");
///     config.rules.push_back({.pattern = "fc.*", .fields = {.enable = false}});  // the last layer in float
///     const auto same = QuantConfig::parse(R"({"preset": "int8", "rules": {"fc.*": {"enable": false}}})");
///     quantize(model, config, {1, 3, 32, 32});
///
/// docs/formats.md describes the JSON with all its keys.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq {

/// The engine that the numbers are trained for.
///
/// - `ort`: ONNX Runtime. Unsigned after a ReLU, storage offset 128 for signed codes, and inputs of
///   additions, concatenations and averages are quantized too.
/// - `tensorrt`: the same, signed, offset 0.
/// - `none`: linear and convolution layers only, whatever engine reads the scales.
/// - `ort_dynamic`, `xnnpack` (ExecuTorch) and `ggml` (llama.cpp): engines that round the input of linear
///   layers as they run; everything else stays in floats.
///
/// What each runs is in layers/config/target_profile.h.
enum class Target { none, ort, tensorrt, ort_dynamic, xnnpack, ggml };
/// "none", "ort", "tensorrt", "ort_dynamic", "xnnpack" or "ggml", as files and flags have it.
[[nodiscard]] std::string_view name(Target target) noexcept;

/// Partial QuantParams of a rule: fields of a QuantDescriptor and of a quantizer, each given or not. A field
/// that is not given keeps the value of earlier rules. A field that is null resets the default.
/// QuantDescriptorOptions (core/descriptor.h) documents the fields.
///
///     const PartialQuantParams four_bits{.num_bits = 4, .axis = 0, .narrow_range = true};
///     const PartialQuantParams blocks{.block_sizes = BlockSizes{.lengths = {{-1, 128}}}};
struct PartialQuantParams {
  /// Not given, given as null, or given with a value.
  template <class T>
  using Field = std::optional<std::optional<T>>;

  /// Fields of the descriptor, by their names there.
  Field<NumBits> num_bits = {};
  Field<std::string> name = {};
  Field<bool> fake_quant = {};
  Field<Axes> axis = {};               ///< with a value takes back `block_sizes` of an earlier rule
  Field<BlockSizes> block_sizes = {};  ///< with a value takes back `axis` of an earlier rule
  Field<Amax> amax = {};
  Field<bool> learn_amax = {};
  Field<double> scale_amax = {};
  Field<std::string> calib_method = {};
  Field<bool> is_unsigned = {};  ///< "unsigned" in files
  Field<bool> narrow_range = {};
  Field<bool> dynamic = {};

  /// Whether the quantizer quantizes. A rule with other fields and without this one switches nothing off.
  std::optional<bool> enable = {};
  /// Whether the gradient passes outside of the range too.
  Field<bool> pass_through_bwd = {};
  /// Weights of -a and +a (detail::binary_weights). The descriptor becomes dynamic and narrow. A later rule
  /// with num_bits resets it.
  Field<bool> binary = {};
  /// How a learned range is trained.
  std::optional<AmaxGradient> amax_gradient = {};
  /// Several quantizers in sequence instead of one, each with its own fields. A later rule with fields of one
  /// quantizer resets the sequence.
  std::vector<PartialQuantParams> sequence = {};

  /// Fields from an object of keys of QuantDescriptor::dict(), `enable`, `pass_through_bwd`, `binary`,
  /// `amax_gradient` ("clip", "lsq") and `sequence`, a list of such objects. Throws ArgumentError naming the
  /// key, and the nearest valid one or the type it must have. Whether the fields fit each other is checked
  /// when all rules are merged.
  [[nodiscard]] static PartialQuantParams from_dict(const nlohmann::json& dict);

  friend bool operator==(const PartialQuantParams&, const PartialQuantParams&) = default;
};

/// Fields for the quantizers whose path matches. `*` is any run of characters, `?` one; the pattern must
/// cover the whole path, "conv1.input_quantizer".
struct QuantRule {
  /// Which quantizers: "*weight_quantizer", "conv1.*".
  std::string pattern;
  PartialQuantParams fields = {};
  bool by_user = true;             ///< a user's explicit field wins over preset and target, with a warning
  bool replaces = false;           ///< drops the fields of earlier rules (ModelOpt's `cfg`)
  bool may_match_nothing = false;  ///< no warning where the pattern matches no quantizer
  std::string module = {};         ///< only quantizers of modules of that type, "linear"; empty for all
  /// Where it stands in the config it was read from, as a JSON pointer: "/rules/3". Errors of its fields,
  /// also those that only a model shows, have it.
  std::string place = {};
};

/// All that `quantize` and `calibrate` are told, as a plain value. Change the fields as you like: they are
/// checked when they are used.
struct QuantConfig {
  std::vector<QuantRule> rules;  ///< in order: a later one overrides the fields it gives
  Target target = Target::ort;
  bool pow2 = false;    ///< scales raised to powers of two
  bool strict = false;  ///< layers whose codes are not multiplied are an error, not a warning
  /// Codes as engines multiply them, or ModelOpt's arithmetic on floats.
  Arithmetic arithmetic = Arithmetic::deployed;
  /// How activations are calibrated whose rules give no calib_method.
  std::string algorithm = "max";
  /// What that algorithm is told: percentile, stride and start_bin.
  AmaxOptions amax = {};
  std::vector<CalibrationRule> calibration = {};  ///< other methods and options, by pattern
  std::vector<AmaxAdjustment> postprocess = {};   ///< of the ranges, in order
  /// smoothquant, equalize, awq_lite, awq_clip, awq_full, gptq, adaround, bias_correction; empty for none.
  /// `quantize` leaves it to ptq::Algorithm.
  std::string weight_algorithm = {};
  std::shared_ptr<const nlohmann::json> weight_options = {};  ///< an object, or null
  std::string weight_place = {};  ///< where they stand in the config they were read from, as QuantRule::place

  /// The config of a name: int8, int8_weight_only, ternary, binary, w4a8, w3a8, w2a8, w4a4, w3a3, w2a2,
  /// int4_blockwise, int2_blockwise, fp8, fp8_per_channel_per_token, fp8_2d_blockwise, nvfp4, mxfp8, mxfp6,
  /// mxfp4, mxint8, or ModelOpt's constants INT8_DEFAULT_CFG and so on. w4a8 means weights of 4 bits and
  /// activations of 8. int8_dynamic, 8da8w, 8da4w, q4_0 and q8_0 are those of one engine, whose target they
  /// set.
  ///
  /// Throws ArgumentError naming the nearest; constants that need an algorithm we have not (SVDQuant) are
  /// refused by a message of their own.
  [[nodiscard]] static QuantConfig preset(std::string_view name);
  /// The names that `preset` takes.
  [[nodiscard]] static std::vector<std::string> preset_names();
  /// What weight_algorithm may be.
  [[nodiscard]] static std::vector<std::string> weight_algorithm_names();
  /// A config from JSON:
  ///
  ///     {"preset": "int8", "target": "ort", "scale": "free", "arithmetic": "deployed", "algorithm": "max",
  ///      "strict": false, "rules": [{"pattern": "*conv1*", "enable": false},
  ///                                 {"pattern": "conv2.*", "preset": "w4a8"}]}
  ///
  /// `scale` is "free" or "pow2", `arithmetic` "deployed" or "reference". A rule may give the rules of a
  /// preset to what its pattern, which ends in `*`, covers. In place of rules there may be ModelOpt's
  /// `quant_cfg`: `{pattern: fields}` or a list of `{"quantizer_name": pattern, "cfg": fields, "enable":
  /// bool}`, fields being a list for quantizers one after another.
  ///
  /// `algorithm` is the name of a method, null for "max", or an object of `method`, its options `percentile`,
  /// `stride` and `start_bin`, a list `rules` of such objects with a `pattern`, and a list `postprocess` of
  /// `{"pattern": .., "multiply": 1, "minimum": .., "maximum": .., "pow2": false}`; other keys of ModelOpt's
  /// are let be.
  ///
  /// `weight_algorithm` is the name of an algorithm on weights, or an object of `method` and its options;
  /// `algorithm` may name one too, as ModelOpt's does, and then has ModelOpt's defaults (alpha of smoothquant
  /// is 1: SmoothQuantCalibConfig of modelopt/torch/quantization/config.py, 0.47.0) and calibrates by "max".
  ///
  /// Throws ArgumentError naming the key and the nearest valid one.
  [[nodiscard]] static QuantConfig from_json(const nlohmann::ordered_json& json);
  /// The same from text, with comments allowed. Throws ArgumentError with the line of a syntax error.
  [[nodiscard]] static QuantConfig parse(std::string_view text);
};

}  // namespace fq
