/// Imports networks and runs them: `onnx_imported MODEL.onnx X Y SIZES..` reads an input of that shape from
/// X, raw floats, writes the output to Y and prints its shape and the model. `onnx_imported JOBS` does so for
/// each line `MODEL.onnx OUTPUT X Y SIZES..` of a file and prints a line of JSON for each: the shape of the
/// output, or the error. `onnx_imported --table` prints the rows of the operator table:
/// domain|name|first opset|last opset|inputs|attributes.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fakequant/core/error.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace {

void print_table() {
  for (const auto& row : fq::detail::operator_table())
    std::printf("%s\n", fmt::format("{}|{}|{}|{}|{}|{}", row.domain, row.name, row.first, row.last,
                                    row.inputs, row.attributes)
                            .c_str());
}

struct Job {
  std::string model, output, x, y;
  fq::Shape shape;
};

/// Writes the output to the job's file and returns its shape.
fq::Shape run(const Job& job, const fq::ImportedModel& imported) {
  fq::Tensor x = fq::Tensor::empty(job.shape);
  std::ifstream(job.x, std::ios::binary).read(static_cast<char*>(x.mutable_raw()), x.nbytes());
  const auto model = imported.build();
  model->eval();
  const fq::NoGrad no_grad;
  const fq::Tensor y = (*model)(fq::Variable(x)).tensor().to(fq::Layout::row_major);
  std::ofstream(job.y, std::ios::binary).write(static_cast<const char*>(y.raw()), y.nbytes());
  return y.shape();
}

nlohmann::json result(const Job& job) {
  try {
    fq::ImportOptions options;
    options.output = job.output;
    const auto imported = fq::import_onnx(fq::load_onnx(job.model), options);
    return {{"shape", run(job, imported)}};
  } catch (const fq::ArgumentError& error) {
    return {{"rejected", error.what()}};
  } catch (const fq::FileError& error) {
    return {{"rejected", error.what()}};
  } catch (const std::exception& error) {
    return {{"failed", error.what()}};
  }
}

void run_all(const char* path) {
  std::ifstream jobs(path);
  for (std::string line; std::getline(jobs, line);) {
    std::istringstream words(line);
    Job job;
    words >> job.model >> job.output >> job.x >> job.y;
    for (std::int64_t size = 0; words >> size;) job.shape.push_back(size);
    std::printf("%s\n", result(job).dump().c_str());
  }
}

}  // namespace

int main(int count, char** arguments) try {
  if (count == 2) {
    std::string_view(arguments[1]) == "--table" ? print_table() : run_all(arguments[1]);
    return 0;
  }
  Job job{arguments[1], {}, arguments[2], arguments[3], {}};
  for (int i = 4; i < count; ++i) job.shape.push_back(std::atoll(arguments[i]));
  const auto imported = fq::import_onnx(fq::load_onnx(job.model), {{job.shape.begin() + 1, job.shape.end()}});
  std::printf("%s\n", fq::to_string(run(job, imported)).c_str());
  std::printf("%s\n", imported.spec.text().c_str());
} catch (const fq::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
