#include <filesystem>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/export/onnx/model.h"

namespace fq::onnx_file_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A folder of its own for each test.
class OnnxFile : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_onnx()) GTEST_SKIP() << "built without ONNX";
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name = "model.onnx") const {
    return (folder_ / name).string();
  }
  [[nodiscard]] std::string error_text(const OnnxModel& model) const {
    save_onnx(path("bad.onnx"), model);
    return file_error(path("bad.onnx"));
  }
  [[nodiscard]] static std::string file_error(const std::string& file) {
    try {
      (void)load_onnx(file);
    } catch (const FileError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  fs::path folder_;
};

/// y = relu(w) + x, with an attribute of every kind on the way.
OnnxModel small() {
  OnnxModel model;
  model.opset = 21;
  model.ir_version = 10;
  model.producer = "test";
  model.producer_version = "1";
  model.graph_name = "small";
  model.other_opsets = {{"com.example", 3}};
  model.metadata = {{"key", "value"}};
  model.initializers = {{"w", Tensor::from({1.0f, -2.0f, 3.0f}, {3}), false},
                        {"codes", Tensor::zeros({3}, DType::i4), false},
                        {"flag", Tensor::full({1}, 1, DType::u8), true}};
  model.nodes = {{"Relu", "act", "", {"w"}, {"a"}, {}},
                 {"Odd",
                  "odd",
                  "com.example",
                  {"a", ""},
                  {"b"},
                  {{"i", std::int64_t{-7}},
                   {"f", 0.5f},
                   {"s", std::string("text")},
                   {"is", std::vector<std::int64_t>{1, -2}},
                   {"fs", std::vector<float>{0.25f}},
                   {"ss", std::vector<std::string>{"a", "b"}},
                   {"t", Tensor::from({2.5f}, {1})}}},
                 {"Add", "sum", "", {"b", "x"}, {"y"}, {}}};
  model.inputs = {{"x", OnnxKind::tensor, DType::f32, true, {{-1, "N"}, {3, ""}}}};
  model.outputs = {{"y", OnnxKind::tensor, DType::f32, true, {{-1, "N"}, {3, ""}}}};
  return model;
}

TEST_F(OnnxFile, RoundTrips) {
  save_onnx(path(), small());
  const OnnxModel model = load_onnx(path());
  EXPECT_EQ(model.opset, 21);
  EXPECT_EQ(model.ir_version, 10);
  EXPECT_EQ(model.producer, "test");
  EXPECT_EQ(model.other_opsets, small().other_opsets);
  EXPECT_EQ(model.metadata, small().metadata);
  ASSERT_EQ(model.initializers.size(), 3u);
  EXPECT_TRUE(bitwise_equal(model.initializer("w")->value, small().initializer("w")->value));
  EXPECT_EQ(model.initializer("codes")->value.dtype(), DType::i4);
  EXPECT_TRUE(model.initializer("flag")->boolean);
  ASSERT_EQ(model.nodes.size(), 3u);
  const OnnxNode& odd = model.nodes[1];
  EXPECT_EQ(odd.domain, "com.example");
  EXPECT_EQ(odd.inputs, (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(std::get<std::int64_t>(*odd.attribute("i")), -7);
  EXPECT_EQ(std::get<float>(*odd.attribute("f")), 0.5f);
  EXPECT_EQ(std::get<std::string>(*odd.attribute("s")), "text");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*odd.attribute("is")), (std::vector<std::int64_t>{1, -2}));
  EXPECT_EQ(std::get<std::vector<float>>(*odd.attribute("fs")), std::vector<float>{0.25f});
  EXPECT_EQ(std::get<std::vector<std::string>>(*odd.attribute("ss")), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(std::get<Tensor>(*odd.attribute("t")).item(), 2.5);
  EXPECT_EQ(odd.attribute("none"), nullptr);
  ASSERT_EQ(model.inputs.size(), 1u);
  EXPECT_EQ(model.inputs[0].shape[0].symbol, "N");
  EXPECT_EQ(model.inputs[0].shape[1].size, 3);
}

TEST_F(OnnxFile, StoresLargeWeightsInAnExternalFile) {
  OnnxModel model = small();
  const Tensor large = Tensor::full({300}, 1.5), larger = Tensor::full({5000}, 2.5);
  model.initializers.push_back({"large", large, false});
  model.initializers.push_back({"larger", larger, false});
  save_onnx(path(), model, 1000);
  EXPECT_EQ(fs::file_size(path() + ".data"), 2 * 4096 + 5000 * 4 - 4096);
  EXPECT_LT(fs::file_size(path()), 2000u);
  const OnnxModel back = load_onnx(path());
  EXPECT_TRUE(bitwise_equal(back.initializer("large")->value, large));
  EXPECT_TRUE(bitwise_equal(back.initializer("larger")->value, larger));
  fs::resize_file(path() + ".data", 100);
  EXPECT_THAT(file_error(path()), HasSubstr("tensor 'large': 1200 bytes at 0 of model.onnx.data"));
  fs::remove(path() + ".data");
  EXPECT_THAT(file_error(path()), HasSubstr("model.onnx.data cannot be read"));
}

TEST_F(OnnxFile, RejectsDataOfAnotherExport) {
  OnnxModel model = small();
  model.initializers.push_back({"large", Tensor::full({300}, 1.5), false});
  save_onnx(path(), model, 1000);
  EXPECT_EQ(load_onnx(path()).metadata, small().metadata);
  fs::copy_file(path() + ".data", path("old"));
  model.initializers.back().value = Tensor::full({300}, 2.5);
  save_onnx(path(), model, 1000);
  EXPECT_EQ(load_onnx(path()).initializer("large")->value.to_vector<float>()[0], 2.5f);
  fs::rename(path("old"), path() + ".data");  // as a process leaves them that is killed between the two
  EXPECT_THAT(file_error(path()), HasSubstr("model.onnx.data are of another export"));
}

TEST_F(OnnxFile, ExternalDataStaysInItsFolder) {
  OnnxModel model = small();
  model.initializers.push_back({"large", Tensor::full({300}, 1.5), false});
  save_onnx(path("a"), model, 1000);
  std::string bytes = read_file(path("a"));
  const auto at = bytes.find("a.data");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 6, "../../");
  write_file(path("b"), bytes);
  EXPECT_THAT(file_error(path("b")), HasSubstr("is outside of the model's folder"));
  bytes.replace(at, 6, std::string("a.da\0x", 6));
  write_file(path("b"), bytes);
  EXPECT_THAT(file_error(path("b")), HasSubstr("the name of its external data has a NUL: 'a.da'"));
  bytes.replace(at, 6, "/etc/x");
  write_file(path("b"), bytes);
  EXPECT_THAT(file_error(path("b")), HasSubstr("is outside of the model's folder"));
}

TEST_F(OnnxFile, RejectsUndefinedNames) {
  OnnxModel missing = small();
  missing.initializers.erase(missing.initializers.begin());
  EXPECT_THAT(error_text(missing),
              HasSubstr("node 'act' (Relu): it reads 'w', which no earlier node or input defines"));
  OnnxModel cycle = small();
  cycle.nodes[0].inputs = {"y"};
  EXPECT_THAT(error_text(cycle), HasSubstr("it reads 'y', which no earlier node or input defines"));
  OnnxModel twice = small();
  twice.nodes[1].outputs = {"a"};
  EXPECT_THAT(error_text(twice), HasSubstr("node 'odd' (Odd): it writes 'a' a second time"));
  OnnxModel two = small();
  two.initializers[1].name = "w";
  EXPECT_THAT(error_text(two), HasSubstr("tensor 'w': the name is used twice"));
  OnnxModel open = small();
  open.outputs[0].name = "z";
  EXPECT_THAT(error_text(open), HasSubstr("output 'z': no node or input defines it"));
}

TEST_F(OnnxFile, RejectsOtherFiles) {
  EXPECT_THAT(file_error(path("none")), HasSubstr("No such file"));
  write_file(path(), "");
  EXPECT_THAT(file_error(path()), HasSubstr("it is not an ONNX model, or is cut off"));
  write_file(path("net.pt"), "PK\x03\x04");
  EXPECT_THAT(file_error(path("net.pt")), HasSubstr("torch.onnx.export(model, (x,), \"net.onnx\")"));
  write_file(path("net.csv"), "1,2\n");
  EXPECT_THAT(file_error(path("net.csv")), HasSubstr("it is a text file, not an ONNX model"));
  write_file(path(), "this is text, and not a graph");
  EXPECT_THAT(file_error(path()), HasSubstr("it is not an ONNX model, or is cut off"));
}

TEST_F(OnnxFile, WritesNothingForAnInvalidGraph) {
  OnnxModel model = small();
  model.nodes[1].attributes[0].second = std::monostate{};
  EXPECT_THROW(save_onnx(path(), model), ArgumentError);
  model = small();
  model.initializers.push_back({"mask", Tensor::zeros({8}, DType::u1), false});
  model.initializers.push_back({"large", Tensor::full({300}, 1.5), false});
  EXPECT_THROW(save_onnx(path(), model, 100), ArgumentError);
  EXPECT_THROW(save_onnx(path("none/model.onnx"), small()), FileError);
  EXPECT_TRUE(fs::is_empty(folder_));
}

void write_quickly(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Every beginning of a file, and files with changed bytes: read or refused, never anything else.
TEST_F(OnnxFile, SurvivesDamage) {
  save_onnx(path(), small());
  const std::string whole = read_file(path());
  int loaded = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_quickly(path("cut"), whole.substr(0, size));
    loaded += file_error(path("cut")) == "nothing was refused" ? 1 : 0;
  }
  EXPECT_EQ(loaded, 3);  // cut after the graph, and after each of the two operator sets
  std::mt19937 random(1);
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 1 + round % 4; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    write_quickly(path("changed"), bytes);
    try {
      (void)load_onnx(path("changed"));
    } catch (const FileError&) {
    }
  }
}

}  // namespace
}  // namespace fq::onnx_file_test
