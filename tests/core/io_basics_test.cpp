#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/locks/file_lock.h"
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
TEST(Crc32c, MatchesTheVectorsOfRfc3720) {
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

TEST(Crc32c, PartsMatchTheWhole) {
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i + 7 * i);
  const auto whole = crc32c(text.data(), text.size());
  for (const std::size_t cut : {0u, 1u, 7u, 8u, 9u, 500u, 999u, 1000u}) {
    const auto first = crc32c(text.data(), cut), second = crc32c(text.data() + cut, text.size() - cut);
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, first), whole) << cut;
    EXPECT_EQ(crc32c_joined(first, second, text.size() - cut), whole) << cut;
  }
}

TEST(Log, PassesMessagesToTheCallback) {
  std::vector<std::string> heard;
  log(LogLevel::info, "nobody hears this");
  set_log_callback([&](LogLevel level, std::string_view text) {
    heard.push_back(std::string(name(level)) + ":" + std::string(text));
  });
  log(LogLevel::warning, "w");
  log(LogLevel::debug, "d");
  set_log_callback([](LogLevel, std::string_view) { throw 1; });
  log(LogLevel::error, "exceptions of the callback are ignored");
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

TEST_F(AtomicFileTest, ReplacesAFileAndKeepsItsMode) {
  write_file(path("a"), "one");
  ::chmod(path("a").c_str(), 0640);
  write_file(path("a"), "two");
  EXPECT_EQ(read_file(path("a")), "two");
  struct stat status {};
  ASSERT_EQ(::stat(path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777u, 0640u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, ChangesNothingWithoutCommit) {
  write_file(path("a"), "one");
  { AtomicFile(path("a")).write("two"); }
  EXPECT_EQ(read_file(path("a")), "one");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, RemovesOnlyFilesOfAKilledWriter) {
  write_file(path("a.tmp"), "a user's own");
  write_file(path(".a.fakequant-k1ll3d"), "a file that was never finished");
  write_file(path(".a.fakequant-longer-than-ours"), "a user's own");
  write_file(path(".ab.fakequant-k1ll3d"), "of another file");
  ASSERT_EQ(::mkfifo(path(".a.fakequant-fifo00").c_str(), 0600), 0);  // opened, it would wait for a writer
  write_file(path("a"), "new");
  EXPECT_EQ(read_file(path("a")), "new");
  EXPECT_EQ(read_file(path("a.tmp")), "a user's own");
  EXPECT_FALSE(std::filesystem::exists(path(".a.fakequant-k1ll3d")));
  EXPECT_EQ(files(), 5u);
}

TEST_F(AtomicFileTest, KeepsTheOldFileIfTheWriterIsKilled) {
  write_file(path("a"), "old");
  const auto child = ::fork();
  if (child == 0) {
    AtomicFile file(path("a"));
    file.write("half of the");
    ::_exit(0);  // no destructor runs
  }
  ASSERT_GT(child, 0);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(read_file(path("a")), "old");
  EXPECT_EQ(files(), 2u);
  write_file(path("a"), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, AcceptsNamesOfAnyLength) {
  const std::string name(255, 'x'), other = std::string(254, 'x') + "y";
  AtomicFile file(path(name)), neighbour(path(other));
  write_file(path(std::string(255, 'z')), "");
  file.commit();
  neighbour.commit();
  EXPECT_EQ(files(), 3u);
  EXPECT_THROW(write_file(path(name + "x"), ""), FileError);
}

TEST_F(AtomicFileTest, CommitsSeveralFilesTogether) {
  write_file(path("a"), "old");
  {
    AtomicFile a(path("a")), b(path("b"));
    a.write("new a");
    b.write("new b");
    EXPECT_EQ(read_file(path("a")), "old");
    commit_together({a, b});
  }
  EXPECT_EQ(read_file(path("a")), "new a");
  EXPECT_EQ(read_file(path("b")), "new b");
  EXPECT_EQ(files(), 2u);
}

TEST_F(AtomicFileTest, CheckingAPathDoesNotChangeIt) {
  write_file(path("a"), "one");
  check_writable(path("a"));
  check_writable(path("b"));
  check_writable("/dev/null");
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  check_writable(path("fifo"));  // opened, it would wait for a reader
  EXPECT_EQ(read_file(path("a")), "one");
  EXPECT_EQ(files(), 2u);
  for (const auto& place : {path("none/a"), folder_.string(), std::string(), path(""), path("a/b")})
    EXPECT_THROW(check_writable(place), FileError) << place;
  std::filesystem::create_symlink("loop", path("loop"));
  EXPECT_THROW(check_writable(path("loop")), FileError);
}

TEST_F(AtomicFileTest, CheckAcceptsAFileInProgress) {
  const AtomicFile writing(path("a"));
  check_writable(path("a"));
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, CheckFindsASizeLimit) {
  ::rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const ::rlimit small{1024, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(check_writable(path("a")), SystemError);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(files(), 0u);
}

TEST_F(AtomicFileTest, DoesNotReplaceAReadOnlyFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is read-only to root";
  write_file(path("a"), "one");
  ::chmod(path("a").c_str(), 0400);
  EXPECT_THROW(write_file(path("a"), "two"), FileError);
  EXPECT_EQ(read_file(path("a")), "one");
}

TEST_F(AtomicFileTest, FollowsLinks) {
  write_file(path("a"), "one");
  std::filesystem::create_symlink("a", path("link"));
  write_file(path("link"), "two");
  EXPECT_EQ(read_file(path("a")), "two");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  std::filesystem::create_symlink("new", path("ahead"));
  write_file(path("ahead"), "three");
  EXPECT_EQ(read_file(path("new")), "three");
  EXPECT_TRUE(std::filesystem::is_symlink(path("ahead")));
}

TEST_F(AtomicFileTest, RejectsASecondWriter) {
  AtomicFile first(path("a"));
  EXPECT_THROW(AtomicFile(path("a")), SystemError);
  first.write("1");
  first.commit();
  EXPECT_EQ(read_file(path("a")), "1");
  EXPECT_THROW(first.commit(), ArgumentError);
}

TEST_F(AtomicFileTest, ReportsWhyAPathIsNotWritable) {
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

TEST_F(AtomicFileTest, ReportsAFullDiskAsSystemError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THROW(write_file("/dev/full", "x"), SystemError);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(AtomicFileTest, LockHasOneOwnerAndLeavesNoFile) {
  std::vector<int> order;
  std::atomic<bool> held = false;
  std::jthread other;
  {
    const FileLock lock(path("a"), [](const auto&) { FAIL() << "it is free"; });
    other = std::jthread([&] {
      const FileLock waits(path("a"), [&](const auto& owner) {
        EXPECT_THAT(owner, HasSubstr("process " + std::to_string(::getpid()) + " on "));
        held = true;
      });
      order.push_back(2);
    });
    while (!held) std::this_thread::yield();
    order.push_back(1);
  }
  other.join();
  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_EQ(files(), 0u);
  const FileLock lock(path("a"), [](const auto&) {});
  EXPECT_THROW(FileLock(path("a"), [](const auto&) { throw std::runtime_error("enough"); }),
               std::runtime_error);
}

TEST_F(AtomicFileTest, LockRequiresAFile) {
  write_file(path(".a.fakequant-lock"), "");  // of a killed process
  {
    const FileLock lock(path("a"), [](const auto&) { FAIL(); });
  }
  EXPECT_EQ(files(), 0u);
  ASSERT_EQ(::mkfifo(path(".a.fakequant-lock").c_str(), 0600), 0);
  EXPECT_THROW(FileLock(path("a"), [](const auto&) {}), FileError);
  EXPECT_THROW(FileLock(path("none/a"), [](const auto&) {}), FileError);
}

TEST_F(AtomicFileTest, ReadRejectsNonFiles) {
  EXPECT_THROW((void)read_file(path("none")), FileError);
  EXPECT_THROW((void)read_file(folder_.string()), FileError);
  write_file(path("a"), "12345");
  EXPECT_THROW((void)read_file(path("a"), 4), FileError);
  EXPECT_EQ(read_file(path("a"), 5), "12345");
}

}  // namespace
}  // namespace fq::io_basics_test
