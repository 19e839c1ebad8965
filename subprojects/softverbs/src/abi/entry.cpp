#include "abi/entry.hpp"

#include "node/node.hpp"
#include "object/context.hpp"

#include <cerrno>

namespace softverbs::entry {

namespace {

/// The number of calls before the failing one (upper half) and its error (lower half). 0: no fault.
constinit std::array<std::atomic<std::uint64_t>, verbs.size()> faults{};
constexpr unsigned calls_shift = 32;

int due_fault(std::atomic<std::uint64_t>& fault) noexcept {
  std::uint64_t now = fault.load();
  while (now != 0) {
    const std::uint64_t one_call = std::uint64_t{1} << calls_shift;
    const bool due = now < 2 * one_call;
    if (fault.compare_exchange_weak(now, due ? 0 : now - one_call))
      return due ? static_cast<int>(now & (one_call - 1)) : 0;
  }
  return 0;
}

constexpr bool ends_object(std::string_view verb) noexcept {
  return verb.starts_with("ibv_close_") || verb.starts_with("ibv_dealloc_") ||
         verb.starts_with("ibv_dereg_") || verb.starts_with("ibv_destroy_");
}

/// Tells the simulation of a call. Returns the error with which the verb fails there.
int refusal_of_simulation(std::string_view verb, ibv_context* ctx) noexcept {
  simulated_host* const host =
      ctx != nullptr ? soft(ctx).local_node->simulated() : simulated_host::current();
  if (host == nullptr) return 0;
  const int error = host->on_call(verb.data(), ctx);  // A literal: it ends with a null.
  return ends_object(verb) ? 0 : error;
}

}  // namespace

bool orphaned(ibv_context* ctx) noexcept {
  return ctx != nullptr && soft(ctx).local_node->abandoned();
}

int refusal(verb_name verb, ibv_context* ctx) noexcept {
  if (orphaned(ctx)) return EIO;
  if (const int error = refusal_of_simulation(verbs[verb.index], ctx)) return error;
  return due_fault(faults[verb.index]);
}

void fail_call(std::size_t verb, unsigned nth, int error) noexcept {
  faults[verb].store(std::uint64_t{nth} << calls_shift | static_cast<std::uint32_t>(error));
  needs_checks.store(true);
}

void fail_no_call() noexcept {
  // `needs_checks` stays set: a fork may have set it.
  for (auto& fault : faults) fault.store(0);
}

}  // namespace softverbs::entry
