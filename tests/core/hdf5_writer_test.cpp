#include "fakequant/core/io/detail/hdf5_writer.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/hdf5_reader.h"
#include "folder.h"

namespace fq::hdf5_writer_test {
namespace {

using detail::Hdf5Reader;
using detail::Hdf5Writer;
using test::Folder;
using testing::ElementsAre;

std::vector<std::int32_t> counting(std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// Rows of 3 appended `step` at a time, read back.
std::vector<std::int32_t> written_in_steps(const std::string& path, std::int64_t rows, std::int64_t step) {
  const auto values = counting(rows * 3);
  Hdf5Writer file(path);
  file.create("a/b/x", DType::i32, {3}, rows);
  for (std::int64_t at = 0; at < rows; at += step)
    file.append("a/b/x", values.data() + at * 3, std::min(step, rows - at));
  EXPECT_EQ(file.rows("a/b/x"), rows);
  file.commit();
  return Hdf5Reader(path).rows("a/b/x").read_all().to_vector<std::int32_t>();
}

TEST(Hdf5Writer, RowsComeBackHoweverTheyWereHandedOver) {
  const Folder folder;
  const std::int64_t rows = 200'000;  // 2.4 MB: more than two chunks
  const auto expected = counting(rows * 3);
  for (const std::int64_t step : {1L, 7L, 87'381L, 87'382L, 200'000L})
    EXPECT_EQ(written_in_steps(folder.file("x.h5"), rows, step), expected) << step;
  EXPECT_EQ(written_in_steps(folder.file("one.h5"), 1, 1), counting(3));
}

TEST(Hdf5Writer, SameCallsGiveTheSameBytes) {
  const Folder folder;
  (void)written_in_steps(folder.file("a.h5"), 1000, 1);
  (void)written_in_steps(folder.file("b.h5"), 1000, 10);
  EXPECT_EQ(read_file(folder.file("a.h5")), read_file(folder.file("b.h5")));
}

TEST(Hdf5Writer, FewerRowsThanWereAnnounced) {
  const Folder folder;
  Hdf5Writer file(folder.file("x.h5"));
  file.create("x", DType::u8, {2}, 1000);
  const std::vector<std::uint8_t> rows{1, 2, 3, 4};
  file.append("x", rows.data(), 2);
  file.commit();
  const Tensor read = Hdf5Reader(folder.file("x.h5")).rows("x").read_all();
  EXPECT_EQ(read.shape(), (Shape{2, 2}));
  EXPECT_EQ(read.to_vector<std::uint8_t>(), rows);
}

TEST(Hdf5Writer, EveryTypeOfSamples) {
  const Folder folder;
  Hdf5Writer file(folder.file("x.h5"));
  const DType types[]{DType::u8,  DType::i8,  DType::i16, DType::i32,
                      DType::i64, DType::f16, DType::f32, DType::f64};
  const Tensor values = Tensor::from<float>({1, 2, 3, 100}, {2, 2});
  for (const DType type : types) file.write(std::string(name(type)), values.to(type));
  file.commit();
  const Hdf5Reader read(folder.file("x.h5"));
  for (const DType type : types) {
    const Tensor found = read.rows(std::string(name(type))).read_all();
    EXPECT_EQ(found.dtype(), type);
    EXPECT_EQ(found.to(DType::f32).to_vector<float>(), values.to_vector<float>()) << name(type);
  }
}

TEST(Hdf5Writer, AttributesOfAnyLength) {
  const Folder folder;
  const std::vector<std::string> few{"cat", "", "\u732b"}, one{"a, b"};
  std::vector<std::string> many;
  for (int i = 0; i < 5000; ++i) many.push_back("a class with a long name " + std::to_string(i));
  {
    Hdf5Writer file(folder.file("x.h5"));
    file.create("g/x", DType::u8, {1}, 1);
    file.append("g/x", "a", 1);
    file.attribute("/", "few", few);
    file.attribute("g", "one", one);
    file.attribute("/", "many", many);
    file.attribute("g/x", "number", std::vector{1.0 / 255});
    file.attribute("g/x", "numbers", std::vector{1.0, -2.5});
    file.attribute("g/x", "text", std::string("NCHW"));
    file.commit();
  }
  const Hdf5Reader read(folder.file("x.h5"));
  EXPECT_EQ(read.texts("/", "few"), few);
  EXPECT_THAT(*read.texts("g", "one"), ElementsAre(R"(["a, b"])"));
  ASSERT_EQ(read.texts("/", "many")->size(), 1u) << "more than an attribute has room for is one text";
  EXPECT_THAT(read.texts("/", "many")->front(), testing::HasSubstr(R"("a class with a long name 4999"])"));
  EXPECT_THAT(*read.numbers("g/x", "number"), ElementsAre(1.0 / 255));
  EXPECT_THAT(*read.numbers("g/x", "numbers"), ElementsAre(1.0, -2.5));
  EXPECT_THAT(*read.texts("g/x", "text"), ElementsAre("NCHW"));
}

TEST(Hdf5Writer, NothingIsThereBeforeCommit) {
  const Folder folder;
  write_file(folder.file("x.h5"), "before");
  {
    Hdf5Writer file(folder.file("x.h5"));
    file.create("x", DType::u8, {1}, 1);
  }
  EXPECT_EQ(read_file(folder.file("x.h5")), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.file("")), {}), 1);
}

TEST(Hdf5Writer, NamesAreTakenOnceAndAppendedToOnlyWhenThere) {
  const Folder folder;
  Hdf5Writer file(folder.file("x.h5"));
  file.create("x", DType::u8, {1}, 1);
  EXPECT_THROW(file.create("x", DType::u8, {1}, 1), ArgumentError);
  EXPECT_THROW(file.append("y", "a", 1), ArgumentError);
}

TEST(Hdf5Writer, ADeviceIsNoPlaceForAFileWrittenByPosition) {
  EXPECT_THROW(Hdf5Writer("/dev/null"), FileError);
}

/// A limit of the size of files stands in for a full disk.
class SmallDisk {
 public:
  SmallDisk() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 1 << 20;
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(Hdf5Writer, AFullDiskIsAnErrorAndLeavesWhatWasThere) {
  const Folder folder;
  write_file(folder.file("x.h5"), "before");
  {
    const SmallDisk small;
    Hdf5Writer file(folder.file("x.h5"));
    file.create("x", DType::u8, {1 << 10}, 1 << 14);
    const std::vector<std::uint8_t> row(1 << 10);
    const auto fill = [&] {
      for (int i = 0; i < 1 << 14; ++i) file.append("x", row.data(), 1);
      file.commit();
    };
    EXPECT_THROW(fill(), SystemError);
    EXPECT_THROW(file.commit(), SystemError) << "what was lost stays lost";
  }
  EXPECT_EQ(read_file(folder.file("x.h5")), "before");
  EXPECT_EQ(written_in_steps(folder.file("x.h5"), 10, 1), counting(30)) << "HDF5 goes on";
}

}  // namespace
}  // namespace fq::hdf5_writer_test
