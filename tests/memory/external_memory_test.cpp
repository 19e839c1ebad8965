// Memory of the program's own: constants, files, huge pages, dma-bufs, pages on demand.
#include <cordma/memory/mr_allocator.hpp>

#include "support/loopback.hpp"
#include "support/outcome.hpp"

#include <cordma/base/error.hpp>
#include <cordma/base/unique_fd.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace cordma;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t page = 4096;
constexpr std::array<std::uint64_t, 512> primes{2, 3, 5, 7, 11, 13};

/// Memory of mmap(2), unmapped at the end.
class mapped {
 public:
  explicit mapped(std::size_t size, int protection = PROT_READ | PROT_WRITE,
                  int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
      : size_{size}, at_{::mmap(nullptr, size, protection, flags, fd, 0)} {}
  mapped(mapped&&) = delete;
  ~mapped() { unmap(); }
  void unmap() {
    if (is_there()) ::munmap(at_, size_);
    at_ = MAP_FAILED;
  }
  [[nodiscard]] bool is_there() const { return at_ != MAP_FAILED; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(at_), size_}; }
  [[nodiscard]] std::span<const std::byte> constant() const { return bytes(); }

 private:
  std::size_t size_;
  void* at_;
};

/// A file that has no name any more.
struct temporary_file {
  temporary_file() : stream{std::tmpfile()}, fd{::fileno(stream)} {}
  temporary_file(temporary_file&&) = delete;
  ~temporary_file() { std::fclose(stream); }
  std::FILE* stream;
  int fd;
};

/// A descriptor with memory behind it that is no file on a disk.
struct memory_file {
  explicit memory_file(std::size_t size) : fd{::memfd_create("cordma test", MFD_CLOEXEC)} {
    REQUIRE(::ftruncate(fd.get(), off_t(size)) == 0);
  }
  unique_fd fd;
};

/// Moves bytes out of memory by a WRITE, and into it by a peer's.
void pass_in_and_out(test::loopback& link, local_mr& memory) {
  const local_mr pattern = link.pattern(memory.size_bytes());
  local_mr seen = link.memory(memory.size_bytes());
  link.run(link.a->write(pattern, memory.remote_slice()));
  CHECK(test::same_bytes(memory.bytes(), pattern.bytes()));
  link.run(link.a->write(memory, seen.remote_slice()));
  CHECK(test::same_bytes(seen.bytes(), pattern.bytes()));
}

/// Passes bytes out of memory that nobody may write.
void pass_out(test::loopback& link, const const_local_mr& memory) {
  local_mr seen = link.memory(memory.size_bytes());
  link.run(link.a->write(memory, seen.remote_slice()));
  CHECK(test::same_bytes(seen.bytes(), memory.bytes()));
  local_mr again = link.memory(memory.size_bytes());
  link.run(link.b->read(again, memory.remote_slice()));
  CHECK(test::same_bytes(again.bytes(), memory.bytes()));
}

}  // namespace

TEST_CASE("constants are registered for reading only, by device and peers",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access);
  const_local_mr mr = memory.register_external(std::as_bytes(std::span{primes}));
  CHECK(mr.access() == verbs::access::remote_read);
  CHECK(static_cast<const void*>(mr.bytes().data()) == primes.data());
  pass_out(link, mr);
  // A READ into constants is refused before it is posted.
  local_mr kept = local_mr::keep(mr.slice());
  local_mr source = link.memory(64);
  CHECK(test::code_of(link.outcome(link.a->read(kept.first(64), source.remote_slice()))) ==
        errc::access_denied);
  // A peer's WRITE is refused by the device.
  CHECK(test::code_of(link.outcome(link.b->write(source, mr.remote_slice().first(64)))) ==
        wc_errc::remote_access);
}

TEST_CASE("a constant container is registered as constant, another one is not",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(verbs::access::local_write);
  std::vector<std::byte> bytes(100);
  const std::vector<std::byte>& constant = bytes;
  const local_mr one = memory.register_external(bytes);
  const const_local_mr other = memory.register_external(constant);
  CHECK(one.access() == verbs::access::local_write);
  CHECK(other.access() == verbs::access::none);
  CHECK(test::failure_of([&] { static_cast<void>(other.remote_slice()); }).code ==
        errc::access_denied);
  const const_local_mr moved = memory.register_external(bytes);
  CHECK(moved.access() == verbs::access::local_write);
}

