#include "fakequant/cli/system/out_of_memory.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <new>

#include <unistd.h>

namespace fq::cli {
namespace {

std::terminate_handler handler_before = nullptr;
std::atomic<bool> ran_out{false}, has_batch{false};

void run_out() {
  ran_out = true;
  throw std::bad_alloc();
}

[[noreturn]] void end_for_memory() {
  complain_of_memory();
  ::_exit(1);
}

[[noreturn]] void end_uncaught() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
    if (ran_out) end_for_memory();  // g++ 12 comes here out of an inlined destructor with no exception
  } catch (const std::bad_alloc&) {
    end_for_memory();
  } catch (...) {
  }
  handler_before();
  ::_exit(1);
}

}  // namespace

bool ran_out_of_memory() noexcept { return ran_out; }

const char* out_of_memory_message() noexcept {
  return has_batch ? "[fakequant] out of memory: use a smaller --batch" : "[fakequant] out of memory";
}

void advise_smaller_batch() noexcept { has_batch = true; }

void complain_of_memory() noexcept { std::fprintf(stderr, "fakequant: %s\n", out_of_memory_message()); }

void end_without_memory() noexcept {
  std::set_new_handler(run_out);
  handler_before = std::set_terminate(end_uncaught);
}

}  // namespace fq::cli
