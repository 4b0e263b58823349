/// What an imported network gives: `onnx_imported MODEL.onnx X Y SIZES..` reads an input of that shape from
/// X, raw floats, writes the output to Y and prints its shape and the model. `onnx_imported --table` prints
/// the rows of the operator table: domain|name|first opset|last opset|inputs|attributes.

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "fakequant/core/error.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/reader/operators.h"

int main(int count, char** arguments) try {
  using namespace fq;  // NOLINT: a program of one purpose
  if (count == 2 && std::string_view(arguments[1]) == "--table") {
    for (const auto& row : detail::operator_table())
      std::printf("%s\n", fmt::format("{}|{}|{}|{}|{}|{}", row.domain, row.name, row.first, row.last,
                                      row.inputs, row.attributes)
                              .c_str());
    return 0;
  }
  Shape shape;
  for (int i = 4; i < count; ++i) shape.push_back(std::atoll(arguments[i]));
  Tensor x = Tensor::empty(shape);
  std::ifstream(arguments[2], std::ios::binary).read(static_cast<char*>(x.mutable_raw()), x.nbytes());
  const auto imported = import_onnx(load_onnx(arguments[1]), {Shape(shape.begin() + 1, shape.end())});
  const auto model = imported.build();
  model->eval();
  const NoGrad no_grad;
  const Tensor y = (*model)(Variable(x)).tensor().to(Layout::row_major);
  std::ofstream(arguments[3], std::ios::binary).write(static_cast<const char*>(y.raw()), y.nbytes());
  std::printf("%s\n%s\n", to_string(y.shape()).c_str(), imported.spec.text().c_str());
} catch (const fq::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
