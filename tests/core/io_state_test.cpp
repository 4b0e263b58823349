#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::io_state_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr DType kDTypes[] = {DType::f32,     DType::f64,     DType::f16,     DType::bf16,   DType::i8,
                             DType::u8,      DType::i16,     DType::i32,     DType::i64,    DType::u16,
                             DType::u1,      DType::i2,      DType::u2,      DType::i4,     DType::u4,
                             DType::f8_e4m3, DType::f8_e5m2, DType::f8_e8m0, DType::f4_e2m1};

Tensor random_bits(const Shape& shape, DType dtype, unsigned seed) {
  Tensor tensor = Tensor::zeros(shape, dtype);
  std::mt19937 random(seed);
  auto* bytes = static_cast<unsigned char*>(tensor.mutable_raw());
  for (std::int64_t i = 0; i < tensor.numel() * bit_width(dtype) / 8; ++i)
    bytes[i] = static_cast<unsigned char>(random());
  return tensor;
}

StateDict sample() {
  StateDict state;
  state.set("parameters/conv1/weight", random_bits({4, 3, 3, 3}, DType::f32, 1));
  state.set("parameters/conv1/bias", random_bits({4}, DType::f32, 2));
  state.set("buffers/mask", random_bits({5, 7}, DType::u1, 3));
  state.set_attribute("model", {{"nodes", {"conv1", "relu"}}, {"rate", 0.1}});
  state.set_attribute("progress/step", 12);
  return state;
}

class StateFileTest : public testing::Test {
 protected:
  StateFileTest() { std::filesystem::create_directories(folder_); }
  ~StateFileTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name = "state.h5") const {
    return (folder_ / name).string();
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("fq_state_" + std::to_string(::getpid()));
};

// Without the syncs of write_file, which thousands of files would wait for.
void spoil(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

std::string error_message(const std::function<void()>& call) {
  try {
    call();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  } catch (const Error& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

TEST(StateDict, KeepsTheOrderAndReplacesInPlace) {
  StateDict state;
  state.set("b", Tensor::scalar(1));
  state.set("a", Tensor::scalar(2));
  state.set("b", Tensor::scalar(3));
  EXPECT_THAT(state.names(), ElementsAre("b", "a"));
  EXPECT_EQ(state.at("b").item(), 3);
}

TEST(StateDict, SuggestsTheNearestNames) {
  const auto state = sample();
  try {
    (void)state.at("parameters/conv1/wieght");
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'parameters/conv1/weight'?"));
  }
  EXPECT_THROW((void)state.attribute("modle"), ArgumentError);
  EXPECT_THROW((void)StateDict().at("x"), ArgumentError);
  EXPECT_THROW((void)state.at("parameters/conv1/bias", {5}, DType::f32), ArgumentError);
  EXPECT_EQ(state.at("parameters/conv1/bias", {4}, DType::f32).numel(), 4);
}

TEST(StateDict, RejectsNamesThatAreNotPaths) {
  StateDict state;
  for (const std::string name : {"", "/", "a/", "/a", "a//b", "a/./b", "."})
    EXPECT_THROW(state.set(name, Tensor::scalar(1)), ArgumentError) << name;
  EXPECT_THROW(state.set(std::string("a\0b", 3), Tensor::scalar(1)), ArgumentError);
  EXPECT_THROW(state.set("a", Tensor()), ArgumentError);
  std::string deepest = "a";
  for (int parts = 1; parts < 64; ++parts) deepest += "/a";
  EXPECT_THROW(state.set(deepest + "/a", Tensor::scalar(1)), ArgumentError);
  EXPECT_EQ(state.size(), 0u);
  state.set(deepest, Tensor::scalar(1));
}

TEST(StateDict, SubUndoesMerge) {
  const auto inner = sample();
  StateDict outer;
  outer.set("x", Tensor::scalar(1));
  outer.merge(inner, "model/a");
  EXPECT_TRUE(outer.contains("model/a/buffers/mask"));
  EXPECT_TRUE(outer.has_sub("model"));
  EXPECT_FALSE(outer.has_sub("mod"));
  EXPECT_TRUE(bitwise_equal(outer.sub("model/a"), inner));
  EXPECT_TRUE(bitwise_equal(outer.sub("model").sub("a"), inner));
  EXPECT_EQ(outer.sub("nothing").size(), 0u);
  EXPECT_THROW(outer.merge(inner, "model/a"), ArgumentError);
  EXPECT_EQ(outer.size(), 4u);
  outer.merge(outer, "twice");
  EXPECT_EQ(outer.size(), 8u);
}

TEST_F(StateFileTest, RoundTripsEveryDType) {
  StateDict state;
  for (const auto dtype : kDTypes) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{1}, Shape{3, 5, 2}, Shape{17}})
      state.set(std::string(name(dtype)) + "/" + to_string(shape), random_bits(shape, dtype, 7));
  }
  save_state(path(), state, "checkpoint");
  const auto loaded = load_state(path(), "checkpoint");
  EXPECT_EQ(loaded.names(), state.names());
  EXPECT_TRUE(bitwise_equal(loaded, state));
}

