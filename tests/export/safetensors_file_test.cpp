#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/quantized.h"
#include "fakequant/export/safetensors/detail/header.h"
#include "fakequant/export/safetensors/file.h"

namespace fq::safetensors_file_test {
namespace {

std::string temporary_path(const std::string& name) { return test::temporary(name); }

std::string with_length(const std::string& header, std::uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header;
}
std::string with_length(const std::string& header) { return with_length(header, header.size()); }

SafetensorsFile load_bytes(const std::string& bytes) {
  std::ofstream(temporary_path("bytes"), std::ios::binary) << bytes;
  return SafetensorsFile(temporary_path("bytes"));
}

std::string error_text(const std::string& bytes) {
  try {
    (void)load_bytes(bytes);
  } catch (const FileError& error) {
    return error.what();
  }
  return {};
}

NamedTensors some_tensors() {
  const Tensor nibbles = Tensor::from({std::uint8_t{1}, std::uint8_t{15}, std::uint8_t{7}, std::uint8_t{8}});
  Tensor f8 = Tensor::empty({3}, DType::f8_e4m3);
  std::memcpy(f8.mutable_raw(), "\x38\xb8\x7f", 3);
  return {{"b", Tensor::from({1.5f, -2.0f}, {2, 1})},
          {"a", Tensor::scalar(3)},
          {"codes", Tensor::from({std::int8_t{-128}, std::int8_t{127}, std::int8_t{0}})},
          {"wide", Tensor::from({std::int64_t{1} << 40}, {1})},
          {"half", Tensor::from({1.0f, 0.5f}).to(DType::bf16)},
          {"f4", pack_codes(nibbles, DType::f4_e2m1)},
          {"f8", f8},
          {"empty", Tensor::zeros({0, 3})}};
}

TEST(Safetensors, RoundTripsInTheReferenceOrder) {
  const NamedTensors tensors = some_tensors();
  save_safetensors(temporary_path("whole"), tensors, {{"format", "pt"}});
  const SafetensorsFile file(temporary_path("whole"));
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(bitwise_equal(file.read(name), tensor)) << name;
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"wide", "a", "b", "empty", "half", "f8", "codes", "f4"}));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_TRUE(file.contains("half"));
  EXPECT_EQ(file.entry("half").dtype, "BF16");
  std::uint64_t length = 0;
  std::memcpy(&length, read_file(temporary_path("whole")).data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_THROW((void)file.read("hal"), ArgumentError);
}

TEST(Safetensors, StoresLogicalOrderForAnyLayout) {
  const Tensor x = Tensor::from({0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f}, {1, 2, 2, 2});
  save_safetensors(temporary_path("layout"), {{"x", x.to(Layout::channels_last)}});
  EXPECT_TRUE(bitwise_equal(SafetensorsFile(temporary_path("layout")).read("x"), x));
}

TEST(Safetensors, RejectsUnsupportedValues) {
  const Tensor one = Tensor::scalar(1);
  for (const NamedTensors& tensors : std::vector<NamedTensors>{{{"", one}},
                                                               {{"__metadata__", one}},
                                                               {{"a", one}, {"a", one}},
                                                               {{"a\xff", one}},
                                                               {{"a", Tensor{}}},
                                                               {{"a", Tensor::zeros({4}, DType::i4)}},
                                                               {{"a", Tensor::zeros({8}, DType::u1)}},
                                                               {{"a", Tensor::zeros({3}, DType::f4_e2m1)}}})
    EXPECT_THROW(save_safetensors(temporary_path("never"), tensors), ArgumentError);
  EXPECT_FALSE(std::filesystem::exists(temporary_path("never")));
  EXPECT_THROW(save_safetensors("/no/such/folder/a.safetensors", {{"a", one}}), FileError);
}

