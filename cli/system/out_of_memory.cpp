#include "fakequant/cli/system/out_of_memory.h"

#include <cstdio>
#include <exception>
#include <new>

#include <unistd.h>

namespace fq::cli {
namespace {

std::terminate_handler handler_before = nullptr;

[[noreturn]] void end_uncaught() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "fakequant: %s\n", kOutOfMemory);
    ::_exit(1);
  } catch (...) {
  }
  handler_before();
  ::_exit(1);
}

}  // namespace

void end_without_memory() noexcept { handler_before = std::set_terminate(end_uncaught); }

}  // namespace fq::cli
