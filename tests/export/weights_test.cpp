#include "fakequant/export/safetensors/weights.h"

#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "fakequant/core/tape.h"
#include "fakequant/export/safetensors/file.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/model/model_file.h"

namespace fq::weights_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kData = std::string(FAKEQUANT_SOURCE_DIR) + "/tests/data/";
const std::string kFile = kData + "torch_network.safetensors";

std::shared_ptr<Graph> network() {
  auto model = build_model(ModelSpec::load(kData + "torch_network.json"), {1, 6, 6}, 0);
  model->eval();
  return model;
}

std::shared_ptr<Graph> small() {
  const auto spec = ModelSpec::parse(R"([{"name": "first", "type": "linear", "options": {"out_features": 3}},
                                         {"name": "last", "type": "linear", "options": {"out_features": 2}}])");
  return build_model(spec, {3}, 0);
}

std::string saved(const NamedTensors& tensors, const std::string& name = "w.safetensors") {
  const std::string path = test::temporary(name);
  save_safetensors(path, tensors);
  return path;
}

NamedTensors small_weights(const std::string& prefix = {}) {
  return {{prefix + "first.weight", Tensor::full({3, 3}, 0.5)},
          {prefix + "first.bias", Tensor::full({3}, 1)},
          {prefix + "last.weight", Tensor::full({2, 3}, 2)},
          {prefix + "last.bias", Tensor::full({2}, -1)}};
}

float last_weight(const Module& model) {
  for (const auto& [name, value] : model.named_parameters())
    if (name == "last.weight") return value.tensor().to_vector<float>().front();
  return 0;
}

std::string error_text(const NamedTensors& tensors, const WeightOptions& options = {}) {
  auto model = small();
  const float before = last_weight(*model);
  try {
    (void)load_weights(*model, saved(tensors), options);
  } catch (const FileError& error) {
    EXPECT_EQ(last_weight(*model), before);
    return error.what();
  }
  return {};
}

/// Convolutions, batch norms, PReLU, transposed convolution, LSTM of two layers both ways, GRU, layer norm
/// and a parameter of its own: outputs of PyTorch 2.15 (tests/data/torch_network.py), in another order of
/// sums.
TEST(Weights, OfPyTorchReproduceItsOutputs) {
  auto model = network();
  const LoadedWeights found = load_weights(*model, kFile);
  EXPECT_THAT(found.kept, IsEmpty());
  EXPECT_THAT(found.unused, IsEmpty());
  const SafetensorsFile reference(kData + "torch_network_answers.safetensors");
  const NoGrad no_grad;
  const auto y = (*model)(Variable(reference.read("x"))).tensor().to(Layout::row_major).to_vector<float>();
  const auto expected = reference.read("y").to_vector<float>();
  ASSERT_EQ(y.size(), expected.size());
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-6) << i;
}

TEST(Weights, AreFoundAfterPrefixes) {
  for (const std::string prefix : {"model.", "module.", "_orig_mod.", "module.backbone."}) {
    auto model = small();
    EXPECT_EQ(load_weights(*model, saved(small_weights(prefix))).set.size(), 4) << prefix;
    EXPECT_EQ(last_weight(*model), 2) << prefix;
  }
}

TEST(Weights, AreFoundIfTheModelHasThePrefix) {
  const auto spec = ModelSpec::parse(
      R"([{"name": "net", "type": "sequential", "nodes": [
            {"name": "first", "type": "linear", "options": {"out_features": 3}},
            {"name": "last", "type": "linear", "options": {"out_features": 2}}]}])");
  auto model = build_model(spec, {3}, 0);
  EXPECT_EQ(load_weights(*model, saved(small_weights())).set.size(), 4);
}

TEST(Weights, ConvertEveryFloatTypeToF32) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    NamedTensors tensors = small_weights();
    for (auto& [name, tensor] : tensors) tensor = tensor.to(dtype);
    auto model = small();
    (void)load_weights(*model, saved(tensors));
    EXPECT_EQ(last_weight(*model), 2) << name(dtype);
  }
}

TEST(Weights, AreRenamed) {
  NamedTensors tensors{{"head.kernel", Tensor::full({2, 3}, 4)}, {"ema.anything", Tensor::zeros({5})}};
  for (const auto& entry : small_weights("enc.a."))
    if (entry.first != "enc.a.last.weight") tensors.push_back(entry);
  const WeightOptions options{
      {{"enc.*.*", "*.*"}, {"enc.a.*", "*"}, {"head.kernel", "last.weight"}, {"ema.*", ""}}};
  WeightOptions right = options;
  right.renames.erase(right.renames.begin());
  auto model = small();
  const LoadedWeights found = load_weights(*model, saved(tensors), right);
  EXPECT_EQ(last_weight(*model), 4);
  EXPECT_THAT(found.unused, ElementsAre("ema.anything"));
  EXPECT_THAT(error_text(tensors, options), HasSubstr("1 renames fit no tensor: enc.a.*"));
}