TEST_F(StateFileTest, RoundTripsTheDeepestName) {
  std::string deepest = "a";
  for (int parts = 1; parts < 64; ++parts) deepest += "/a";
  StateDict state;
  state.set(deepest, random_bits({3}, DType::f32, 1));
  save_state(path(), state, "s");
  EXPECT_TRUE(bitwise_equal(load_state(path(), "s"), state));
}

TEST_F(StateFileTest, ChannelsLastIsStoredInLogicalOrder) {
  StateDict state;
  const auto rows = random_bits({2, 3, 4, 5}, DType::i32, 3);
  state.set("x", rows.to(Layout::channels_last));
  save_state(path(), state, "s");
  EXPECT_EQ(load_state(path(), "s").at("x").to_vector<std::int32_t>(), rows.to_vector<std::int32_t>());
}

TEST_F(StateFileTest, AttributesRoundTripExactly) {
  StateDict state;
  const std::vector<double> values{0.1, 1e-310, 1.7976931348623157e308, -0.0, 1.0 / 3};
  state.set_attribute("numbers", values);
  state.set_attribute("big", std::numeric_limits<std::int64_t>::min());
  state.set_attribute("text", "zwölf \"quoted\" \n line");
  state.set_attribute("long", std::string(200000, 'x'));
  save_state(path(), state, "s");
  EXPECT_EQ(load_state(path(), "s").attributes(), state.attributes());
  save_state(path(), StateDict(), "s");
  EXPECT_TRUE(bitwise_equal(load_state(path(), "s"), StateDict()));
}

TEST_F(StateFileTest, IsDeterministic) {
  save_state(path("a"), sample(), "s");
  save_state(path("b"), sample(), "s");
  EXPECT_EQ(read_file(path("a")), read_file(path("b")));
}

TEST_F(StateFileTest, GrowsForLargeTensors) {
  StateDict state;
  state.set("a", random_bits({3000000}, DType::f32, 1));
  state.set("b", random_bits({1000001}, DType::f64, 2));
  save_state(path(), state, "s");
  EXPECT_TRUE(bitwise_equal(load_state(path(), "s"), state));
}

TEST_F(StateFileTest, RecordsItsKind) {
  save_state(path(), sample(), "checkpoint");
  const auto info = state_file_info(path());
  EXPECT_EQ(info.kind, "checkpoint");
  EXPECT_EQ(info.version, 1u);
  EXPECT_EQ(info.bytes, static_cast<std::int64_t>(std::filesystem::file_size(path())));
  EXPECT_THAT(error_message([&] { (void)load_state(path(), "scales"); }),
              HasSubstr("is a file of checkpoint, expected one of scales"));
  EXPECT_EQ(load_state(path(), "").size(), 3u);
}

