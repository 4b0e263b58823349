#include <array>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/atomic_file.h"
#include "fakequant/core/io/crc32c.h"
#include "fakequant/core/log.h"

namespace fq::io_basics_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  AtomicFileTest() { std::filesystem::create_directories(folder_); }
  ~AtomicFileTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("fq_atomic_" + std::to_string(::getpid()));
};

// RFC 3720, appendix B.4.
TEST(Crc32c, EqualsTheVectorsOfRfc3720) {
  std::array<unsigned char, 32> bytes{};
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0x8a9136aau);
  bytes.fill(0xff);
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0x46dd794eu);
  std::iota(bytes.rbegin(), bytes.rend(), static_cast<unsigned char>(0));
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c("", 0), 0u);
}

TEST(Crc32c, PartsGiveTheSumOfTheWhole) {
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i + 7 * i);
  const auto whole = crc32c(text.data(), text.size());
  for (const std::size_t cut : {0u, 1u, 7u, 8u, 9u, 500u, 999u, 1000u})
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)), whole) << cut;
}

TEST(Log, HandsMessagesToTheCallback) {
  std::vector<std::string> heard;
  log(LogLevel::info, "nobody hears this");
  set_log_callback([&](LogLevel level, std::string_view text) {
    heard.push_back(std::string(name(level)) + ":" + std::string(text));
  });
  log(LogLevel::warning, "w");
  log(LogLevel::debug, "d");
  set_log_callback([](LogLevel, std::string_view) { throw 1; });
  log(LogLevel::error, "what the callback throws is dropped");
  set_log_callback({});
  log(LogLevel::error, "dropped");
  EXPECT_THAT(heard, ElementsAre("warning:w", "debug:d"));
}

TEST(ThreadsLog, CallsDoNotOverlap) {
  int count = 0;  // not atomic
  set_log_callback([&](LogLevel, std::string_view) { ++count; });
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) log(LogLevel::info, "x");
    });
  threads.clear();
  set_log_callback({});
  EXPECT_EQ(count, 4000);
}

TEST_F(AtomicFileTest, ReplacesAWholeFileAndKeepsItsMode) {
  write_file(path("a"), "one");
  ::chmod(path("a").c_str(), 0640);
  write_file(path("a"), "two");
  EXPECT_EQ(read_file(path("a")), "two");
  struct stat status {};
  ASSERT_EQ(::stat(path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777u, 0640u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  write_file(path("a"), "one");
  { AtomicFile(path("a")).write("two"); }
  EXPECT_EQ(read_file(path("a")), "one");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, TakesOverWhatAKilledWriterLeft) {
  write_file(path("a.tmp"), "a long rest of a file that was never finished");
  write_file(path("a"), "new");
  EXPECT_EQ(read_file(path("a")), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, FollowsLinks) {
  write_file(path("a"), "one");
  std::filesystem::create_symlink("a", path("link"));
  write_file(path("link"), "two");
  EXPECT_EQ(read_file(path("a")), "two");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
}

TEST_F(AtomicFileTest, RefusesASecondWriter) {
  AtomicFile first(path("a"));
  EXPECT_THROW(AtomicFile(path("a")), SystemError);
  first.write("1");
  first.commit();
  EXPECT_EQ(read_file(path("a")), "1");
  EXPECT_THROW(first.commit(), ArgumentError);
}

TEST_F(AtomicFileTest, NamesWhyAPlaceCannotBeWritten) {
  EXPECT_THROW(write_file(path("none/a"), "x"), FileError);
  EXPECT_THROW(write_file(folder_.string(), "x"), FileError);
  EXPECT_THROW(write_file("", "x"), FileError);
  try {
    write_file(path("none/a"), "x");
  } catch (const FileError& error) {
    EXPECT_EQ(error.path(), path("none/a"));
    EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
  }
}

TEST_F(AtomicFileTest, AFullDiskIsASystemError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THROW(write_file("/dev/full", "x"), SystemError);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(AtomicFileTest, ReadRefusesWhatIsNotAFile) {
  EXPECT_THROW((void)read_file(path("none")), FileError);
  EXPECT_THROW((void)read_file(folder_.string()), FileError);
  write_file(path("a"), "12345");
  EXPECT_THROW((void)read_file(path("a"), 4), FileError);
  EXPECT_EQ(read_file(path("a"), 5), "12345");
}

}  // namespace
}  // namespace fq::io_basics_test
