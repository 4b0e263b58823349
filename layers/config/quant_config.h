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

/// The engine that runs the trained network.
///
/// - `ort`: ONNX Runtime. Activations after a ReLU are unsigned. Signed codes are stored with offset 128.
///   Inputs of additions, concatenations and averages are quantized too.
/// - `tensorrt`: as `ort`, but with signed codes and offset 0.
/// - `none`: no specific engine. Only linear and convolution layers are quantized.
/// - `ort_dynamic`, `xnnpack` (ExecuTorch) and `ggml` (llama.cpp): engines that round the input of linear
///   layers at run time. Everything else stays in floats.
///
/// layers/config/target_profile.h lists names, presets and export formats of these engines.
enum class Target { none, ort, tensorrt, ort_dynamic, xnnpack, ggml };
/// Returns the name in files and flags: "none", "ort", "tensorrt", "ort_dynamic", "xnnpack" or "ggml".
[[nodiscard]] std::string_view name(Target target) noexcept;

/// Partial QuantParams of a rule: fields of a QuantDescriptor and of a quantizer, each given or not. A field
/// that is not given keeps the value of earlier rules. A null field restores the default.
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
  Field<Axes> axis = {};               ///< a value cancels `block_sizes` of an earlier rule
  Field<BlockSizes> block_sizes = {};  ///< a value cancels `axis` of an earlier rule
  Field<Amax> amax = {};
  Field<bool> learn_amax = {};
  Field<double> scale_amax = {};
  Field<std::string> calib_method = {};
  Field<bool> is_unsigned = {};  ///< "unsigned" in files
  Field<bool> narrow_range = {};
  Field<bool> dynamic = {};

  /// Whether the quantizer is enabled. A rule without this field keeps the value of earlier rules, and
  /// enables the quantizer if they give none.
  std::optional<bool> enable = {};
  /// Whether the gradient also passes outside of the range.
  Field<bool> pass_through_bwd = {};
  /// Whether weights become -a and +a (detail::binary_weights). It makes the descriptor dynamic and narrow. A
  /// later rule with num_bits cancels it.
  Field<bool> binary = {};
  /// Gradient of a learned range.
  std::optional<AmaxGradient> amax_gradient = {};
  /// Several quantizers in sequence, each with its own fields, instead of one quantizer. A later rule with
  /// fields of one quantizer cancels the sequence.
  std::vector<PartialQuantParams> sequence = {};

  /// Reads the fields from an object. Its keys are the keys of QuantDescriptor::dict(), `enable`,
  /// `pass_through_bwd`, `binary`, `amax_gradient` ("clip", "lsq") and `sequence`, a list of such objects.
  /// Throws ArgumentError naming the key, and the nearest valid key or the required type. Whether the fields
  /// fit each other is checked when all rules are merged.
  [[nodiscard]] static PartialQuantParams from_dict(const nlohmann::json& dict);

  friend bool operator==(const PartialQuantParams&, const PartialQuantParams&) = default;
};

/// Fields for the quantizers whose path matches the pattern. `*` is any run of characters, `?` one. The
/// pattern must cover the whole path, "conv1.input_quantizer".
struct QuantRule {
  /// Pattern of paths: "*weight_quantizer", "conv1.*".
  std::string pattern;
  PartialQuantParams fields = {};
  bool by_user = true;             ///< a user's explicit field overrides preset and target, with a warning
  bool replaces = false;           ///< drops the fields of earlier rules (ModelOpt's `cfg`)
  bool may_match_nothing = false;  ///< no warning if the pattern matches no quantizer
  std::string module = {};         ///< only quantizers of modules of that type, "linear"; empty for all
  /// Position of the rule in its config file, as a JSON pointer: "/rules/3". Errors about its fields include
  /// it, even errors that need a model to appear.
  std::string place = {};
};