TEST(Weights, RenamesAreReadFromJson) {
  const std::string path = test::temporary("names.json");
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_weight_renames(path);
  };
  const auto renames = read(R"({"a.*": "*", // comments
                               "b": null})");
  ASSERT_EQ(renames.size(), 2);
  EXPECT_EQ(renames[0].to, "*");
  EXPECT_EQ(renames[1].to, "");
  for (const char* bad :
       {"[1]", R"({"a": 3})", R"({"a": ""})", R"({"": "b"})", R"({"a*": "*b*"})", R"({"a": "b")"})
    EXPECT_THROW((void)read(bad), FileError) << bad;
  EXPECT_THROW((void)read_weight_renames(test::temporary("none.json")), FileError);
}

TEST(Weights, ReportEveryMismatch) {
  const std::string error = error_text({{"first.weight", Tensor::zeros({3, 4})},
                                        {"first.bias", Tensor::zeros({3})},
                                        {"lost.weight", Tensor::zeros({2, 3})},
                                        {"last.bias", Tensor::zeros({2}).to(DType::i64)}});
  EXPECT_THAT(error,
              AllOf(HasSubstr("1 missing in it: last.weight (nearest: lost.weight)"),
                    HasSubstr("1 without a parameter in the model: lost.weight (nearest: last.weight)"),
                    HasSubstr("first.weight is [3, 4], the model's is [3, 3]"), HasSubstr("last.bias is I64"),
                    HasSubstr("--map")));
}

TEST(Weights, ReportTransposedMatrices) {
  auto tensors = small_weights();
  tensors[2].second = Tensor::zeros({3, 2});
  EXPECT_THAT(error_text(tensors), HasSubstr("last.weight is [3, 2], the model's is [2, 3] (transposed)"));
}

TEST(Weights, LoadMatchingTensorsOnRequest) {
  auto model = small();
  auto tensors = small_weights();
  tensors[0].second = Tensor::zeros({3, 4});
  tensors.pop_back();
  const LoadedWeights found = load_weights(*model, saved(tensors), {.partial = true});
  EXPECT_EQ(last_weight(*model), 2);
  EXPECT_THAT(found.kept, ElementsAre("first.weight", "last.bias"));
  EXPECT_THAT(found.unused, ElementsAre("first.weight"));
  EXPECT_THAT(error_text({{"other", Tensor::zeros({1})}}, {.partial = true}),
              HasSubstr("no tensor of it fits"));
}

TEST(Weights, NameNonFiniteTensors) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    auto tensors = small_weights();
    tensors[2].second = Tensor::full({2, 3}, bad, DType::f64);
    EXPECT_THAT(error_text(tensors), HasSubstr("last.weight is"));
  }
}

TEST(Weights, LoadSeveralFilesByIndex) {
  const auto all = small_weights();
  (void)saved({all[0], all[1]}, "one.safetensors");
  (void)saved({all[2], all[3]}, "two.safetensors");
  const std::string index = test::temporary("model.safetensors.index.json");
  const auto write = [&](const std::string& last) {
    std::ofstream(index)
        << R"({"metadata": {"total_size": 80}, "weight_map": {"first.weight": "one.safetensors",
      "first.bias": "one.safetensors", "last.weight": "two.safetensors", "last.bias": ")"
        << last << "\"}}";
  };
  auto model = small();
  write("two.safetensors");
  EXPECT_EQ(load_weights(*model, index).set.size(), 4);
  for (const char* bad : {"../two.safetensors", "three.safetensors", "", "..", "/etc/passwd"}) {
    write(bad);
    EXPECT_THROW((void)load_weights(*model, index), FileError) << bad;
  }
}

TEST(Weights, RejectOtherFilesWithARemedy) {
  auto model = small();
  const auto error = [&](const std::string& name, const std::string& bytes) -> std::string {
    std::ofstream(test::temporary(name), std::ios::binary) << bytes;
    try {
      (void)load_weights(*model, test::temporary(name));
    } catch (const FileError& found) {
      return found.what();
    }
    return {};
  };
  EXPECT_THAT(error("w.pt", "anything"), AllOf(HasSubstr("torch.load"), HasSubstr("w.safetensors")));
  EXPECT_THAT(error("w.bin", "PK\x03\x04 and more"), HasSubstr("save_file"));
  EXPECT_THAT(error("x.bin", std::string("\x80\x02}q", 4)), HasSubstr("save_file"));
  EXPECT_THAT(error("w.onnx", "\x08\x07\x12\x04 pytorch"), HasSubstr("fakequant import"));
  EXPECT_THAT(error("w.npy", "\x93NUMPY\x01"), Not(IsEmpty()));
  EXPECT_THAT(error("empty.safetensors", ""), HasSubstr("too short"));
  EXPECT_THROW((void)load_weights(*model, test::temporary("nothing")), FileError);
  EXPECT_THROW((void)load_weights(*model, ::testing::TempDir()), FileError);
}

TEST(Weights, RejectLongNames) {
  EXPECT_THAT(error_text({{std::string(5000, 'a'), Tensor::zeros({1})}}), HasSubstr("5000 characters"));
}

}  // namespace
}  // namespace fq::weights_test
