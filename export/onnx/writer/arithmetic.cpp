#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kBool = 9;  // ONNX's number of the element type

void not_equal(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  const std::string truth = out.graph().add("Equal", name + ".equal", all_inputs(out, call));
  give_numbers(out, call, out.graph().add("Not", name + ".truth", {truth}));
}

void where(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call) + ".truth";
  const std::string truth = out.graph().add("Cast", name, {out.input(call, 0)}, {{"to", kBool}});
  out.node(call, "Where", {truth, out.input(call, 1), out.input(call, 2)});
}

template <const char* op, const char* attribute>
void with_number(Exporting& out, const Call& call) {
  out.node(call, op,
           {out.input(call, 0),
            number(out, Exporting::node_name(call) + "." + attribute, call.get<double>(attribute))});
}

/// A reduction whose axes are an input.
template <const char* op>
void reduce(Exporting& out, const Call& call) {
  out.graph().needs_opset(18);
  const std::string axes = integers(out, Exporting::node_name(call) + ".axes", call.get<Numbers>("axes"));
  out.node(call, op, {out.input(call, 0), axes}, {{"keepdims", std::int64_t{call.get<bool>("keep_axes")}}});
}

constexpr char kMul[] = "Mul", kAdd[] = "Add", kPow[] = "Pow", kFactor[] = "factor", kBy[] = "by",
               kExponent[] = "exponent", kReduceSum[] = "ReduceSum", kReduceMean[] = "ReduceMean",
               kReduceMax[] = "ReduceMax", kReduceMin[] = "ReduceMin";

}  // namespace

Forms arithmetic_forms() {
  return {
      {"not_equal", not_equal},
      {"where", where},
      {"scale", with_number<kMul, kFactor>},
      {"shift", with_number<kAdd, kBy>},
      {"power", with_number<kPow, kExponent>},
      {"sum", reduce<kReduceSum>},
      {"mean", reduce<kReduceMean>},
      {"max", reduce<kReduceMax>},
      {"min", reduce<kReduceMin>},
  };
}

}  // namespace fq::detail
