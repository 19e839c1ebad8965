#pragma once

#include "agent/agent.hpp"
#include "queue/callback_queue_pair.hpp"
#include "request/queue_pair.hpp"
#include "support/loopback.hpp"

#include <cordma/agent/agent_options.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/detail/memory/memory_block.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/runtime/runtime.hpp>

#include <cstddef>
#include <ostream>

namespace cordma::test {

/// The resources that are held now, to compare and to print:
/// `CHECK(held_by(*link.a, block) == nothing)`, `CHECK(held_by(*link.a) == held{.slots = 2})`.
struct held {
  std::size_t slots = 0;            ///< Work requests that queue pairs have.
  std::size_t block_uses = 0;       ///< References to memory blocks, without their owner's.
  std::size_t memory_bytes = 0;     ///< Bytes of allocators, in use.
  std::size_t receives_held = 0;    ///< Buffers of a pool that hold a queue pair's messages.
  std::size_t receive_credits = 0;  ///< Credits that a pool promised to its queue pairs.
  std::size_t leases = 0;           ///< Open leases, lent to peers.
  std::size_t bytes_lent = 0;
  std::size_t borrowed = 0;  ///< Leases of peers' memory.
  std::size_t stranded = 0;  ///< Loans whose access the device would not end.

  bool operator==(const held&) const = default;
  friend std::ostream& operator<<(std::ostream& to, const held& h) {
    const char* separator = "";
    const auto say = [&](std::size_t count, const char* of_what) {
      if (count == 0) return;
      to << separator << count << ' ' << of_what;
      separator = ", ";
    };
    say(h.slots, "slots");
    say(h.block_uses, "uses of memory blocks");
    say(h.memory_bytes, "bytes of memory");
    say(h.receives_held, "receives");
    say(h.receive_credits, "receive credits");
    say(h.leases, "leases");
    say(h.bytes_lent, "bytes lent");
    say(h.borrowed, "leases borrowed");
    say(h.stranded, "loans stranded");
    return *separator == '\0' ? to << "nothing" : to;
  }

  void add(callback_queue_pair& qp) {
    slots += qp.slots_in_use();
    if (qp.share() != nullptr) receives_held += qp.share()->held();
  }
  void add(const loopback& link) {
    if (link.a != nullptr) add(*link.a);
    if (link.b != nullptr) add(*link.b);
  }
  void add(const memory_block& block) { block_uses += block.holders() - 1; }
  void add(const local_mr& memory) { add(*memory.slice().block()); }
  void add(const mr_allocator& memory) { memory_bytes += memory.statistics().in_use_bytes; }
  void add(const shared_receives& pool) { receive_credits += pool.promised(); }
  void add(const lending_counters& lending) {
    leases += lending.open;
    bytes_lent += lending.bytes_lent;
    borrowed += lending.borrowed;
    stranded += lending.stranded;
  }
  void add(const agent& of) { add(of.context.counters); }
  void add(const connection& of) { add(of.lending()); }
  void add(runtime& of) { add(of.memory()); }
};

inline constexpr held nothing{};

/// Adds up what all `parts` hold.
template <class... Parts>
held held_by(Parts&&... parts) {
  held all;
  (all.add(parts), ...);
  return all;
}

}  // namespace cordma::test
