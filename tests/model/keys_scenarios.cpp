#include "explorations.hpp"

#include <infiniband/verbs.h>

#include "memory/key_table.hpp"

namespace model {
namespace {

using softverbs::key_error;
using softverbs::key_table;

constexpr unsigned access = IBV_ACCESS_LOCAL_WRITE;
constexpr std::uint64_t length = 8;

/// A region of memory, its key, and threads that reach it by the key.
struct region : scenario {
  key_table table{2};
  const std::uint32_t key = table.allocate();
  std::byte memory[2][length];  ///< the first grant's and the second one's
  data<unsigned> bytes[4];      ///< in `memory`: one for each user

  region() {
    name(*table.slot_of(key), "slot", {"key", "pins", "windows"});
    name(table, "table", {"fresh_", "mutex_"});
    name(bytes, "bytes");
    check(grant(key, 0), "a new key is granted");
  }
  bool grant(std::uint32_t of, unsigned to) {
    return table.grant(of, {.access = access, .base = memory[to], .length = length});
  }
  /// Writes by a key. False: the key is dead.
  bool use(std::uint32_t by, unsigned granted, data<unsigned>& to) {
    softverbs::pinned pin;
    const key_error error = table.pin(by, nullptr, 0, access, 0, length, pin);
    check(error == key_error::none || error == key_error::no_such_key, "rights do not change");
    if (error != key_error::none) return false;
    check(pin.address() == memory[granted], "a key reaches its own memory");
    to = 1;
    return true;
  }
};

/// An owner revokes a key, and grants its slot's next key to other memory.
struct owner_and_user : region {
  void run(unsigned thread) override {
    if (thread == 0) {
      table.revoke(key);
      bytes[0] = 0;
      check(grant(key + 1, 1), "the slot has no live key");
    } else if (use(key, 0, bytes[0])) {
      static_cast<void>(use(key + 1, 1, bytes[1]));
    }
  }
  void end() override {
    check(!use(key, 0, bytes[0]), "a revoked key is dead for ever");
    check(use(key + 1, 1, bytes[1]), "the next key is live");
    table.free(key);
    check(!use(key + 1, 1, bytes[1]), "a freed key is dead");
  }
};

/// Two threads revoke one key, while others use it.
template <unsigned Users>
struct revokers_and_users : region {
  void run(unsigned thread) override {
    if (thread > 1) {
      static_cast<void>(use(key, 0, bytes[thread - 2]));
      return;
    }
    table.revoke(key);
    for (unsigned user = 0; user < Users; ++user)
      check(bytes[user] <= 1, "the memory is the program's own");
  }
  void end() override { check(!use(key, 0, bytes[0]), "a revoked key is dead for ever"); }
};

}  // namespace

std::vector<exploration> explorations_of_keys() {
  return {
      {"keys, owner and user",
       {.threads = 2, .preemptions = 6, .stale_reads = 4},
       10'000,
       explore<owner_and_user>},
      {"keys, two revoke and one uses",
       {.threads = 3, .preemptions = 3, .stale_reads = 1},
       20'000,
       explore<revokers_and_users<1>>},
      {"keys, two revoke and two use",
       {.threads = 4, .random_runs = 1},
       0,
       explore<revokers_and_users<2>>},
  };
}

}  // namespace model
