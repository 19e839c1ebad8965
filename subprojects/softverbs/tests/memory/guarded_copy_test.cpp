#include "memory/guarded_copy.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <csignal>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace softverbs {
namespace {

/// Two pages of which nobody can touch the second; nor does anything else come to lie there.
class half_mapped {
 public:
  half_mapped() {
    install_fault_guard();
    void* pages =
        ::mmap(nullptr, 2 * page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    begin_ = static_cast<std::byte*>(pages);
    REQUIRE(::mprotect(begin_ + page(), page(), PROT_NONE) == 0);
  }
  half_mapped(const half_mapped&) = delete;
  half_mapped& operator=(const half_mapped&) = delete;
  ~half_mapped() { ::munmap(begin_, 2 * page()); }

  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  std::byte* end() { return begin_ + page(); }

 private:
  std::byte* begin_;
};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 131 + i / 251);
  return made;
}

}  // namespace

TEST_CASE("all lengths and alignments are copied, and nothing beside them", "[memory]") {
  constexpr std::size_t longest = 1200;
  const auto from = pattern(longest + 16);
  for (std::size_t bytes = 0; bytes <= longest; bytes += bytes < 140 ? 1 : 53)
    for (std::size_t source = 0; source < 8; ++source)
      for (std::size_t sink = 8; sink < 16; ++sink) {
        std::vector<std::byte> to(longest + 32, std::byte{0xee});
        REQUIRE(guarded_copy(to.data() + sink, from.data() + source, bytes));
        auto expected = std::vector<std::byte>(longest + 32, std::byte{0xee});
        std::copy_n(from.data() + source, bytes, expected.data() + sink);
        REQUIRE(to == expected);
      }
}

TEST_CASE("a copy that meets unmapped memory stops and says so", "[memory]") {
  half_mapped memory;
  for (const std::size_t distance : {0u, 1u, 7u, 8u, 40u, 1000u, 1500u}) {
    const auto from = pattern(4000);
    CHECK_FALSE(guarded_copy(memory.end() - distance, from.data(), from.size()));
    auto to = pattern(4000);
    CHECK_FALSE(guarded_copy(to.data(), memory.end() - distance, to.size()));
    CHECK(guarded_copy(memory.end() - distance, from.data(), distance));
  }
}

TEST_CASE("a copy beyond the end of a file stops and says so", "[memory]") {
  install_fault_guard();
  const int file = ::memfd_create("short", MFD_CLOEXEC);
  REQUIRE(file >= 0);
  void* page = ::mmap(nullptr, half_mapped::page(), PROT_READ, MAP_SHARED, file, 0);
  REQUIRE(page != MAP_FAILED);
  std::byte byte;
  CHECK_FALSE(guarded_copy(&byte, page, 1));  // SIGBUS
  ::munmap(page, half_mapped::page());
  ::close(file);
}

TEST_CASE("atomics change the word and tell what it was", "[memory]") {
  alignas(8) std::uint64_t word = 5;
  std::uint64_t previous = 0;
  REQUIRE(guarded_compare_swap(&word, 5, 9, previous));
  CHECK(previous == 5);
  CHECK(word == 9);
  REQUIRE(guarded_compare_swap(&word, 5, 1, previous));
  CHECK(previous == 9);
  CHECK(word == 9);
  REQUIRE(guarded_fetch_add(&word, ~std::uint64_t{0}, previous));
  CHECK(previous == 9);
  CHECK(word == 8);
  half_mapped memory;
  CHECK_FALSE(guarded_compare_swap(memory.end(), 0, 1, previous));
  CHECK_FALSE(guarded_fetch_add(memory.end(), 1, previous));
}

TEST_CASE("aligned words are never torn", "[memory]") {
  constexpr std::size_t words = 512;
  constexpr int copies = 2000;
  std::vector<std::uint64_t> zeros(words, 0), ones(words, ~std::uint64_t{0});
  std::vector<std::atomic<std::uint64_t>> to(words);
  std::thread writer{[&] {
    for (int i = 0; i < copies; ++i)
      if (!guarded_copy(to.data(), (i % 2 == 0 ? ones : zeros).data(), words * 8)) std::abort();
  }};
  int torn = 0;
  for (int i = 0; i < copies; ++i)
    for (const auto& word : to) {
      const std::uint64_t seen = word.load(std::memory_order_relaxed);
      torn += seen != 0 && seen != ~std::uint64_t{0} ? 1 : 0;
    }
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("a fault of the program's own still kills it", "[memory]") {
  install_fault_guard();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(STDOUT_FILENO);  // Catch2 or a sanitizer would report what is meant to happen.
    ::close(STDERR_FILENO);
    half_mapped memory;
    *reinterpret_cast<volatile char*>(memory.end()) = 1;
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  // A sanitizer ends the process with a status of its own.
  CHECK((WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0)));
}

}  // namespace softverbs