std::string one_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"x":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, AcceptsForeignHeaders) {
  const std::string data(8, '\1');
  EXPECT_EQ(load_bytes(with_length(one_tensor("F32", "[2]", "[0,8]") + " \n") + data).read("x").numel(), 2);
  const std::string reversed =
      R"({"x":{"data_offsets":[4,8],"shape":[1],"dtype":"I32"},"__metadata__":{"a":"b"},)"
      R"("y":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})";
  const SafetensorsFile file = load_bytes(with_length(reversed) + data);
  EXPECT_EQ(file.entries()[0].name, "y");
  EXPECT_EQ(file.read("y").dtype(), DType::u8);
  EXPECT_EQ(file.metadata().at("a"), "b");
  EXPECT_TRUE(load_bytes(with_length("{}")).entries().empty());
  const SafetensorsFile foreign = load_bytes(with_length(one_tensor("U64", "[1]", "[0,8]")) + data);
  EXPECT_THROW((void)foreign.read("x"), FileError);  // no tensor of ours has that type
}

TEST(Safetensors, ReportsHeaderErrors) {
  const std::string data(8, '\1');
  for (
      const auto& [header, expected] : std::vector<std::pair<std::string, std::string>>{
          {"", "begin with"},
          {"[1]", "begin with"},
          {" {}", "begin with"},
          {"{", "not JSON"},
          {"{}x", "not JSON"},
          {"{}{}", "not JSON"},
          {"{\"\xff\":1}", "not JSON"},
          {R"({"x":1})", "has the wrong type"},
          {R"({"x":{}})", "needs dtype"},
          {R"({"x":{"dtype":"F32","shape":[2]}})", "needs dtype"},
          {R"({"x":{"dtype":"F32","dtype":"F32"}})", "'dtype' twice"},
          {R"({"x":{"offset":1}})", "the key 'offset'"},
          {R"({"x":{"dtype":{"a":1}}})", "has the wrong type"},
          {R"({"__metadata__":{"a":1}})", "not an object of tensors"},
          {R"({"__metadata__":{"a":"b","a":"c"}})", "twice"},
          {R"({"__metadata__":{},"__metadata__":{}})", "twice"},
          {R"({"__metadata__":[]})", "not an object"},
          {one_tensor("F33", "[2]", "[0,8]"), "unknown type 'F33'"},
          {one_tensor("F32", "[[2]]", "[0,8]"), "has the wrong type"},
          {one_tensor("F32", "2", "[0,8]"), "has the wrong type"},
          {one_tensor("F32", "[-2]", "[0,8]"), "has the wrong type"},
          {one_tensor("F32", "[2.0]", "[0,8]"), "has the wrong type"},
          {one_tensor("F32", "[99999999999999999999]", "[0,8]"), "has the wrong type"},
          {one_tensor("F32", "[9223372036854775807]", "[0,8]"), "size or offset"},
          {one_tensor("F32", "[4611686018427387904,4]", "[0,8]"), "do not fit"},
          {one_tensor("F32", "[2]", "[0,4]"), "do not fit"},
          {one_tensor("F32", "[2]", "[8,0]"), "do not fit"},
          {one_tensor("F4", "[3]", "[0,1]"), "do not fit"},
          {one_tensor("F32", "[2]", "[0,8,9]"), "not two"},
          {one_tensor("F32", "[2]", "[0]"), "not two"},
          {one_tensor("F32", "[1]", "[4,8]"), "begins at byte 4"},
          {one_tensor("F32", "[1]", "[0,4]"), "the file has 8"},
          {one_tensor("F32", "[1000000000000]", "[0,4000000000000]"), "the file has 8"},
          {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
           "twice"},
          {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           "begins at byte 4"}}) {
    const std::string message = error_text(with_length(header) + data);
    EXPECT_NE(message.find(expected), std::string::npos) << header << ": " << message;
    EXPECT_NE(message.find("bytes"), std::string::npos) << message;
  }
  std::string deep = "{\"x\":";
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_NE(error_text(with_length(deep)).find("has the wrong type"), std::string::npos);
  std::string texts = R"({"__metadata__":{"0":"")";
  for (int i = 1; i <= 65536; ++i) texts += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_NE(error_text(with_length(texts + "}}")).find("more than 65536"), std::string::npos);
  std::string axes = "[1";
  for (int i = 0; i < 64; ++i) axes += ",1";
  EXPECT_NE(error_text(with_length(one_tensor("U8", axes + "]", "[0,1]")) + "x").find("more than"),
            std::string::npos);
}