/// Configuration of `quantize` and `calibrate`, as a plain value. Fields may be changed freely, because they
/// are checked when they are used.
struct QuantConfig {
  std::vector<QuantRule> rules;  ///< in order: a later rule overrides the fields that it gives
  Target target = Target::ort;
  bool pow2 = false;    ///< scales raised to powers of two
  bool strict = false;  ///< a layer that multiplies floats is an error, not a warning
  /// Arithmetic on codes as engines multiply them, or ModelOpt's arithmetic on floats.
  Arithmetic arithmetic = Arithmetic::deployed;
  /// Calibration method of activations whose rules give no calib_method.
  std::string algorithm = "max";
  /// Options of this method: percentile, stride and start_bin.
  AmaxOptions amax = {};
  std::vector<CalibrationRule> calibration = {};  ///< other methods and options, by pattern
  std::vector<AmaxAdjustment> postprocess = {};   ///< adjustments of the ranges, in order
  /// Algorithm on weights: smoothquant, equalize, awq_lite, awq_clip, awq_full, gptq, adaround or
  /// bias_correction; empty for none. `quantize` leaves it to ptq::Algorithm.
  std::string weight_algorithm = {};
  std::shared_ptr<const nlohmann::json> weight_options = {};  ///< algorithm options: an object, or null
  std::string weight_place = {};  ///< position of weight_algorithm in its config file, as QuantRule::place

  /// Returns the config of a preset: int8, int8_weight_only, ternary, binary, w4a8, w3a8, w2a8, w4a4, w3a3,
  /// w2a2, int4_blockwise, int2_blockwise, fp8, fp8_per_channel_per_token, fp8_2d_blockwise, nvfp4, mxfp8,
  /// mxfp6, mxfp4, mxint8, or a ModelOpt constant (INT8_DEFAULT_CFG). w4a8 means weights of 4 bits and
  /// activations of 8 bits. int8_dynamic, 8da8w, 8da4w, q4_0 and q8_0 belong to one engine each and set its
  /// target.
  ///
  /// Throws ArgumentError naming the nearest preset. A constant that needs an unavailable algorithm
  /// (SVDQuant) has a message of its own.
  [[nodiscard]] static QuantConfig preset(std::string_view name);
  /// Returns the names that `preset` accepts, without ModelOpt's constants.
  [[nodiscard]] static std::vector<std::string> preset_names();
  /// Returns the allowed values of weight_algorithm.
  [[nodiscard]] static std::vector<std::string> weight_algorithm_names();
  /// Returns the config of a JSON object:
  ///
  ///     {"preset": "int8", "target": "ort", "scale": "free", "arithmetic": "deployed", "algorithm": "max",
  ///      "strict": false, "rules": [{"pattern": "*conv1*", "enable": false},
  ///                                 {"pattern": "conv2.*", "preset": "w4a8"}]}
  ///
  /// `scale` is "free" or "pow2", `arithmetic` is "deployed" or "reference". A rule may name a preset: its
  /// rules then apply to the paths that the pattern covers, which must end in `*`. ModelOpt's `quant_cfg` may
  /// replace the rules: `{pattern: fields}`, or a list of `{"quantizer_name": pattern, "cfg": fields,
  /// "enable": bool}`. A list of fields means several quantizers in sequence.
  ///
  /// `algorithm` is the name of a method, null for "max", or an object. The object has `method`, the options
  /// `percentile`, `stride` and `start_bin`, a list `rules` of such objects with a `pattern`, and a list
  /// `postprocess` of `{"pattern": .., "multiply": 1, "minimum": .., "maximum": .., "pow2": false}`. Other
  /// keys of ModelOpt are ignored.
  ///
  /// `weight_algorithm` is the name of an algorithm on weights, or an object of `method` and its options.
  /// `algorithm` may also name one of them. Then its options have ModelOpt's defaults
  /// (alpha of smoothquant is 1: SmoothQuantCalibConfig of modelopt/torch/quantization/config.py, 0.47.0),
  /// and calibration uses "max".
  ///
  /// Throws ArgumentError naming the key and the nearest valid one.
  [[nodiscard]] static QuantConfig from_json(const nlohmann::ordered_json& json);
  /// Parses a config from JSON text with optional comments. Throws ArgumentError with the line of a syntax
  /// error.
  [[nodiscard]] static QuantConfig parse(std::string_view text);
};

}  // namespace fq
