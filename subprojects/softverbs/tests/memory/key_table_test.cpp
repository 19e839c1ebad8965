#include "memory/key_table.hpp"

#include <infiniband/verbs.h>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <limits>
#include <set>
#include <thread>

namespace softverbs {
namespace {

constexpr unsigned all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
                                IBV_ACCESS_MW_BIND;

/// A table with one region of 64 bytes, which others address from `iova` on.
struct one_region {
  static constexpr std::uint64_t iova = 0x1000;

  one_region() { table.grant(key, grant()); }
  key_grant grant() {
    return {.pd = &pd, .access = all_access, .iova = iova, .base = bytes.data(), .length = 64};
  }
  key_error pin(std::uint32_t with, std::uint64_t address, std::uint64_t length,
                unsigned access = IBV_ACCESS_REMOTE_READ) {
    pinned pin;
    return table.pin(with, &pd, 0, access, address, length, pin);
  }

  std::array<std::byte, 64> bytes{};
  int pd = 0;
  key_table table{8};
  std::uint32_t key = table.allocate();
};

}  // namespace

TEST_CASE("a key leads to the byte that its address means", "[memory]") {
  one_region region;
  pinned pin;
  REQUIRE(region.table.pin(region.key, &region.pd, 0, all_access, one_region::iova + 8, 56, pin) ==
          key_error::none);
  CHECK(pin.address() == &region.bytes[8]);
}

TEST_CASE("a range outside of the grant is refused, also when its end wraps around", "[memory]") {
  constexpr auto top = std::numeric_limits<std::uint64_t>::max();
  one_region region;
  CHECK(region.pin(region.key, one_region::iova, 64) == key_error::none);
  CHECK(region.pin(region.key, one_region::iova + 64, 0) == key_error::none);
  CHECK(region.pin(region.key, one_region::iova, 65) == key_error::out_of_range);
  CHECK(region.pin(region.key, one_region::iova + 65, 0) == key_error::out_of_range);
  CHECK(region.pin(region.key, one_region::iova - 1, 1) == key_error::out_of_range);
  CHECK(region.pin(region.key, one_region::iova + 8, top) == key_error::out_of_range);
  CHECK(region.pin(region.key, one_region::iova + 8, top - one_region::iova) ==
        key_error::out_of_range);
  CHECK(region.pin(region.key, top, 2) == key_error::out_of_range);
}

TEST_CASE("a key that was not given out opens nothing", "[memory]") {
  one_region region;
  for (const std::uint32_t wrong :
       {0u, region.key ^ 1u, region.key + (1u << variant_bits), 9u << variant_bits, ~0u})
    CHECK(region.pin(wrong, one_region::iova, 1) == key_error::no_such_key);
}

TEST_CASE("a key opens its own protection domain and access alone", "[memory]") {
  one_region region;
  int other_pd = 0;
  pinned pin;
  CHECK(region.table.pin(region.key, &other_pd, 0, 0, one_region::iova, 1, pin) ==
        key_error::wrong_pd);
  region.table.revoke(region.key);
  key_grant read_only = region.grant();
  read_only.access = IBV_ACCESS_REMOTE_READ;
  region.table.grant(region.key, read_only);
  CHECK(region.pin(region.key, one_region::iova, 1, 0) == key_error::none);
  CHECK(region.pin(region.key, one_region::iova, 1, IBV_ACCESS_REMOTE_WRITE) ==
        key_error::no_access);
}

TEST_CASE("a type 2 window serves its queue pair alone, and is no local key", "[memory]") {
  one_region region;
  const std::uint32_t window = region.table.allocate();
  key_grant grant = region.grant();
  grant.kind = key_kind::window_type_2;
  grant.access = IBV_ACCESS_REMOTE_READ;
  grant.qpn = 5;
  grant.parent = region.key >> variant_bits;
  region.table.slot_of(region.key)->windows.fetch_add(1);
  region.table.grant(window, grant);
  pinned pin;
  const auto pin_by = [&](std::uint32_t qpn, unsigned access) {
    return region.table.pin(window, &region.pd, qpn, access, one_region::iova, 8, pin);
  };
  CHECK(pin_by(5, IBV_ACCESS_REMOTE_READ) == key_error::none);
  CHECK(pin_by(6, IBV_ACCESS_REMOTE_READ) == key_error::wrong_qp);
  CHECK(pin_by(5, 0) == key_error::no_access);
}

TEST_CASE("a window's slot takes whatever variant the program chose", "[memory]") {
  one_region region;
  const std::uint32_t first = region.table.allocate();
  const std::uint32_t second = (first & ~variant_mask) | ((first + 7) & variant_mask);
  key_slot& parent = *region.table.slot_of(region.key);
  key_grant grant = region.grant();
  grant.kind = key_kind::window_type_1;
  grant.parent = region.key >> variant_bits;
  parent.windows.fetch_add(1);
  region.table.grant(first, grant);
  region.table.revoke(first);
  CHECK(parent.windows.load() == 0);
  parent.windows.fetch_add(1);
  CHECK(region.table.grant(second, grant));
  CHECK_FALSE(region.table.grant(first, grant));  // Another key is live there.
  CHECK(region.pin(first, one_region::iova, 8) == key_error::no_such_key);
  CHECK(region.pin(second, one_region::iova, 8) == key_error::none);
  region.table.revoke(first);  // The key is not live: nothing happens.
  CHECK(region.pin(second, one_region::iova, 8) == key_error::none);
  region.table.free(first);  // The slot identifies the key, whatever key is live.
  CHECK(region.pin(second, one_region::iova, 8) == key_error::no_such_key);
  CHECK(parent.windows.load() == 0);
}

TEST_CASE("a full table has no key; a freed slot gets another key", "[memory]") {
  key_table table{3};
  std::set<std::uint32_t> keys;
  for (int i = 0; i < 3; ++i) keys.insert(table.allocate());
  CHECK(keys.size() == 3);
  CHECK(keys.count(0) == 0);
  CHECK(table.allocate() == 0);
  const std::uint32_t old = *keys.begin();
  table.free(old);
  table.free(old);  // A second call does nothing.
  const std::uint32_t again = table.allocate();
  CHECK(again >> variant_bits == old >> variant_bits);
  CHECK(again != old);
  CHECK(table.allocate() == 0);
}

TEST_CASE("a key that was given back stays invalid for long", "[memory]") {
  key_table table{4 * resting_keys};
  const std::uint32_t old = table.allocate();
  table.free(old);
  for (std::uint32_t i = 0; i + 1 < resting_keys; ++i) {
    const std::uint32_t key = table.allocate();
    REQUIRE(key >> variant_bits != old >> variant_bits);
    table.free(key);
  }
}

TEST_CASE("after a revocation nobody uses the key", "[memory]") {
  one_region region;
  constexpr int rounds = 200;
  std::atomic<bool> granted{true};
  std::atomic<bool> done{false};
  std::atomic<int> violations{0};
  std::array<std::thread, 2> users;
  for (auto& user : users)
    user = std::thread{[&] {
      while (!done.load()) {
        pinned pin;
        if (region.table.pin(region.key, &region.pd, 0, 0, one_region::iova, 8, pin) !=
            key_error::none)
          continue;
        if (!granted.load()) violations.fetch_add(1);
      }
    }};
  std::array<std::thread, 2> revokers;
  for (int round = 0; round < rounds; ++round) {
    for (auto& revoker : revokers) revoker = std::thread{[&] { region.table.revoke(region.key); }};
    for (auto& revoker : revokers) revoker.join();
    granted = false;
    std::this_thread::yield();
    granted = true;
    region.table.grant(region.key, region.grant());
  }
  done = true;
  for (auto& user : users) user.join();
  CHECK(violations.load() == 0);
}

}  // namespace softverbs
