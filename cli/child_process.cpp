#include "fakequant/cli/child_process.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakequant/core/check.h"

namespace fq::cli {
namespace {

/// What the child's first three files are.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;  // owns the list
  FileActions& operator=(const FileActions&) = delete;

  void open(int number, const std::string& path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, number, path.c_str(), flags, 0600);
  }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

int run_program(const std::vector<std::string>& words, const std::string& output_file,
                const std::string& error_file) {
  FileActions actions;
  actions.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  actions.open(STDOUT_FILENO, output_file, O_WRONLY | O_CREAT | O_TRUNC);
  actions.open(STDERR_FILENO, error_file, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], actions.get(), nullptr, arguments.data(), environ);
  FQ_CHECK(error == 0, "run_program", "'{}' cannot be started: {}: install it, or name another", words[0],
           std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw SystemError(fmt::format("[run_program] '{}' is lost", words[0]));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace fq::cli
