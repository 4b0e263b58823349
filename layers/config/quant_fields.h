#pragma once

/// QuantFields: what a rule says of a quantizer.
///
///     const QuantFields four_bits{.num_bits = 4, .axis = 0, .narrow_range = true};
///     const QuantFields off{.enable = false};
///     const QuantFields blocks{.block_sizes = BlockSizes{.lengths = {{-1, 128}}}};

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/descriptor.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq {

/// The fields of a QuantDescriptor and of a quantizer, each given or not. What is not given stays as earlier
/// rules have it; a field given as null goes back to its default. The meaning of each is that of
/// QuantDescriptorOptions (core/descriptor.h).
struct QuantFields {
  /// Not given, given as null, or given with a value.
  template <class T>
  using Field = std::optional<std::optional<T>>;

  /// Those of the descriptor, by their names there.
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
  /// Weights of -a and +a (QuantParams::binary), which makes the descriptor dynamic and narrow; a later
  /// rule with num_bits takes it back.
  Field<bool> binary = {};
  /// How a learned range is trained.
  std::optional<AmaxGradient> amax_gradient = {};
  /// Quantizers one after another, each with fields of its own, in place of one; a rule with fields of one
  /// quantizer takes an earlier sequence back.
  std::vector<QuantFields> sequence = {};

  /// Fields from an object of keys of QuantDescriptor::dict(), `enable`, `pass_through_bwd`, `binary`,
  /// `amax_gradient` ("clip", "lsq") and `sequence`, a list of such objects. Throws ArgumentError naming the
  /// key, and the nearest valid one or the type it must have. Whether the fields fit each other is checked
  /// when all rules are merged.
  [[nodiscard]] static QuantFields from_dict(const nlohmann::json& dict);

  friend bool operator==(const QuantFields&, const QuantFields&) = default;
};

}  // namespace fq
