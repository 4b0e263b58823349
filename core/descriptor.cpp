#include "fakequant/core/descriptor.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/trace.h"

namespace fq {
namespace {

constexpr const char* kDescriptor = "quant_descriptor";
// Limits axes that files name, so that arithmetic on them cannot overflow.
constexpr int kMostAxes = 64;

void check_format(const QuantDescriptorOptions& o) {
  if (o.num_bits.is_integer()) {
    (void)Format(IntFormat{o.num_bits.bits(), o.is_unsigned, o.narrow_range});
    return;
  }
  (void)Format(FloatFormat{o.num_bits.exponent(), o.num_bits.mantissa()});
  const bool e4m3 = o.num_bits == NumBits(4, 3);
  // ModelOpt has a static kernel for (4, 3), and for (2, 1) in blocks (NVFP4). Its other float formats exist
  // as dynamic blocks only (MX).
  const bool e2m1 = o.num_bits == NumBits(2, 1) && !o.block_sizes.empty();
  FQ_CHECK(e4m3 || e2m1 || o.block_sizes.type == BlockType::dynamic, kDescriptor,
           "num_bits {} without dynamic blocks: use (4, 3), (2, 1) with block_sizes, an integer, or "
           "block_sizes of type dynamic",
           to_string(o.num_bits));
}

void check_lengths(const std::map<int, std::int64_t>& lengths, std::string_view field) {
  for (const auto& [axis, length] : lengths) {
    FQ_CHECK(length > 0 || length == Granularity::whole, kDescriptor,
             "{} of axis {} is {}: use a positive number of elements, or -1 for the whole axis", field, axis,
             length);
    FQ_CHECK(axis >= -kMostAxes && axis < kMostAxes, kDescriptor, "{} names axis {}: use {} to {}", field,
             axis, -kMostAxes, kMostAxes - 1);
  }
}

void check_scale_bits(const BlockSizes& blocks) {
  FQ_CHECK(blocks.scale_block_sizes.empty() || blocks.scale_bits, kDescriptor,
           "scale_block_sizes without scale_bits: set scale_bits, for example to 8");
  if (!blocks.scale_bits) return;
  // (4, 3): E4M3 scales of NVFP4. (8, 0): powers of two of OCP MX. 8: int8 scales of static blocks (double
  // quantization).
  const NumBits& bits = *blocks.scale_bits;
  FQ_CHECK(bits == NumBits(4, 3) || bits == NumBits(8, 0) || bits == NumBits(8), kDescriptor,
           "scale_bits {} is unknown: use (4, 3), (8, 0) or 8", to_string(bits));
  FQ_CHECK(!bits.is_integer() || blocks.type == BlockType::fixed, kDescriptor,
           "scale_bits 8 with dynamic blocks: use (4, 3) or (8, 0), or static blocks");
}

void check_blocks(const QuantDescriptorOptions& o) {
  const BlockSizes& blocks = o.block_sizes;
  FQ_CHECK(o.axis.empty() || blocks.empty(), kDescriptor,
           "axis and block_sizes are both set: use one of them");
  // An object without lengths but with other fields would silently mean "per tensor".
  FQ_CHECK(!blocks.empty() || blocks == BlockSizes{}, kDescriptor,
           "block_sizes has a type or scales but no axis: add an axis and a length, as in {{-1: 16}}");
  check_lengths(blocks.lengths, "block_sizes");
  check_lengths(blocks.scale_block_sizes, "scale_block_sizes");
  check_scale_bits(blocks);
  FQ_CHECK(blocks.type == BlockType::fixed || blocks.lengths.size() == 1, kDescriptor,
           "dynamic blocks on {} axes: use the last axis only", blocks.lengths.size());
}

void check_axes(const Axes& axes) {
  for (const int axis : axes.values())
    FQ_CHECK(axis >= -kMostAxes && axis < kMostAxes, kDescriptor, "axis {} is out of range: use {} to {}",
             axis, -kMostAxes, kMostAxes - 1);
  auto sorted = axes.values();
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  FQ_CHECK(twice == sorted.end(), kDescriptor, "axis {} is given twice: name each kept axis once", *twice);
}

void check_range(const QuantDescriptorOptions& o) {
  if (o.amax.defined()) {
    FQ_CHECK(!o.amax.values().empty(), kDescriptor,
             "amax has no elements: use a number or a list, or omit it");
    for (const float v : o.amax.values())
      FQ_CHECK(v >= 0 && std::isfinite(v), kDescriptor, "amax is {}: it must be finite and not negative", v);
    FQ_CHECK(o.amax.shape().size() <= 16, kDescriptor, "amax has {} axes: use 16 at most",
             o.amax.shape().size());
  }
  FQ_CHECK(!o.dynamic || !o.amax.defined(), kDescriptor,
           "dynamic computes amax from each input: omit amax or dynamic");
  FQ_CHECK(!o.dynamic || !o.learn_amax, kDescriptor,
           "dynamic computes amax from each input, learn_amax trains it: choose one of them");
  FQ_CHECK(!o.learn_amax || o.block_sizes.empty(), kDescriptor,
           "learn_amax trains the range of a tensor or of channels: omit block_sizes or learn_amax");
  FQ_CHECK(!o.scale_amax || (*o.scale_amax > 0 && std::isfinite(*o.scale_amax)), kDescriptor,
           "scale_amax is {}: it must be positive and finite", *o.scale_amax);
}

/// Throws ArgumentError unless the name is UTF-8, which JSON requires.
void check_name(const std::string& name) try {
  (void)nlohmann::json(name).dump();
} catch (const nlohmann::json::exception&) {
  throw ArgumentError(fmt::format("[{}] the name is not UTF-8: use another", kDescriptor));
}

void check_method(const std::string& method) {
  const auto& methods = QuantDescriptor::calib_methods();
  FQ_CHECK(std::ranges::find(methods, method) != methods.end(), kDescriptor, "calib_method '{}' is unknown{}",
           method, detail::did_you_mean(method, {methods.begin(), methods.end()}));
}

/// Returns the axes along which amax varies, as negative axes of the input.
std::vector<int> broadcast_axes(const Shape& amax) {
  std::vector<int> axes;
  for (std::size_t i = 0; i < amax.size(); ++i)
    if (amax[i] != 1) axes.push_back(static_cast<int>(i) - static_cast<int>(amax.size()));
  return axes;
}

/// Returns the lengths with axes counted from the front.
std::map<int, std::int64_t> normalized(const std::map<int, std::int64_t>& lengths, int rank) {
  std::map<int, std::int64_t> out;
  for (const auto& [axis, length] : lengths)
    FQ_CHECK(out.emplace(normalize_axis(axis, rank, kDescriptor), length).second, kDescriptor,
             "block_sizes gives axis {} twice: name each axis once", axis);
  return out;
}

Granularity block_granularity(const BlockSizes& blocks, int rank) {
  const auto lengths = normalized(blocks.lengths, rank);
  // The constructor cannot check this: the rank is known only here.
  FQ_CHECK(blocks.type == BlockType::fixed || lengths.begin()->first == rank - 1, kDescriptor,
           "dynamic blocks on axis {} of {} axes: use the last axis", lengths.begin()->first, rank);
  // ModelOpt's rule: blocks that all span their axis are the per-axis form of the other axes.
  const bool whole =
      std::ranges::all_of(lengths, [](const auto& l) { return l.second == Granularity::whole; });
  if (!whole) return Granularity::blocks(lengths);
  std::vector<int> kept;
  for (int axis = 0; axis < rank; ++axis)
    if (!lengths.contains(axis)) kept.push_back(axis);
  return kept.empty() ? Granularity::per_tensor() : Granularity::per_axis(kept);
}

std::string scale_text(const BlockSizes& blocks) {
  std::string out = blocks.type == BlockType::dynamic ? " dynamic" : "";
  if (blocks.scale_bits) out += fmt::format(" scale_bits={}", to_string(*blocks.scale_bits));
  for (const auto& [axis, length] : blocks.scale_block_sizes)
    out += fmt::format(" scale_block[{}]={}", axis, length);
  return out;
}

std::string range_text(const Amax& amax) {
  const auto values = amax.values();
  if (values.size() == 1) return fmt::format("{:g}", values[0]);
  const auto [low, high] = std::ranges::minmax(values);
  return fmt::format("[{:.4g}, {:.4g}]({})", low, high, values.size());
}

}  // namespace

QuantDescriptor::QuantDescriptor() : QuantDescriptor(QuantDescriptorOptions{}) {}

QuantDescriptor::QuantDescriptor(QuantDescriptorOptions options) : options_(std::move(options)) {
  check_blocks(options_);
  check_format(options_);
  check_axes(options_.axis);
  check_range(options_);
  FQ_CHECK(needs_amax() || !amax().defined(), kDescriptor,
           "dynamic blocks whose scales are not (4, 3) compute every scale from the input: omit amax");
  check_method(options_.calib_method);
  check_name(options_.name);
}

std::map<int, std::int64_t> QuantDescriptor::get_block_quant_axes_and_sizes(const BlockSizes& block_sizes) {
  return block_sizes.lengths;
}

const std::vector<std::string_view>& QuantDescriptor::calib_methods() {
  // core knows the names only; calib has the classes.
  static const std::vector<std::string_view> methods{
#define FQ_CALIB_METHOD(name) #name,
#include "fakequant/core/detail/calib_methods.def"
  };
  return methods;
}

bool QuantDescriptor::has_dynamic_blocks() const {
  return block_sizes().type == BlockType::dynamic &&
         block_sizes().lengths.begin()->second != Granularity::whole;
}

bool QuantDescriptor::needs_amax() const {
  // (4, 3) scales of dynamic blocks are multiples of the range of the whole tensor, which is calibrated.
  return !dynamic() && (!has_dynamic_blocks() || block_sizes().scale_bits == NumBits(4, 3));
}

Format QuantDescriptor::format() const {
  if (!num_bits().is_integer()) return FloatFormat{num_bits().exponent(), num_bits().mantissa()};
  return IntFormat{num_bits().bits(), is_unsigned(), narrow_range()};
}

Granularity QuantDescriptor::granularity(int rank) const {
  if (!block_sizes().empty()) return block_granularity(block_sizes(), rank);
  std::vector<int> axes = axis().values();
  if (amax().defined()) {
    FQ_CHECK(static_cast<int>(amax().shape().size()) <= rank, kDescriptor,
             "amax {} of {} has more axes than the input ({})", to_string(amax().shape()),
             detail::quantizer_label(name()), rank);
    // amax overrides axis. A list next to one axis belongs to that axis; any other shape broadcasts against
    // the input from the right, and its axes of other sizes than 1 are kept.
    const bool list = amax().shape().size() == 1 && axes.size() == 1 && amax().values().size() != 1;
    if (!list) axes = broadcast_axes(amax().shape());
  }
  for (int& a : axes) a = normalize_axis(a, rank, kDescriptor);
  check_axes(axes);
  return axes.empty() ? Granularity::per_tensor() : Granularity::per_axis(axes);
}

bool operator==(const QuantDescriptor& a, const QuantDescriptor& b) {
  const auto& x = a.options_;
  const auto& y = b.options_;
  return x.num_bits == y.num_bits && x.name == y.name && x.fake_quant == y.fake_quant && x.axis == y.axis &&
         x.block_sizes == y.block_sizes && x.amax == y.amax && x.learn_amax == y.learn_amax &&
         x.scale_amax == y.scale_amax && x.calib_method == y.calib_method && x.is_unsigned == y.is_unsigned &&
         x.narrow_range == y.narrow_range && x.dynamic == y.dynamic;
}

std::string to_string(const QuantDescriptor& d) {
  std::string out = d.name().empty() ? "QuantDescriptor(" : d.name() + ": (";
  out += fmt::format("{}{}bit{}{}", d.is_unsigned() ? "unsigned " : "", to_string(d.num_bits()),
                     d.narrow_range() ? " narrow" : "", d.fake_quant() ? " fake" : " real");
  if (!d.block_sizes().empty()) {
    for (const auto& [axis, length] : d.block_sizes().lengths)
      out += fmt::format(" block[{}]={}", axis, length);
    out += scale_text(d.block_sizes());
  } else {
    out += d.axis().empty() ? " per-tensor" : fmt::format(" axis={}", fmt::join(d.axis().values(), ","));
  }
  if (d.amax().defined()) out += " amax=" + range_text(d.amax());
  if (d.learn_amax()) out += " learn";
  if (d.scale_amax()) out += fmt::format(" scale_amax={:g}", *d.scale_amax());
  if (d.dynamic()) out += " dynamic";
  return out + fmt::format(" calib_method={})", d.calib_method());
}

std::ostream& operator<<(std::ostream& out, const QuantDescriptor& descriptor) {
  return out << to_string(descriptor);
}

namespace {

// -0 + 0 is +0. Descriptors are compared by bits, and JSON text must be the same for equal ranges.
Tensor clear_negative_zero(const Tensor& values) {
  Tensor out = values.to(Device::cpu()).to(Layout::row_major).to(DType::f32).clone();
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) v[i] += 0.0f;
  return out;
}

Tensor list(std::initializer_list<double> values) {
  return Tensor::from(std::vector<double>(values), {static_cast<std::int64_t>(values.size())});
}

}  // namespace

std::string to_string(const NumBits& bits) {
  return bits.is_integer() ? fmt::format("{}", bits.bits())
                           : fmt::format("({}, {})", bits.exponent(), bits.mantissa());
}

Amax::Amax(double value) : value_(clear_negative_zero(Tensor::scalar(value, DType::f64))) {}
Amax::Amax(std::initializer_list<double> values) : value_(clear_negative_zero(list(values))) {}
Amax::Amax(const std::vector<float>& values)
    : value_(clear_negative_zero(Tensor::from(values, {static_cast<std::int64_t>(values.size())}))) {}
Amax::Amax(const Tensor& values) {
  FQ_CHECK(
      !values.defined() || !values.device().is_meta(), "amax",
      "amax is computed from an input that has no values, in '{}': where a model is traced, use a constant",
      module_path());
  if (values.defined()) value_ = clear_negative_zero(values);
}

std::span<const float> Amax::values() const {
  if (!defined()) return {};
  return {value_.data<float>(), static_cast<std::size_t>(value_.numel())};
}

bool operator==(const Amax& a, const Amax& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return bitwise_equal(a.value_, b.value_);
}

}  // namespace fq