TEST_F(StateFileTest, RejectsUnsupportedValues) {
  StateDict state;
  state.set("a", Tensor::scalar(1));
  state.set("a/b", Tensor::scalar(1));
  EXPECT_THROW(save_state(path(), state, "s"), ArgumentError);
  StateDict meta;
  meta.set("a", Tensor::empty({2}, DType::f32, Device::meta()));
  EXPECT_THROW(save_state(path(), meta, "s"), ArgumentError);
  StateDict stored;
  stored.set("attributes", Tensor::scalar(1));
  EXPECT_THROW(save_state(path(), stored, "s"), ArgumentError);
  StateDict text;
  text.set_attribute("a", "\xff\xfe");
  EXPECT_THROW(save_state(path(), text, "s"), ArgumentError);
  EXPECT_THROW(save_state(path(), StateDict(), std::string(32, 'k')), ArgumentError);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(StateFileTest, DetectsAnyFlippedByte) {
  const auto state = sample();
  save_state(path(), state, "s");
  const std::string whole = read_file(path());
  std::mt19937 random(5);
  for (int trial = 0; trial < 1500; ++trial) {
    std::string broken = whole;
    const std::size_t at = trial < 600 ? static_cast<std::size_t>(trial) : random() % whole.size();
    broken[at] = static_cast<char>(broken[at] ^ (1 + random() % 255));
    spoil(path("broken"), broken);
    EXPECT_THROW((void)load_state(path("broken"), "s"), FileError) << at;
  }
}

TEST_F(StateFileTest, NamesTheDamagedDataset) {
  const auto state = sample();
  save_state(path(), state, "s");
  const std::string whole = read_file(path());
  for (const auto& [name, tensor] : state.tensors()) {
    std::string broken = whole;
    const std::string elements(static_cast<const char*>(tensor.raw()),
                               static_cast<std::size_t>(tensor.nbytes()));
    broken[broken.find(elements)] ^= 1;
    spoil(path("broken"), broken);
    try {
      (void)load_state(path("broken"), "s");
      ADD_FAILURE() << name;
    } catch (const FileError& error) {
      EXPECT_EQ(error.dataset(), name);
      EXPECT_THAT(error.what(), HasSubstr("is damaged: its dataset '" + name + "'"));
    }
  }
}

TEST_F(StateFileTest, RejectsTruncatedAndExtendedFiles) {
  save_state(path(), sample(), "s");
  const std::string whole = read_file(path());
  for (std::size_t length = 0; length < whole.size(); length += length < 600 ? 7 : 97) {
    spoil(path("cut"), whole.substr(0, length));
    EXPECT_THROW((void)load_state(path("cut"), "s"), FileError) << length;
  }
  spoil(path("cut"), whole.substr(0, 2000));
  EXPECT_THAT(error_message([&] { (void)load_state(path("cut"), "s"); }),
              HasSubstr("is truncated: it has 2000 bytes"));
  spoil(path("cut"), whole + "x");
  EXPECT_THROW((void)load_state(path("cut"), "s"), FileError);
}

TEST_F(StateFileTest, ReportsANewerVersion) {
  save_state(path(), sample(), "s");
  std::string newer = read_file(path());
  newer[8] = 2;
  const std::uint32_t crc = crc32c(newer.data(), 508);
  std::memcpy(newer.data() + 508, &crc, 4);
  write_file(path(), newer);
  EXPECT_THAT(error_message([&] { (void)load_state(path(), "s"); }),
              HasSubstr("format version 2, this program reads up to 1: use a newer fakequant"));
}

TEST_F(StateFileTest, RejectsOtherFilesInOneLine) {
  EXPECT_THAT(error_message([&] { (void)load_state(path("none"), "s"); }), HasSubstr("No such file"));
  EXPECT_THAT(error_message([&] { (void)load_state(folder_.string(), "s"); }), HasSubstr("directory"));
  EXPECT_THAT(error_message([&] { (void)load_state("/dev/zero", "s"); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_message([&] { (void)load_state(FAKEQUANT_SOURCE_DIR "/data/digits.h5", "s"); }),
              HasSubstr("is not a file of fakequant"));
  write_file(path("text"), "hello");
  EXPECT_THAT(error_message([&] { (void)load_state(path("text"), "s"); }),
              HasSubstr("is not a file of fakequant"));
  write_file(path("empty"), "");
  EXPECT_THAT(error_message([&] { (void)load_state(path("empty"), "s"); }),
              HasSubstr("is not a file of fakequant"));
}

// Invalid contents with a valid checksum must be rejected.
TEST_F(StateFileTest, RejectsInvalidContentWithAValidChecksum) {
  std::string file(512, '\0');
  file.replace(0, 8,
               "\x89"
               "FQS\r\n\x1a\n");
  file[8] = 1;
  file += "this is not HDF5, and neither is it JSON";
  const std::int64_t body = static_cast<std::int64_t>(file.size()) - 512;
  const std::uint32_t crc = crc32c(file.data() + 512, static_cast<std::size_t>(body));
  std::memcpy(file.data() + 12, &crc, 4);
  std::memcpy(file.data() + 16, &body, 8);
  const std::uint32_t own = crc32c(file.data(), 508);
  std::memcpy(file.data() + 508, &own, 4);
  write_file(path(), file);
  EXPECT_THAT(error_message([&] { (void)load_state(path(), ""); }), HasSubstr("has no listing of its parts"));
}

// The writer keeps its lock until the file is renamed and synced. A reader must not require a lock, and must
// not mix two files.
TEST_F(StateFileTest, CanBeReadWhileItIsSaved) {
  StateDict small, large;
  small.set("a", random_bits({100}, DType::f32, 1));
  large.set("a", random_bits({60000}, DType::f32, 2));
  large.set("b", random_bits({20000}, DType::i8, 3));
  save_state(path(), small, "s");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto failure = error_message([&] {
      for (int i = 0; i < 100; ++i) save_state(path(), i % 2 == 0 ? large : small, "s");
    });
    std::_Exit(failure == "no error" ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    StateDict state;
    EXPECT_EQ(error_message([&] { state = load_state(path(), "s"); }), "no error");
    EXPECT_TRUE(bitwise_equal(state, small) || bitwise_equal(state, large));
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(StateFileTest, KeepsTheOldFileOnAFullDisk) {
  const auto old = sample();
  save_state(path(), old, "s");
  StateDict large;
  large.set("x", random_bits({300000}, DType::f64, 1));
  const pid_t child = ::fork();
  if (child == 0) {  // a file size limit simulates a full disk
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save_state(path(), large, "s");
    } catch (const SystemError&) {
      std::_Exit(7);
    } catch (...) {
    }
    std::_Exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_TRUE(bitwise_equal(load_state(path(), "s"), old));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  if (std::filesystem::exists("/dev/full")) {
    EXPECT_THROW(save_state("/dev/full", old, "s"), SystemError);
  }
}

}  // namespace
}  // namespace fq::io_state_test
