#include <optional>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "fakequant/reference/modelopt.h"
#include "graded.h"

namespace fq::python {
namespace {

using modelopt::QTensor;
using nb::arg, nb::none;

/// What Python holds: the packed tensor, and the kind of array that it was made of.
template <class F>
void def(nb::module_& m, const char* name, F make, const char* about) {
  m.def(
      name,
      [name, make](nb::object x, std::vector<int> axis, modelopt::BlockLengths blocks) {
        const Tensor input = Call{name, x}.tensor(x, "x");
        return unlocked([&] { return make(input, Axes(std::move(axis)), blocks); });
      },
      arg("x"), arg("axis") = std::vector<int>{}, arg("blocks") = modelopt::BlockLengths{}, about);
}

using Numbers = std::vector<std::int64_t>;
constexpr Tensor QTensor::*kTensors[] = {&QTensor::codes,       &QTensor::scale,        &QTensor::scale2,
                                         &QTensor::scale_codes, &QTensor::double_scale, &QTensor::scale_zero};

nb::tuple state_of(const QTensor& q) {
  nb::list tensors;
  for (const auto member : kTensors)
    tensors.append((q.*member).defined() ? nb::cast(q.*member) : nb::object(nb::none()));
  return nb::make_tuple(int(q.format), Numbers(q.shape.begin(), q.shape.end()), std::string(name(q.dtype)),
                        Numbers(q.block.begin(), q.block.end()), tensors);
}

void set_state(QTensor& self, const nb::tuple& state) {
  new (&self) QTensor();
  self.format = modelopt::PackedFormat(nb::cast<int>(state[0]));
  self.shape = Shape(nb::cast<Numbers>(state[1]));
  self.dtype = *Call{"QTensor"}.dtype(state[2], "dtype");
  self.block = Shape(nb::cast<Numbers>(state[3]));
  for (std::size_t i = 0; i < std::size(kTensors); ++i)
    if (const nb::object tensor = state[4][i]; !tensor.is_none())
      self.*kTensors[i] = nb::cast<Tensor>(tensor);
}

void bind_class(nb::module_& m) {
  auto type = nb::class_<QTensor>(m, "QTensor", "Packed codes, their scales, and what they were made from.");
  type.def_prop_ro("shape", [](const QTensor& q) {
    return nb::tuple(nb::cast(std::vector<std::int64_t>(q.shape.begin(), q.shape.end())));
  });
  type.def_prop_ro("dtype", [](const QTensor& q) { return std::string(fq::name(q.dtype)); });
  const auto tensor = [&](const char* name, Tensor QTensor::*member) {
    type.def_prop_ro(name, [member](const QTensor& q) { return Call{"QTensor"}.give(q.*member); });
  };
  tensor("codes", &QTensor::codes);
  tensor("scale", &QTensor::scale);
  tensor("scale2", &QTensor::scale2);
  tensor("scale_codes", &QTensor::scale_codes);
  tensor("double_scale", &QTensor::double_scale);
  tensor("scale_zero", &QTensor::scale_zero);
  type.def("__getstate__", &state_of).def("__setstate__", &set_state);
  type.def(
      "dequantize",
      [](const QTensor& q, nb::handle dtype) {
        const Call call{"QTensor.dequantize"};
        const auto wanted = call.dtype(dtype, "dtype");
        return call.give(unlocked([&] { return q.dequantize(wanted); }));
      },
      arg("dtype") = none(), "The values in the shape of x.");
}

}  // namespace

void bind_modelopt_qtensor(nb::module_& m) {
  bind_class(m);
  def(m, "int8_qtensor", modelopt::int8_qtensor,
      "INT8 codes, a scale for each index of the kept axes, or each block.");
  def(m, "fp8_qtensor", modelopt::fp8_qtensor,
      "E4M3 codes, a scale for each index of the kept axes, or each block.");
  const auto sized = [&](const char* name, QTensor (*make)(const Tensor&, std::int64_t), const char* about) {
    m.def(
        name,
        [name, make](nb::object x, std::int64_t block_size) {
          const Tensor input = Call{name, x}.tensor(x, "x");
          return unlocked([&] { return make(input, block_size); });
        },
        arg("x"), arg("block_size") = 32, about);
  };
  sized("int4_qtensor", modelopt::int4_qtensor,
        "INT4 of the flattened x in blocks, two codes a byte, high nibble first.");
  sized("mxfp4_qtensor", modelopt::mxfp4_qtensor, "MXFP4: E2M1 codes, power-of-two scales of blocks.");
  m.def(
      "mxfp8_qtensor",
      [](nb::object x) {
        const Tensor input = Call{"mxfp8_qtensor", x}.tensor(x, "x");
        return unlocked([&] { return modelopt::mxfp8_qtensor(input); });
      },
      arg("x"), "MXFP8: E4M3 codes, power-of-two scales of blocks of 32.");
  m.def(
      "nvfp4_qtensor",
      [](nb::object x, nb::object scale2, std::int64_t block_size) {
        const Call call{"nvfp4_qtensor", x};
        const Tensor input = call.tensor(x, "x");
        const Amax global = call.amax(scale2, "scale2");
        return unlocked([&] { return modelopt::nvfp4_qtensor(input, global, block_size); });
      },
      arg("x"), arg("scale2") = none(), arg("block_size") = 16, "NVFP4: E2M1 codes, E4M3 scales of blocks.");
  m.def(
      "nf4_qtensor",
      [](nb::object x, std::int64_t block_size, std::int64_t scale_block_size) {
        const Tensor input = Call{"nf4_qtensor", x}.tensor(x, "x");
        return unlocked([&] { return modelopt::nf4_qtensor(input, block_size, scale_block_size); });
      },
      arg("x"), arg("block_size"), arg("scale_block_size"),
      "NF4 with scales of scales, of the flattened x in blocks.");
}

}  // namespace fq::python