TEST(Safetensors, RejectsAHeaderLongerThanTheFile) {
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{100'000'001}, ~std::uint64_t{0}})
    EXPECT_NE(error_text(with_length("{}", length)).find("not safetensors, or is truncated"),
              std::string::npos)
        << length;
  EXPECT_NE(error_text("{}").find("too short"), std::string::npos);
  EXPECT_NE(error_text("").find("too short"), std::string::npos);
  EXPECT_THROW(SafetensorsFile(temporary_path("nowhere")), FileError);
  EXPECT_THROW(SafetensorsFile("/"), FileError);
}

std::string changed(const std::string& whole, std::size_t changeable, std::mt19937& random) {
  std::string bytes = whole.substr(0, random() % 4 == 0 ? random() % whole.size() : whole.size());
  for (unsigned changes = random() % 4; changes > 0 && !bytes.empty(); --changes) {
    char& byte = bytes[random() % std::min(bytes.size(), changeable)];
    byte = random() % 2 == 0 ? static_cast<char>(random()) : "0123456789[]{},:\""[random() % 17];
  }
  return bytes;
}

/// Every tensor is the bytes that the header says it is.
void expect_its_bytes(const SafetensorsFile& file, const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::int64_t end = 0;
  for (const auto& entry : file.entries()) {
    const Tensor tensor = file.read(entry.name);
    ASSERT_EQ(tensor.nbytes(), entry.end - entry.begin) << entry.name;
    EXPECT_EQ(bytes.compare(8 + length + static_cast<std::size_t>(entry.begin),
                            static_cast<std::size_t>(tensor.nbytes()), static_cast<const char*>(tensor.raw()),
                            static_cast<std::size_t>(tensor.nbytes())),
              0)
        << entry.name;
    end = std::max(end, entry.end);
  }
  EXPECT_EQ(8 + length + static_cast<std::uint64_t>(end), bytes.size());
}

TEST(Safetensors, SurvivesChangedAndTruncatedFiles) {
  save_safetensors(temporary_path("whole"), some_tensors(), {{"format", "pt"}});
  const std::string whole = read_file(temporary_path("whole"));
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  std::mt19937 random(1);
  int rejected = 0, read = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string bytes = changed(whole, length + 8, random);
    try {
      const SafetensorsFile file = load_bytes(bytes);
      expect_its_bytes(file, bytes);
      ++read;
      EXPECT_EQ(bytes.size(), whole.size()) << "a cut file was read";
    } catch (const FileError& error) {
      EXPECT_NE(bytes, whole) << error.what();
      EXPECT_EQ(error.path(), temporary_path("bytes"));
      ++rejected;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(rejected, 100);
}

TEST(Safetensors, RejectsHeadersThatDoNotCoverTheFile) {
  save_safetensors(temporary_path("whole"), some_tensors(), {{"format", "pt"}});
  const std::string whole = read_file(temporary_path("whole"));
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  const auto data_bytes = static_cast<std::int64_t>(whole.size() - 8 - length);
  std::mt19937 random(2);
  int rejected = 0, read = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = changed(whole.substr(8, length), length, random);
    try {
      const auto header = detail::parse_safetensors_header(text, data_bytes);
      std::int64_t bytes = 0;
      for (const auto& entry : header.entries) bytes += entry.end - entry.begin;
      EXPECT_EQ(bytes, data_bytes) << text;
      ++read;
    } catch (const detail::BadHeader&) {
      ++rejected;
    }
  }
  EXPECT_GT(read, 2000);
  EXPECT_GT(rejected, 2000);
}

TEST(Safetensors, ReportsAFileTruncatedDuringReading) {
  save_safetensors(temporary_path("cut"), {{"x", Tensor::zeros({1000})}});
  const SafetensorsFile file(temporary_path("cut"));
  std::filesystem::resize_file(temporary_path("cut"), 100);
  EXPECT_THROW((void)file.read("x"), FileError);
}

}  // namespace
}  // namespace fq::safetensors_file_test
