#include "fakequant/layers/model/float_operators.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/quantizer/detail/early_grids.h"

namespace fq {
namespace {

using detail::Call;
using Reason = std::optional<std::string>;

// Float sums of integers are exact below 2^24 in any order.
constexpr double kExactSum = 1 << 23;  // leaves the same room for the bias

// frexp returns a mantissa in [0.5, 1), which is 0.5 for powers of two.
bool is_power_of_two(float scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5F;
}

bool has_powers_of_two(const QuantizedTensor& x) {
  if (!x.grid.format.is_integer() || x.grid.scale.device().is_meta()) return false;
  return std::ranges::all_of(x.grid.scale.to_vector<float>(), is_power_of_two);
}

// Finds the operators whose results may differ from the engine's by float rounding. Walks the calls in the
// order of execution, because properties of values follow from their inputs.
class Reading {
 public:
  Reading(Module& model, const Shape& input_shape, Target target)
      : calls_(detail::record_calls(model, input_shape)), grids_(calls_, true), target_(target) {}

  std::vector<FloatOperator> run() {
    std::vector<FloatOperator> out;
    for (const auto& call : calls_.list) {
      note(call);
      if (Reason reason = why_floats(call)) {
        inexact_.insert(call.output.node().get());
        out.push_back({call.path, call.op, std::move(*reason)});
      }
    }
    return out;
  }

 private:
  /// Propagates the properties of the inputs through operators that only move or convert values.
  void note(const Call& call) {
    const detail::Node* made = call.output.node().get();
    const bool passes = traits(call.op).is_conversion || traits(call.op).moves_values || call.op == "relu" ||
                        call.op == "dropout";
    const auto has = [&](const auto& nodes) {
      return passes && std::ranges::any_of(call.inputs,
                                           [&](const Variable& x) { return nodes.contains(x.node().get()); });
    };
    if (call.output.quantized() == nullptr && has(inexact_)) inexact_.insert(made);
    if (call.output.quantized() != nullptr || has(codes_)) codes_.insert(made);
  }

  /// Whether the engine adds two floats and rounds once, which is the same in every engine. A sum of two
  /// dequantized code tensors is excluded, because the engine may add the codes instead. A sum with a float
  /// product is excluded, because the engine merges the addition into the sums of the product.
  bool is_sum_of_floats(const Call& call) const {
    const auto inexact = [this](const Variable& x) { return inexact_.contains(x.node().get()); };
    const auto has_codes = [this](const Variable& x) { return codes_.contains(x.node().get()); };
    return call.output.accumulator() == nullptr && std::ranges::none_of(call.inputs, inexact) &&
           !std::ranges::all_of(call.inputs, has_codes);
  }

  Reason why_floats(const Call& call) const {
    if (traits(call.op).is_conversion || call.op == "dropout") return {};
    const EngineForm* form = engine_form(call.op);
    if (form == nullptr) return "the engine computes it in floats";
    if (form->reason.empty()) return {};
    if (traits(call.op).is_product) return why_product(call, *form);
    if (call.op == "batch_norm") return is_folded(call) ? Reason{} : Reason{form->reason};
    if (form->exact.empty()) return Reason{form->reason};
    if (const Attribute* range = call.attribute("range")) return why_dynamic(*range, *form);
    if (call.op == "add" && target_ != Target::tensorrt && is_sum_of_floats(call)) return {};
    if (call.output.accumulator() == nullptr) return "its inputs are not codes of one shape";
    return target_ == Target::tensorrt || is_rounded(call.output) ? Reason{} : Reason{unrounded()};
  }

  /// Returns a reason for operators that multiply floats. Codes with dynamic ranges are exact.
  static Reason why_dynamic(const Attribute& range, const EngineForm& form) {
    return std::get<std::string>(range) == "none" ? Reason{form.reason} : Reason{};
  }

  Reason why_product(const Call& call, const EngineForm& form) const {
    if (call.attribute("engine") != nullptr) return {};  // the engine's own arithmetic
    const QuantizedTensor *x = call.inputs[0].quantized(), *w = call.inputs[1].quantized();
    const bool weighted = traits(call.op).has_weight;
    if (x == nullptr) return weighted ? "its input is not quantized" : "its first factor is not quantized";
    if (w == nullptr) return weighted ? "its weight is not quantized" : "its second factor is not quantized";
    if (call.output.accumulator() == nullptr)
      return fmt::format("sums of products of {} and {} are floats", to_string(x->grid.format),
                         to_string(w->grid.format));
    if (target_ == Target::tensorrt || is_exact_in_floats(call, *x, *w)) return {};
    if (form.exact.empty()) return Reason{form.reason};
    for (const QuantizedTensor* codes : {x, w})
      if (!detail::has_byte_codes(codes->grid.format))
        return fmt::format("the engine multiplies no codes of {}", to_string(codes->grid.format));
    return is_rounded_or_floats(call) ? Reason{} : Reason{unrounded()};
  }

  static std::string unrounded() {
    return "other operators than quantizers directly after it read its sums, so the engine converts them to "
           "floats";
  }

  /// Whether float sums equal the integer sums in any order, and every scale is a power of two.
  static bool is_exact_in_floats(const Call& call, const QuantizedTensor& x, const QuantizedTensor& w) {
    if (!has_powers_of_two(x) || !has_powers_of_two(w)) return false;
    if (call.op == "matmul") return false;
    const Shape shape = w.shape();
    const auto groups = call.op == "linear" ? 1 : std::get<std::int64_t>(*call.attribute("groups"));
    const double terms = traits(call.op).transposed
                             ? static_cast<double>(numel(shape)) / static_cast<double>(shape[1] * groups)
                             : static_cast<double>(numel(shape)) / static_cast<double>(shape[0]);
    const auto largest = [](const Format& f) { return std::max(double{f.bound()}, -double{f.lower()}); };
    return terms * largest(x.grid.format) * largest(w.grid.format) <= kExactSum;
  }

