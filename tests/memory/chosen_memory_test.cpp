#include "memory/chosen_memory.hpp"

#include "support/outcome.hpp"

#include <cordma/memory/local_mr.hpp>

#include <sys/mman.h>
#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <string>

using namespace cordma;

namespace {

constexpr std::size_t page_bytes = 4096;

void keep(memory_block& /*block*/, void* /*context*/) noexcept {}

/// A block that stands for registered memory, and a slice of it.
struct registered {
  explicit registered(memory_block::rights rights = verbs::access::local_write)
      : block{memory_block::make(
            {.pd = pd, .granted = rights, .on_release = &keep, .context = {}})},
        slice{bytes.data(), bytes.size(), 1, block} {}
  ~registered() {
    block.release();
    memory_block::recycle(block);
  }
  registered(const registered&) = delete;

  static inline ibv_pd* const pd = reinterpret_cast<ibv_pd*>(page_bytes);
  std::array<std::byte, 64> bytes{};
  memory_block& block;
  local_mr_slice slice;
};

}  // namespace

TEST_CASE("memory with room for a message is filled from its start, and is not kept", "[memory]") {
  registered r;
  const std::array<std::byte, 3> message{std::byte{1}, std::byte{2}, std::byte{3}};
  const local_mr_slice part = detail::part_to_fill(r.slice, 3, registered::pd, "test");
  CHECK(part.bytes().data() == r.bytes.data());
  CHECK(part.size_bytes() == 3);
  detail::copy_into(part, message);
  CHECK(r.bytes[2] == std::byte{3});
  CHECK(r.bytes[3] == std::byte{0});
  CHECK(r.block.holders() == 1);
  detail::copy_into(detail::part_to_fill({}, 0, registered::pd, "test"), {});
}

TEST_CASE("memory that a message does not fit is refused, and the reason named", "[memory]") {
  registered r;
  registered read_only{verbs::access::none};
  const auto why = [](const local_mr_slice& chosen, std::size_t length, const ibv_pd* pd) {
    return test::failure_of(
        [&] { static_cast<void>(detail::part_to_fill(chosen, length, pd, "test")); });
  };
  const failure little = why(r.slice, 65, registered::pd);
  CHECK(little.code == errc::wrong_length);
  CHECK(std::string{little.call} == "test");
  CHECK_THAT(std::string{little.detail.view()}, Catch::Contains("64 bytes for a message of 65"));
  CHECK(why({}, 1, registered::pd).code == errc::wrong_length);
  CHECK(why(r.slice, 64, nullptr).code == errc::wrong_protection_domain);
  CHECK(why(read_only.slice, 64, registered::pd).code == errc::access_denied);
  CHECK(r.block.revoke(r.slice.generation()));
  CHECK(why(r.slice, 64, registered::pd).code == errc::stale_slice);
  CHECK(r.block.holders() == 1);
}

TEST_CASE("memory that only the device may touch is filled if it is there, or an error says so",
          "[memory]") {
  void* const at =
      ::mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(at);
  registered r{{verbs::access::local_write, true}};
  const local_mr_slice here{bytes, 16, 1, r.block}, gone{bytes + page_bytes, 16, 1, r.block};
  const std::array<std::byte, 16> message{std::byte{7}};
  REQUIRE(::munmap(bytes + page_bytes, page_bytes) == 0);
  detail::copy_into(here, message);
  CHECK(bytes[0] == std::byte{7});
  CHECK(test::failure_of([&] { detail::copy_into(gone, message); }).code == std::errc::bad_address);
  CHECK(::munmap(bytes, page_bytes) == 0);
}
