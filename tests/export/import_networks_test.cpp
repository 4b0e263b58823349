#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include "fakequant/core/error.h"
#include "fakequant/core/tape.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"
#include "golden/golden_folder.h"

namespace fq::import_networks_test {
namespace {

const std::string folder = test::golden_folder() + "/onnx_import/";

std::vector<std::string> networks() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

/// A dataset of answers.h5, read as f32.
Tensor reference_tensor(const std::string& network, const char* name) {
  const hid_t file = H5Fopen((folder + "answers.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t data = H5Dopen2(file, (network + "/" + name).c_str(), H5P_DEFAULT), space = H5Dget_space(data);
  std::vector<hsize_t> sizes(8);
  sizes.resize(static_cast<std::size_t>(H5Sget_simple_extent_dims(space, sizes.data(), nullptr)));
  Tensor out = Tensor::empty({sizes.begin(), sizes.end()});
  EXPECT_GE(H5Dread(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.mutable_raw()), 0);
  H5Sclose(space);
  H5Dclose(data);
  H5Fclose(file);
  return out;
}

class OnnxImportNetworks : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_onnx()) GTEST_SKIP() << "built without libonnx";
  }
  static OnnxModel model() { return load_onnx(folder + GetParam() + ".onnx"); }
};

Tensor logits(const ImportedModel& imported, const Tensor& x) {
  const NoGrad no_grad;
  const auto network = imported.build();
  network->eval();
  return (*network)(Variable(x)).tensor();
}

/// Relative to the largest logit: sums in another order; 2e-7 was measured.
void expect_near(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  float largest = 0, difference = 0;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    largest = std::max(largest, std::abs(expected.data<float>()[i]));
    difference = std::max(difference, std::abs(expected.data<float>()[i] - found.data<float>()[i]));
  }
  EXPECT_LE(difference, 1e-5F * largest);
}

TEST_P(OnnxImportNetworks, MatchesPyTorchLogitsAlsoAfterReexport) {
  if (GetParam() == "cnn_script_training") GTEST_SKIP() << "of batch norms in training mode";
  const std::string name = GetParam().substr(0, GetParam().find('_'));
  const Tensor x = reference_tensor(name, "x"), expected = reference_tensor(name, "logits");
  const auto imported = import_onnx(model());
  expect_near(logits(imported, x), expected);
  const auto again = import_onnx(export_onnx(*imported.build(), imported.sample_shape));
  expect_near(logits(again, x), expected);
}

TEST(OnnxImportTraining, RejectsBatchNormInTrainingMode) {
  if (!has_onnx()) GTEST_SKIP() << "built without libonnx";
  try {
    (void)import_onnx(load_onnx(folder + "cnn_script_training.onnx"));
    ADD_FAILURE() << "not refused";
  } catch (const ArgumentError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("(BatchNormalization): it is in training mode"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("model.eval()"));
  }
}

/// Random changes of a model, including those that load_onnx would reject.
class Mutation {
 public:
  explicit Mutation(unsigned seed) : random_(seed) {}

  void change(OnnxModel& model) {
    if (model.nodes.empty()) return;
    OnnxNode& node = pick(model.nodes);
    switch (below(9)) {
      case 0:
        model.nodes.erase(model.nodes.begin() + static_cast<std::ptrdiff_t>(below(model.nodes.size())));
        break;
      case 1:
        if (!node.inputs.empty()) pick(node.inputs) = any_name(model);
        break;
      case 2:
        node.op = pick(model.nodes).op;
        break;
      case 3:
        if (!node.attributes.empty()) change(pick(node.attributes).second);
        break;
      case 4:
        if (!model.initializers.empty()) pick(model.initializers).value = tensor();
        break;
      case 5:
        if (!model.inputs[0].shape.empty()) pick(model.inputs[0].shape).size = number();
        break;
      case 6:
        node.inputs.push_back(any_name(model));
        break;
      case 7:
        if (!node.inputs.empty()) node.inputs.pop_back();
        break;
      default:
        if (!node.attributes.empty()) node.attributes.pop_back();
    }
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }
  template <class T>
  T& pick(std::vector<T>& list) {
    return list[below(list.size())];
  }
  std::int64_t number() {
    constexpr std::int64_t edge = std::int64_t{1} << 62;
    const std::int64_t edges[] = {
        0,         1,        -1, 2, 3, 7, edge, -edge, (std::int64_t{1} << 31) - 1, detail::kSymbolicBatch,
        INT64_MIN, INT64_MAX};
    return edges[below(12)];
  }
  std::string any_name(OnnxModel& model) {
    if (below(2) == 0 && !model.initializers.empty()) return pick(model.initializers).name;
    const auto& outputs = pick(model.nodes).outputs;
    return outputs.empty() ? model.inputs[0].name : outputs[0];
  }
  void change(OnnxAttribute& attribute) {
    if (auto* list = std::get_if<std::vector<std::int64_t>>(&attribute);
        list != nullptr && !list->empty() && below(3) > 0)
      pick(*list) = number();
    else if (std::holds_alternative<std::int64_t>(attribute) && below(3) > 0)
      attribute = number();
    else if (below(2) == 0)
      attribute = static_cast<float>(number());
    else
      attribute = std::vector<std::int64_t>(below(6), number());
  }
  Tensor tensor() {
    const DType types[] = {DType::f32, DType::i64, DType::f16, DType::u8, DType::i4, DType::f64};
    Shape shape(below(5));
    for (auto& size : shape) size = static_cast<std::int64_t>(below(7));
    const DType type = types[below(6)];
    Tensor out = Tensor::zeros(shape, type);
    if (type == DType::i64)
      for (std::int64_t i = 0; i < out.numel(); ++i) out.mutable_data<std::int64_t>()[i] = number();
    return out;
  }

  std::mt19937 random_;
};

TEST_P(OnnxImportNetworks, AcceptsOrRejectsRandomChanges) {
  const OnnxModel original = model();
  int rejected = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    OnnxModel changed = original;
    Mutation mutation(seed);
    for (unsigned i = 0; i <= seed % 3; ++i) mutation.change(changed);
    try {
      (void)import_onnx(changed).build();
    } catch (const Error&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 20);
}

INSTANTIATE_TEST_SUITE_P(Files, OnnxImportNetworks, ::testing::ValuesIn(networks()),
                         [](const auto& network) { return network.param; });

}  // namespace
}  // namespace fq::import_networks_test