TEST_CASE("what keeps a constant's memory goes with its registration", "[memory][device][M11]") {
  test::loopback link;
  auto text = std::make_shared<const std::vector<std::byte>>(100, std::byte{7});
  const std::weak_ptr<const std::vector<std::byte>> watched = text;
  mr_allocator& memory = link.allocator(test::all_access);
  const std::span<const std::byte> bytes{*text};
  const_local_mr mr =
      memory.register_external(bytes, std::const_pointer_cast<std::vector<std::byte>>(text));
  text.reset();
  CHECK_FALSE(watched.expired());
  mr.reset();
  CHECK(watched.expired());
}

TEST_CASE("memory that is mapped read-only is registered as constant, and not otherwise",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access);
  const mapped pages{3 * page, PROT_READ};
  REQUIRE(pages.is_there());
  CHECK(test::failure_of([&] {
          static_cast<void>(memory.register_external(pages.bytes()));
        }).code == std::errc::bad_address);
  const const_local_mr mr = memory.register_external(pages.constant());
  pass_out(link, mr);
}

TEST_CASE("a mapped file is registered: what a peer writes is in the file",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access);
  const temporary_file file;
  REQUIRE(::ftruncate(file.fd, 3 * page) == 0);
  const mapped pages{3 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd};
  REQUIRE(pages.is_there());
  local_mr mr = memory.register_external(pages.bytes());
  pass_in_and_out(link, mr);
  std::vector<std::byte> read(3 * page);
  REQUIRE(::pread(file.fd, read.data(), read.size(), 0) == ssize_t(read.size()));
  CHECK(test::same_bytes(read, mr.bytes()));
  // Linux before 6.2 pins no shared memory that is mapped read-only.
  const mapped constant{3 * page, PROT_READ, MAP_SHARED, file.fd};
  const auto reads = [&] { return memory.register_external(constant.constant()); };
  if (test::is_rxe())
    CHECK(test::failure_of([&] { static_cast<void>(reads()); }).code == std::errc::bad_address);
  else
    pass_out(link, reads());
}

TEST_CASE("huge pages are registered", "[memory][device][M11]") {
  constexpr std::size_t huge = std::size_t{2} << 20;
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access);
  // Reserved ones are there if the machine has some, transparent ones if it makes some.
  const mapped reserved{2 * huge, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB};
  if (reserved.is_there()) {
    local_mr mr = memory.register_external(reserved.bytes().subspan(page, huge));
    pass_in_and_out(link, mr);
  }
  const mapped transparent{2 * huge};
  REQUIRE(transparent.is_there());
  ::madvise(transparent.bytes().data(), 2 * huge, MADV_HUGEPAGE);
  local_mr mr = memory.register_external(transparent.bytes().subspan(page, huge));
  pass_in_and_out(link, mr);
}

TEST_CASE("more bytes than the device registers at once are refused by name",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(verbs::access::local_write);
  const std::uint64_t most = link.ctx.limits().mr_size_max_bytes;
  const std::uint64_t before = memory.counters().registrations_failed;
  std::byte first{};
  const std::span<std::byte> too_long{&first, most < SIZE_MAX ? std::size_t(most) + 1 : SIZE_MAX};
  const failure why =
      test::failure_of([&] { static_cast<void>(memory.register_external(too_long)); });
  INFO(why.to_string());
  if (most < SIZE_MAX) {
    CHECK(why.code == errc::limit_exceeded);
    CHECK_THAT(why.to_string(), Contains(std::to_string(most)));
  }
  CHECK(memory.counters().registrations_failed == before + 1);
  CHECK(memory.counters().external_bytes == 0);
}

TEST_CASE("relaxed ordering is asked for by name, and memory of it carries bytes",
          "[memory][device][M11]") {
  test::loopback link;
  const verbs::access access = test::all_access | verbs::access::relaxed_ordering;
  local_mr allocated = link.memory(3 * page, access);
  CHECK(verbs::allows(allocated.access(), access));
  pass_in_and_out(link, allocated);
  std::vector<std::byte> bytes(3 * page);
  local_mr own = link.allocator(access).register_external(bytes);
  pass_in_and_out(link, own);
}

