#include "node/own_addresses.hpp"

#include "link/ip_address.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace softverbs;
using namespace std::chrono_literals;

namespace {

constexpr own_addresses::time start{std::chrono::hours{1}};

int reads = 0;
std::vector<ibv_gid> system_list;

std::vector<ibv_gid> read_list() {
  ++reads;
  return system_list;
}

ibv_gid address(std::uint8_t n) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, n}};
}

}  // namespace

TEST_CASE("the addresses of the host are read once a second", "[node]") {
  reads = 0;
  system_list = {address(1)};
  own_addresses ours{&read_list};
  for (int n = 0; n < 100; ++n) {
    CHECK(ours.has(address(1), start + n * 1ms));
    CHECK_FALSE(ours.has(address(2), start + n * 1ms));
  }
  CHECK(reads == 1);
  system_list = {address(2)};
  CHECK(ours.has(address(1), start + 1s - 1ns));
  CHECK(reads == 1);
  CHECK_FALSE(ours.has(address(1), start + 1s));
  CHECK(ours.has(address(2), start + 1s));
  CHECK(reads == 2);
  system_list.clear();  // The system fails.
  CHECK(ours.has(address(2), start + 2s));
  CHECK(reads == 3);
}

TEST_CASE("loopback addresses are the host's, and so is the address zero", "[node]") {
  own_addresses ours{&read_list};
  CHECK(ours.has(ibv_gid{}, start));
  CHECK(ours.has(mapped<ibv_gid>({htonl(INADDR_LOOPBACK)}), start));
}

TEST_CASE("the system's list has the addresses of the GID table", "[node]") {
  own_addresses ours;
  for (int n = 0; n < gid_count(); ++n) CHECK(ours.has(gid_at(n), start));
}
