#include "fakequant/train/ranks/communicator.h"

#include <cstdlib>

namespace fq {
namespace {

class OneRank final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  void max(std::span<std::int64_t>) override {}
  void sum(std::span<std::int64_t>) override {}
  [[nodiscard]] std::vector<std::string> gather(const std::string& text) override { return {text}; }
  [[nodiscard]] std::int64_t bytes() const noexcept override { return 0; }
};

}  // namespace

std::shared_ptr<Communicator> one_rank() { return std::make_shared<OneRank>(); }

int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const char* value = std::getenv(name); value != nullptr) return std::atoi(value);
  const char *tasks = std::getenv("SLURM_STEP_NUM_TASKS"), *server = std::getenv("PMIX_RANK");
  return tasks != nullptr && server != nullptr ? std::atoi(tasks) : 1;
}

}  // namespace fq
