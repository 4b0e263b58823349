#include "fakequant/core/error.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/log.h"

namespace fq::error_test {
namespace {

const std::string kFromAFile = "a file of c\nd\x1b\xff\n";
const std::string kShown = "a file of c?d\\x1b\\xff?";

template <class E, class... Arguments>
std::string what(const Arguments&... arguments) {
  return E(arguments..., kFromAFile).what();
}

TEST(Errors, AreOneLineForAnyName) {
  EXPECT_EQ(what<Error>(), kShown);
  EXPECT_EQ(what<ArgumentError>(), kShown);
  EXPECT_EQ((what<FileError, std::string, std::string>("net.h5", "a\nb")), kShown);
  EXPECT_EQ(FileError("net.h5", "a\nb", "").dataset(), "a\nb");
  EXPECT_EQ(what<NumericError>(), kShown);
  EXPECT_EQ(what<BackendError>(), kShown);
}

TEST(Errors, AreLoggedAsLines) {
  std::string seen;
  set_log_callback([&](LogLevel, std::string_view message) { seen = message; });
  log(LogLevel::warning, kFromAFile);
  set_log_callback({});
  EXPECT_EQ(seen, kShown);
}

TEST(Errors, AreNotLoggedByQuietThreads) {
  std::string seen;
  set_log_callback([&](LogLevel, std::string_view message) { seen += message; });
  {
    const QuietLog quiet, twice;
    log(LogLevel::warning, "a");
    std::jthread([] { log(LogLevel::warning, "b"); }).join();
  }
  log(LogLevel::warning, "c");
  set_log_callback({});
  EXPECT_EQ(seen, "bc");
}

}  // namespace
}  // namespace fq::error_test
