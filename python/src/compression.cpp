#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/network/network.h"
#include "graded.h"

namespace fq::python {
namespace {

nb::list compress_weights(Network& self) {
  const auto weights = unlocked([&] { return compress(self.module()); });
  nb::list out;
  for (const auto& weight : weights) {
    nb::dict row;
    row["name"] = weight.name;
    row["format"] = to_string(weight.format);
    row["elements"] = weight.elements;
    row["code_bytes"] = weight.code_bytes;
    row["scale_bytes"] = weight.scale_bytes;
    out.append(row);
  }
  return out;
}

}  // namespace

void bind_compression(nb::module_& m) {
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def(
          "compress", &compress_weights,
          "Keeps the weights of a calibrated model as packed codes, in memory and in what `save` writes: an "
          "eighth of the room in 4 bits. It computes the same bits; weights take no gradient. Returns a dict "
          "for each: name, format, elements, code_bytes, scale_bytes.")
      .def(
          "decompress",
          [](Network& self) {
            unlocked([&] {
              decompress(self.module());
              return true;
            });
          },
          "Makes float weights of the codes' values, to train them again.")
      .def_prop_ro(
          "is_compressed", [](const Network& self) { return is_compressed(self.module()); },
          "Whether some of its weights are codes.");
}

}  // namespace fq::python