TEST_CASE("pages on demand need not be there yet, or the device is said to have none",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access | verbs::access::on_demand);
  const mapped pages{3 * page, PROT_NONE};
  REQUIRE(pages.is_there());
  if (test::is_rxe()) {
    const failure why =
        test::failure_of([&] { static_cast<void>(memory.register_external(pages.bytes())); });
    CHECK(why.code == errc::not_supported);
    CHECK_THAT(why.to_string(), Contains("on_demand"));
    return;
  }
  local_mr mr = memory.register_external(pages.bytes());
  local_mr seen = link.memory(3 * page);
  CHECK(test::code_of(link.outcome(link.a->write(mr, seen.remote_slice()))) ==
        wc_errc::local_protection);
  link.reconnect();
  REQUIRE(::mprotect(pages.bytes().data(), 3 * page, PROT_READ | PROT_WRITE) == 0);
  pass_in_and_out(link, mr);
}

// ---- dma-bufs: soft0 takes a memfd for one ------------------------------------------------------

TEST_CASE("a part of a dma-buf is registered, and outlives its descriptor",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(test::all_access);
  memory_file file{4 * page};
  const int fd = file.fd.get();
  const auto part = [&] { return memory.register_dmabuf(fd, page + 64, 2 * page); };
  if (test::is_rxe()) {
    CHECK(test::failure_of([&] { static_cast<void>(part()); }).code == errc::not_supported);
    return;
  }
  local_mr mr = part();
  CHECK(mr.size_bytes() == 2 * page);
  CHECK(memory.counters().external_bytes == 2 * page);
  const unique_fd again{::dup(fd)};
  file.fd.reset();
  pass_in_and_out(link, mr);
  std::vector<std::byte> read(2 * page);
  REQUIRE(::pread(again.get(), read.data(), read.size(), page + 64) == ssize_t(read.size()));
  CHECK(test::same_bytes(read, mr.bytes()));
  mr.reset();
  CHECK(memory.counters().external_bytes == 0);
}

TEST_CASE("a descriptor that is no dma-buf, or shorter, is an error that names it",
          "[memory][device][M11]") {
  test::loopback link;
  mr_allocator& memory = link.allocator(verbs::access::local_write);
  const memory_file file{2 * page};
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const unique_fd reader{ends[0]}, writer{ends[1]};
  const unique_fd read_only{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  const auto why = [&](int fd, std::uint64_t offset, std::size_t size) {
    return test::failure_of([&] { static_cast<void>(memory.register_dmabuf(fd, offset, size)); });
  };
  CHECK(why(file.fd.get(), 0, 0).code == errc::out_of_range);
  struct {
    int fd;
    std::uint64_t offset;
    std::size_t size;
    std::errc code;
  } const bad[] = {{-1, 0, page, std::errc::bad_file_descriptor},
                   {reader.get(), 0, page, std::errc::invalid_argument},
                   {read_only.get(), 0, page, std::errc::invalid_argument},
                   {file.fd.get(), page, page + 1, std::errc::invalid_argument},
                   {file.fd.get(), 3 * page, 1, std::errc::invalid_argument},
                   {file.fd.get(), UINT64_MAX - 8, 8, std::errc::invalid_argument}};
  for (const auto& one : bad) {
    const failure said = why(one.fd, one.offset, one.size);
    INFO(said.to_string());
    if (test::is_rxe()) {
      CHECK(said.code == errc::not_supported);
    } else {
      CHECK(said.code == one.code);
      CHECK_THAT(said.to_string(), Contains("descriptor " + std::to_string(one.fd)));
    }
  }
  CHECK(memory.counters().external_bytes == 0);
}

TEST_CASE("requests on a dma-buf that has gone end with an error, short ones too",
          "[memory][soft0][M11]") {
  test::loopback link{{.capabilities = {.inline_max = 64}}};
  mr_allocator& memory = link.allocator(test::all_access);
  const memory_file file{2 * page};
  local_mr mr = memory.register_dmabuf(file.fd.get(), 0, 2 * page);
  pass_in_and_out(link, mr);
  REQUIRE(::ftruncate(file.fd.get(), 0) == 0);
  local_mr other = link.memory(2 * page);
  for (const std::size_t size : {std::size_t{8}, 2 * page}) {
    INFO(size << " bytes");
    CHECK(test::code_of(link.outcome(link.a->write(mr.first(size), other.remote_slice()))) ==
          wc_errc::local_protection);
    link.reconnect();
    CHECK(test::code_of(link.outcome(link.a->read(other.first(size), mr.remote_slice())))
              .category() == error::completion_category());
    link.reconnect();
  }
  CHECK(link.run(link.a->write(other, other.remote_slice())) == 2 * page);
}
