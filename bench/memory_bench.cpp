// Measures registered memory, beside malloc and beside registering each buffer.

#include "support/bench.hpp"
#include "support/second_thread.hpp"

#include <support/device.hpp>

#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/memory_region.hpp>

#include "../lib/memory/jemalloc.hpp"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t sizes[] = {64, 256, 1024, 4096, 16384, 65536, 262144, 1048576};

std::string name_of(std::size_t bytes, const char* beside) {
  const std::string size = bytes < 1024      ? std::to_string(bytes) + " B"
                           : bytes < 1 << 20 ? std::to_string(bytes >> 10) + " KiB"
                                             : std::to_string(bytes >> 20) + " MiB";
  return size + ", " + beside;
}

/// The compiler must not see that nobody uses it.
void use(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

struct device {
  cordma::verbs::context ctx{cordma::test::device_name()};
  cordma::verbs::protection_domain pd{ctx};
};

/// An arena of jemalloc's own, and a thread cache for it.
class plain_arena {
 public:
  plain_arena() {
    arena_ = cordma::jemalloc::get<unsigned>("arenas.create");
    cache_ = cordma::jemalloc::get<unsigned>("tcache.create");
    flags = MALLOCX_ARENA(arena_) | MALLOCX_TCACHE(cache_);
  }
  ~plain_arena() {
    cordma::jemalloc::set("tcache.destroy", cache_);
    cordma::jemalloc::call(("arena." + std::to_string(arena_) + ".destroy").c_str());
  }
  int flags;

 private:
  unsigned arena_, cache_;
};

bench::work allocate_and_free(cordma::mr_allocator& memory, std::size_t bytes) {
  return [&memory, bytes](std::uint64_t n) {
    for (; n > 0; --n) {
      cordma::local_mr one = memory.allocate_uninitialized(bytes);
      use(one.bytes().data());
    }
  };
}

}  // namespace

BENCH_ON_DEVICE("memory/arena", "Allocate and free: what do hooks and slices add to jemalloc?") {
  device d;
  cordma::mr_allocator memory{d.pd};
  const plain_arena plain;
  std::uint64_t registrations = 0;
  for (const std::size_t bytes : sizes) {
    const bench::work ours = allocate_and_free(memory, bytes);
    ours(1);
    const std::uint64_t before = memory.statistics().registrations;
    recorder.compare(
        name_of(bytes, "mallocx and dallocx"),
        [&](std::uint64_t n) {
          for (; n > 0; --n) {
            void* const one = cordma::jemalloc::mallocx(bytes, plain.flags);
            use(one);
            cordma::jemalloc::dallocx(one, plain.flags);
          }
        },
        ours);
    registrations += memory.statistics().registrations - before;
  }
  recorder.count("all", "registrations", "", double(registrations));
  if (registrations != 0) throw std::runtime_error{"registered in the timed loop"};
}

BENCH_ON_DEVICE("memory/malloc", "Allocate and free: how far from the program's malloc?") {
  device d;
  cordma::mr_allocator memory{d.pd};
  for (const std::size_t bytes : sizes) {
    recorder.compare(
        name_of(bytes, "malloc and free"),
        [&](std::uint64_t n) {
          for (; n > 0; --n) {
            void* const one = std::malloc(bytes);
            use(one);
            std::free(one);
          }
        },
        allocate_and_free(memory, bytes));
  }
}

BENCH_ON_DEVICE("memory/registration", "What does registering each buffer cost?") {
  device d;
  cordma::mr_allocator memory{d.pd};
  for (const std::size_t bytes : sizes) {
    const std::unique_ptr<std::byte[]> buffer{new std::byte[bytes]};
    recorder.compare(
        name_of(bytes, "ibv_reg_mr and ibv_dereg_mr"),
        [&](std::uint64_t n) {
          for (; n > 0; --n) {
            const cordma::verbs::memory_region mr{d.pd, buffer.get(), bytes,
                                                  cordma::verbs::access::local_write};
          }
        },
        allocate_and_free(memory, bytes));
  }
}

BENCH_ON_DEVICE("memory/cache", "From which size on is a cached registration worth it?") {
  device d;
  cordma::mr_allocator memory{d.pd};
  for (const std::size_t bytes : sizes) {
    std::vector<std::byte> buffer(bytes, std::byte{1});
    const bench::work cached = [&](std::uint64_t n) {
      for (; n > 0; --n) {
        cordma::local_mr held = memory.register_cached(buffer);
        use(held.bytes().data());
      }
    };
    recorder.compare(
        name_of(bytes, "registering each time"),
        [&](std::uint64_t n) {
          for (; n > 0; --n) {
            const cordma::verbs::memory_region mr{d.pd, buffer.data(), bytes,
                                                  cordma::verbs::access::local_write};
          }
        },
        cached);
    recorder.compare(
        name_of(bytes, "copying into registered memory"),
        [&](std::uint64_t n) {
          for (; n > 0; --n) {
            cordma::local_mr copy = memory.allocate_uninitialized(bytes);
            std::memcpy(copy.bytes().data(), buffer.data(), bytes);
            use(copy.bytes().data());
          }
        },
        cached);
  }
  // One buffer is found at once; among a thousand there is a search.
  std::vector<std::vector<std::byte>> all(1000, std::vector<std::byte>(4096));
  const auto each = [&all](const auto& take) {
    return [&all, &take](std::uint64_t n) {
      for (std::size_t at = 0; n > 0; --n, at = (at + 7) % all.size()) take(all[at]);
    };
  };
  const auto from_cache = [&](std::vector<std::byte>& one) {
    cordma::local_mr held = memory.register_cached(one);
    use(held.bytes().data());
  };
  const auto by_copy = [&](std::vector<std::byte>& one) {
    cordma::local_mr copy = memory.allocate_uninitialized(one.size());
    std::memcpy(copy.bytes().data(), one.data(), one.size());
    use(copy.bytes().data());
  };
  each(from_cache)(all.size());
  recorder.compare("1000 of 4 KiB, copying into registered memory", each(by_copy),
                   each(from_cache));
}

BENCH_ON_DEVICE("memory/threads", "Do two threads allocate twice as much as one?") {
  if (std::thread::hardware_concurrency() < 2) return;
  device d;
  cordma::mr_allocator memory{d.pd};
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{4096}}) {
    const bench::work one = allocate_and_free(memory, bytes);
    const bench::pinned here{0};
    bench::second_thread other;
    // Half of the work each: 0.5 is twice as much.
    recorder.compare(name_of(bytes, "one thread"), one, [&](std::uint64_t n) {
      const std::function<void()> half = [&] { one(n - n / 2); };
      other.start(&half);
      one(n / 2);
      other.wait();
    });
  }
}