  bool is_output(const Variable& v) const { return v.node() == calls_.output.node(); }

  /// Whether only quantizers to 8-bit integers read the value, each through at most a ReLU. Also true if the
  /// value itself is quantized to an 8-bit grid.
  bool is_rounded(const Variable& v) const {
    if (is_output(v)) return false;
    if (const Grid* early = grids_.early_grid(v)) return detail::has_byte_codes(early->format);
    const auto& readers = grids_.readers(v);
    return !readers.empty() &&
           std::ranges::all_of(readers, [&](const Call* reader) { return rounds(*reader); });
  }

  bool rounds(const Call& reader) const {
    if (reader.op == "quantize") return rounds_to_bytes(reader);
    if (reader.op == "relu") return grids_.shared_grid(reader.output) != nullptr && is_rounded(reader.output);
    return reader.op == "batch_norm" && is_rounded(reader.output);
  }

  static bool rounds_to_bytes(const Call& reader) {
    const QuantizedTensor* codes = reader.output.quantized();
    return codes != nullptr && codes->grid.granularity.is_per_tensor() &&
           detail::has_byte_codes(codes->grid.format);
  }

  /// Whether all readers round the value or read it as floats. The sums of a linear layer must not be read
  /// through a ReLU as floats, because the engine fuses that ReLU with a float product.
  bool is_rounded_or_floats(const Call& call) const {
    const Variable& v = call.output;
    if (grids_.early_grid(v) != nullptr) return is_rounded(v);
    const bool cut = call.op != "linear" && call.op != "matmul";
    const auto fits = [&](const Call* reader) { return rounds(*reader) || reads_floats(*reader, cut); };
    return std::ranges::all_of(grids_.readers(v), fits);
  }

  bool reads_floats(const Call& reader, bool cut) const {
    if (reader.op == "to_float") return feeds_arithmetic(reader.output);
    const bool passes =
        reader.op == "batch_norm" || traits(reader.op).moves_values || (cut && reader.op == "relu");
    return passes && std::ranges::all_of(grids_.readers(reader.output),
                                         [&](const Call* next) { return reads_floats(*next, cut); });
  }

  /// Whether the readers compute with the floats. The engine moves a quantizer before operators that only
  /// move floats.
  bool feeds_arithmetic(const Variable& floats) const {
    return std::ranges::all_of(grids_.readers(floats), [&](const Call* reader) {
      const bool moves = reader->op == "relu" || traits(reader->op).moves_values;
      return reader->op != "quantize" && (!moves || feeds_arithmetic(reader->output));
    });
  }

  /// Uses the rule of `fold_batch_norm`: the input is the output of one layer and has no other reader.
  bool is_folded(const Call& call) const {
    const Variable& x = call.inputs[0];
    const auto maker =
        std::ranges::find(calls_.list, x.node(), [](const Call& c) { return c.output.node(); });
    return maker != calls_.list.end() && traits(maker->op).has_weight && grids_.readers(x).size() == 1 &&
           !is_output(x);
  }

  detail::Calls calls_;
  detail::EarlyGrids grids_;
  Target target_;
  std::set<const detail::Node*> inexact_,
      // Nodes of values computed by float operators, and nodes of values with codes.
      codes_;
};

}  // namespace

const EngineForm* engine_form(std::string_view op) {
  constexpr std::string_view kSums = "the engine adds up dequantized floats",
                             kOrder = "the engine adds up floats in its own order";
  static const std::map<EngineRule, EngineForm> forms{
      {EngineRule::moves_codes, {"moves or compares codes", ""}},
      {EngineRule::product, {"codes of bytes in, read by quantizers or as floats", kSums}},
      {EngineRule::factors, {"codes of bytes on both sides, read by quantizers or as floats", kOrder}},
      {EngineRule::no_kernel, {"", "the engine has no integer kernel of it"}},
      {EngineRule::addition,
       {"two code tensors of one shape, read by quantizers alone; or floats that no inexact operator made",
        kSums}},
      {EngineRule::average,
       {"codes of bytes in, read by quantizers alone", "the engine averages dequantized floats"}},
      {EngineRule::folded,
       {"behind one linear or convolution layer, into which it is folded",
        "no layer before it takes it in, and the engine multiplies and adds floats"}},
      {EngineRule::lstm,
       {"integer weights, its input in codes with ranges of their own, one sample at a time", kOrder}},
      {EngineRule::clips, {"", "the engine rounds before or after it, as its kernels happen to fuse"}},
      {EngineRule::multiplies, {"", "the engine multiplies floats, or codes by another formula"}},
      {EngineRule::own_function, {"", "the engine has its own exp, tanh or erf"}},
      {EngineRule::own_order, {"", kOrder}},
  };
  const OperatorSchema* row = operator_schema(op);
  const auto found = row == nullptr ? forms.end() : forms.find(row->engine);
  return found == forms.end() ? nullptr : &found->second;
}

std::vector<FloatOperator> float_operators(Module& model, const Shape& input_shape, Target target) {
  return Reading(model, input_shape, target).run();
}

std::string describe(const std::vector<FloatOperator>& operators, std::size_t most) {
  std::vector<std::string> named;
  for (const auto& [path, op, reason] : operators)
    if (named.size() < most) named.push_back(fmt::format("'{}' ({}: {})", path, op, reason));
  const std::size_t more = operators.size() - named.size();
  return fmt::format("{}{}", fmt::join(named, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace fq
