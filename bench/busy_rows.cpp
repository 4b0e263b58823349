#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakequant/bench/row.h"
#include "fakequant/core/detail/check.h"

namespace fq::bench {
namespace {

namespace fs = std::filesystem;

/// Starts processes that keep every core busy until the object is destroyed.
class BusyMachine {
 public:
  explicit BusyMachine(int processes) {
    for (int i = 0; i < processes; ++i) processes_.push_back(start());
  }
  ~BusyMachine() {
    for (const pid_t process : processes_) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
  }
  BusyMachine(const BusyMachine&) = delete;  // the processes are its own

 private:
  static pid_t start() {
    const pid_t process = fork();
    FQ_CHECK(process >= 0, "bench", "no process can be started{}", "");
    if (process > 0) return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::atomic<unsigned> n = 0;; n.fetch_add(1, std::memory_order_relaxed)) {
    }
  }

  std::vector<pid_t> processes_;
};

/// The command beside this program, in a folder of its own, with its threads waiting as it chooses itself or
/// as OMP_WAIT_POLICY says.
class Command {
 public:
  Command() : folder_(fs::temp_directory_path() / ("fakequant-busy-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Command() { fs::remove_all(folder_); }
  Command(const Command&) = delete;  // the folder is its own

  void run(std::vector<std::string> words, const char* policy) const {
    words.insert(words.begin(), (fs::read_symlink("/proc/self/exe").parent_path() / "fakequant").string());
    const pid_t process = fork();
    FQ_CHECK(process >= 0, "bench", "no process can be started{}", "");
    if (process == 0) become(words, policy);
    int status = 0;
    waitpid(process, &status, 0);
    FQ_CHECK(status == 0, "bench", "{} {} ended with status {}", words[0], words[1], status);
  }
  [[nodiscard]] std::string file(const char* name) const { return (folder_ / name).string(); }

 private:
  [[noreturn]] static void become(const std::vector<std::string>& words, const char* policy) {
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"}) unsetenv(name);
    if (policy != nullptr) setenv("OMP_WAIT_POLICY", policy, 1);
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(127);  // ours is for the results
    execv(arguments[0], arguments.data());
    _exit(127);
  }

  fs::path folder_;
};

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::vector<Row> busy_rows() {
  Row row{"busy.mlp.default/passive", "ms", Clock::wall, false, {}};
  row.make = [](const Settings&) {
    const auto command = std::make_shared<Command>();
    const std::string data = fs::absolute("data/digits.h5").string();
    command->run({"train", "-m", "mlp", "-d", data, "-o", command->file("float.h5"), "-e", "1"}, nullptr);
    command->run({"calibrate", "--checkpoint", command->file("float.h5"), "-d", data, "--preset", "int8",
                  "-o", command->file("int8.h5")},
                 nullptr);
    const auto busy = std::make_shared<BusyMachine>(2);
    const auto side = [=](const char* policy) {
      return Side{{}, [=] {
                    static_cast<void>(busy);
                    return 1e3 * seconds([&] {
                             command->run({"qat", command->file("int8.h5"), "-d", data, "-o",
                                           command->file("qat.h5"), "-e", "3"},
                                          policy);
                           });
                  }};
    };
    Work work;
    work.ours = side(nullptr);
    work.theirs = side("passive");
    work.units_per_second = 1;
    return work;
  };
  return {row};
}

}  // namespace fq::bench
