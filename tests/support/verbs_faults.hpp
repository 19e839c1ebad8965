#pragma once

#include <array>
#include <cstddef>
#include <string>

/// Injects failures, and counts live objects, by interposing libibverbs' setup calls. A test
/// program that is linked with verbs_faults.cpp calls these definitions, and they call the library.
/// Any thread may make verbs calls; a test that tells them to fail knows which one makes the next.
namespace verbs_faults {

enum class kind : std::size_t { device, pd, mr, channel, cq, qp, srq };
inline constexpr std::size_t kind_count = 7;

/// Makes the k-th call from now on (from 1) fail with `errno_value`, and the next ones, `times` in
/// all. Calls that make an object or modify a queue pair count. 0: none fails.
void fail_call(unsigned k, int errno_value, unsigned times = 1) noexcept;
/// The next `count` calls of ibv_dereg_mr fail with EBUSY, as under a bound memory window.
void refuse_deregistrations(unsigned count) noexcept;
/// Calls `f(about)` ahead of the next ibv_modify_qp, in its thread; null: nothing.
void before_next_modify(void (*f)(void* about), void* about) noexcept;
/// Devices opened from now on have no thread domains, or have theirs again.
void hide_thread_domains(bool are_hidden) noexcept;
/// Completion queues made in a parent domain so far.
unsigned queues_in_domains() noexcept;
/// Calls counted since `fail_call`.
unsigned calls_made() noexcept;
/// The name of the call that was made to fail; "" before that.
const char* failed_call() noexcept;

/// Made minus destroyed, by kind. Inline functions of <infiniband/verbs.h> make XRC's targets and
/// receive queues: no count has those, but a domain refuses to close before them.
std::array<long, kind_count> live_objects() noexcept;

/// "device 0, pd 0, ..." for messages.
std::string to_string(const std::array<long, kind_count>& counts);

}  // namespace verbs_faults
