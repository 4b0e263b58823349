#pragma once

/// QuantDescriptor: how a tensor is to be quantized, as a user says it. Fields, defaults and meaning are
/// those of ModelOpt's ScaledQuantDescriptor.
///
///     const QuantDescriptor weights({.num_bits = 8, .axis = 0, .narrow_range = true});  // a scale a channel
///     const QuantDescriptor fp8({.num_bits = {4, 3}});                                  // E4M3, per tensor
///     const QuantDescriptor int4({.num_bits = 4, .block_sizes = {.lengths = {{-1, 128}}}});
///     QuantDescriptor::from_json(weights.to_json()) == weights;                         // true

#include <iosfwd>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/blocks/granularity.h"
#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/format.h"

namespace fq {

/// The fields of a descriptor, each with its default, to be given by name.
struct QuantDescriptorOptions {
  NumBits num_bits = 8;
  std::string name = {};
  bool fake_quant = true;       ///< false: the quantizer returns codes, a plain tensor without gradient
  Axes axis = {};               ///< kept axes; none is per tensor
  BlockSizes block_sizes = {};  ///< instead of `axis`
  Amax amax = {};               ///< overrides `axis`
  bool learn_amax = false;      ///< amax becomes a parameter
  std::optional<double> scale_amax = {};  ///< multiplies amax at use, never the stored value
  std::string calib_method = "max";       ///< one of calib_methods()
  bool is_unsigned = false;               ///< "unsigned" in files
  bool narrow_range = false;              ///< leaves out the lowest signed code
  bool dynamic = false;                   ///< amax is taken from each input
};

/// Immutable. Everything that needs no tensor is checked when it is built; axes are checked against the rank
/// at first use. Throws ArgumentError.
class QuantDescriptor {
 public:
  /// Signed 8 bits, per tensor.
  QuantDescriptor();
  /// Refuses integers of other than 2 to 16 bits and floats that are no format; (2,1) without blocks, and
  /// float formats other than it and (4,3) without dynamic blocks; axis together with block_sizes; axes twice
  /// or outside -64 .. 63; block lengths that are neither positive nor -1; dynamic blocks on several axes;
  /// scale_bits other than (4,3), (8,0) and 8, 8 with dynamic blocks; scale_block_sizes without scale_bits;
  /// amax that is negative, not finite, empty or of more than 16 axes; amax where nothing reads it: with
  /// dynamic, and with dynamic blocks whose scales are not (4,3); learn_amax with dynamic or block_sizes;
  /// scale_amax that is not positive; an unknown calib_method; a name that is not UTF-8.
  explicit QuantDescriptor(QuantDescriptorOptions options);

  [[nodiscard]] const NumBits& num_bits() const noexcept { return options_.num_bits; }
  [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
  [[nodiscard]] bool fake_quant() const noexcept { return options_.fake_quant; }
  [[nodiscard]] const Axes& axis() const noexcept { return options_.axis; }
  [[nodiscard]] const BlockSizes& block_sizes() const noexcept { return options_.block_sizes; }
  [[nodiscard]] const Amax& amax() const noexcept { return options_.amax; }
  [[nodiscard]] bool learn_amax() const noexcept { return options_.learn_amax; }
  [[nodiscard]] std::optional<double> scale_amax() const noexcept { return options_.scale_amax; }
  [[nodiscard]] const std::string& calib_method() const noexcept { return options_.calib_method; }
  [[nodiscard]] bool is_unsigned() const noexcept { return options_.is_unsigned; }
  [[nodiscard]] bool narrow_range() const noexcept { return options_.narrow_range; }
  [[nodiscard]] bool dynamic() const noexcept { return options_.dynamic; }
  /// All of them, to build a changed descriptor from.
  [[nodiscard]] const QuantDescriptorOptions& options() const noexcept { return options_; }

  /// The axes and lengths of blocks, without type, scale_bits and scale_block_sizes.
  [[nodiscard]] static std::map<int, std::int64_t> get_block_quant_axes_and_sizes(
      const BlockSizes& block_sizes);
  /// What `make_calibrator` takes: "max", "moving_average", "percentile", "mse_search", ..
  [[nodiscard]] static const std::vector<std::string_view>& calib_methods();

  /// Blocks of limited length whose ranges are taken from each input.
  [[nodiscard]] bool has_dynamic_blocks() const;
  /// Whether a range must be given, calibrated or learned before anything is quantized. Not with `dynamic`,
  /// and of dynamic blocks only where scales are (4,3): then the range of the whole tensor.
  [[nodiscard]] bool needs_amax() const;

  /// The number format of the codes. ModelOpt accepts `unsigned` with a float format, where it has no effect.
  [[nodiscard]] Format format() const;
  /// Which elements of a tensor of `rank` axes share a scale, axes counted from the front. With block_sizes
  /// axes without a length have blocks of 1; where every length is -1 that is per axis (the others). Without,
  /// a given amax decides: one element is per tensor; a list lies along the single `axis`, without one along
  /// the last axis; a tensor of more axes broadcasts from the right. Throws ArgumentError for an axis the
  /// tensor does not have, for an axis named twice (0 and -rank), and for dynamic blocks on another axis than
  /// the last.
  [[nodiscard]] Granularity granularity(int rank) const;

  /// What is not default; `from_dict(dict())` equals this descriptor, bit by bit.
  [[nodiscard]] nlohmann::json dict() const;
  /// Throws ArgumentError naming the key and the nearest valid one, or the type it must have.
  [[nodiscard]] static QuantDescriptor from_dict(const nlohmann::json& dict);
  /// `dict()` as one line of text, and back. Throws ArgumentError with the position of a syntax error.
  [[nodiscard]] std::string to_json() const;
  [[nodiscard]] static QuantDescriptor from_json(std::string_view text);

  friend bool operator==(const QuantDescriptor& a, const QuantDescriptor& b);

 private:
  QuantDescriptorOptions options_;
};

/// The reference's other name of it.
using ScaledQuantDescriptor = QuantDescriptor;

/// "layer.weight: (8bit fake axis=0 calib_method=max)"
std::ostream& operator<<(std::ostream& out, const QuantDescriptor& descriptor);
[[nodiscard]] std::string to_string(const QuantDescriptor& descriptor);

}  // namespace fq
