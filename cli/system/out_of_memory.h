#pragma once

/// What a process without memory ends with.

namespace fq::cli {

/// The message of a command that ran out of memory.
[[nodiscard]] const char* out_of_memory_message() noexcept;
/// Says that the command has --batch, which the message then names.
void advise_smaller_batch() noexcept;

/// That line, by what needs no memory.
void complain_of_memory() noexcept;

/// From now on a std::bad_alloc that nobody can catch, as one out of a destructor (nlohmann::json's take
/// memory), ends the process with exit status 1 and that line in place of an abort.
void end_without_memory() noexcept;
/// Whether memory was asked for since then that was not given: what fails may fail for that, as streams end
/// where it does and say nothing.
[[nodiscard]] bool ran_out_of_memory() noexcept;

}  // namespace fq::cli
