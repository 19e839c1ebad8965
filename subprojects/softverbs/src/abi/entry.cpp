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

}  // namespace

bool orphaned(ibv_context* ctx) noexcept {
  return ctx != nullptr && soft(ctx).local_node->abandoned();
}

int refusal(verb_name verb, ibv_context* ctx) noexcept {
  return orphaned(ctx) ? EIO : due_fault(faults[verb.index]);
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
