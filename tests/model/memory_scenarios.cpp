#include "explorations.hpp"

#include <cordma/detail/memory/memory_block.hpp>

#include <memory>

#include "memory/bytes_in_use.hpp"

// In place of the slab's blocks, which outlive a run.
cordma::memory_block& cordma::memory_block::adopt(const kind& of) {
  auto* const made = new memory_block;
  made->kind_ = of;
  return *made;
}

namespace model {
namespace {

using cordma::bytes_in_use;
using cordma::memory_block;

/// An owner lends slices of its memory to other threads, and frees it. The last one to release ends
/// the generation, and begins the next one, as an allocator does.
struct owner_and_holders : scenario {
  static constexpr int freed = -1;
  data<int> bytes;
  memory_block& block = memory_block::adopt({nullptr, {}, &owner_and_holders::on_release, this});
  atomic<bool> is_lent{false};
  unsigned ended = 0;

  owner_and_holders() {
    name(bytes, "bytes");
    name(block, "block", {"word_"});
    name(is_lent, "is_lent");
  }
  ~owner_and_holders() override { delete &block; }

  void run(unsigned thread) override {
    if (thread == 0) {
      bytes = 1;
      block.begin(nullptr, 0);
      // Relaxed, so that the block alone orders what its holders see.
      is_lent.store(true, std::memory_order_relaxed);
      return block.give_up();
    }
    if (!is_lent.load(std::memory_order_relaxed) || !block.try_acquire(0)) return;
    check(bytes == 1, "a holder sees what the owner wrote");
    block.release();
  }
  static void on_release(memory_block& ending, void* context) noexcept {
    auto& of = *static_cast<owner_and_holders*>(context);
    of.bytes = freed;
    ++of.ended;
    if (ending.generation() == 1) ending.begin(nullptr, 0);
  }
  void end() override {
    check(ended == 1, "a generation ends once");
    check(block.generation() == 1 && block.holders() == 1, "the next generation has its owner");
    block.give_up();
    check(!block.try_acquire(0) && !block.try_acquire(1), "slices are stale for ever");
  }
};

/// Memory that one thread revokes while another acquires.
struct revoked : scenario {
  data<int> bytes{1};
  memory_block& block = memory_block::adopt({nullptr, {}, &revoked::on_release, nullptr});

  revoked() {
    name(bytes, "bytes");
    name(block, "block", {"word_"});
    block.begin(nullptr, 0);
  }
  ~revoked() override { delete &block; }
  void run(unsigned thread) override {
    if (thread == 0) {
      check(block.revoke(0), "the first revocation finds the generation");
      check(!block.revoke(0), "a second one does not");
      check(!block.try_acquire(0), "nobody acquires what was revoked");
    } else if (block.try_acquire(0)) {
      check(bytes == 1, "the memory is there");
      block.release();
    }
  }
  static void on_release(memory_block& /*ending*/, void* /*context*/) noexcept {
    check(false, "the owner has not released");
  }
  void end() override { check(block.holders() == 1, "the owner is left"); }
};

/// A thread frees what another one allocated; a third one destroys all once nothing is in use.
template <bool IsShared>
struct bytes_counted : scenario {
  struct counts {
    bytes_in_use allocated, freed;
  };
  static constexpr unsigned users = IsShared ? 2 : 1;
  std::unique_ptr<counts> all = std::make_unique<counts>();
  data<int> bytes[2];

  bytes_counted() {
    name(*all, "counts", {"allocated", "freed"});
    name(bytes, "bytes");
    all->allocated.add(std::ptrdiff_t{8} * users);
  }
  void run(unsigned thread) override {
    if (thread < users) {
      bytes[thread] = 1;
      return IsShared ? all->freed.add_shared(-8) : all->freed.add(-8);
    }
    if (all->allocated.value() + all->freed.value() != 0) return;
    for (unsigned n = 0; n < users; ++n) check(bytes[n] == 1, "all users have finished");
    all.reset();
  }
};

}  // namespace

std::vector<exploration> explorations_of_memory() {
  return {
      {"memory block, owner and holder", {.threads = 2}, 60, explore<owner_and_holders>},
      {"memory block, owner and two holders", {.threads = 3}, 50'000, explore<owner_and_holders>},
      {"memory block, owner and four holders",
       {.threads = 5, .random_runs = 1},
       0,
       explore<owner_and_holders>},
      {"memory block, revoked", {.threads = 2}, 100, explore<revoked>},
      {"bytes in use", {.threads = 2}, 3, explore<bytes_counted<false>>},
      {"bytes in use, shared", {.threads = 3}, 10, explore<bytes_counted<true>>},
  };
}

}  // namespace model
