#include "wire/ring.hpp"

#include "link/unique_fd.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>

#include <cstring>
#include <thread>
#include <vector>

using namespace softverbs;

namespace {

/// A ring's two ends over one mapping.
struct looped_ring {
  looped_ring() {
    REQUIRE(file);
    REQUIRE(memory.reserve());
    REQUIRE(memory.map(file.get(), true));
    producer.attach(memory.out());
    consumer.attach(memory.out());
  }
  ring_control& control() { return *memory.out().control; }

  unique_fd file{ring_memory::create_file()};
  ring_memory memory;
  ring_producer producer;
  ring_consumer consumer;
};

frame_header a_header(std::uint32_t psn, std::uint32_t payload_bytes) {
  frame_header header{};
  header.kind = frame_kind::send;
  header.psn = psn;
  header.payload_bytes = payload_bytes;
  return header;
}

ring_answer put(ring_producer& to, const frame_header& header) {
  std::byte* destination = nullptr;
  const std::size_t bytes = frame_bytes(header.payload_bytes);
  const ring_answer answer = to.reserve(bytes, destination);
  if (answer != ring_answer::yes) return answer;
  std::memcpy(destination, &header, sizeof header);
  for (std::uint32_t n = 0; n < header.payload_bytes; ++n)
    destination[sizeof header + n] = static_cast<std::byte>(header.psn + n);
  to.publish(bytes);
  return answer;
}

bool right_payload(const frame_header& header, const std::byte* payload) {
  for (std::uint32_t n = 0; n < header.payload_bytes; ++n)
    if (payload[n] != static_cast<std::byte>(header.psn + n)) return false;
  return true;
}

/// Sizes around every edge, in an order that repeats.
constexpr std::uint32_t sizes[] = {0, 1, 63, 64, 65, 4096, segment_bytes_max - 1, segment_bytes_max,
                                   7};

constexpr std::uint32_t size_of(std::uint32_t psn) { return sizes[psn % std::size(sizes)]; }

}  // namespace

TEST_CASE("frames of all sizes come out whole and in order, many times around", "[wire]") {
  looped_ring ring;
  std::uint32_t next = 0;
  std::uint32_t expected = 0;
  for (int round = 0; round < 40; ++round) {
    ring_answer answer = ring_answer::yes;
    while (answer == ring_answer::yes) {
      answer = put(ring.producer, a_header(next, size_of(next)));
      if (answer == ring_answer::yes) ++next;
    }
    REQUIRE(answer == ring_answer::no);
    frame_header header;
    const std::byte* payload = nullptr;
    while (ring.consumer.peek(header, payload) == ring_answer::yes) {
      REQUIRE(header.psn == expected);
      REQUIRE(header.payload_bytes == size_of(expected));
      REQUIRE(right_payload(header, payload));
      ++expected;
      ring.consumer.pop();
    }
    REQUIRE(expected == next);
    REQUIRE_FALSE(ring.consumer.has_frames());
  }
}

TEST_CASE("two threads move frames through one ring", "[wire]") {
  looped_ring ring;
  constexpr std::uint32_t frames = 20'000;
  std::thread writer{[&] {
    for (std::uint32_t psn = 0; psn < frames;)
      if (put(ring.producer, a_header(psn, psn % 97)) == ring_answer::yes)
        ++psn;
      else
        std::this_thread::yield();
  }};
  std::uint32_t expected = 0;
  bool right = true;
  while (expected < frames && right) {
    frame_header header;
    const std::byte* payload = nullptr;
    if (ring.consumer.peek(header, payload) != ring_answer::yes) {
      std::this_thread::yield();
      continue;
    }
    right = header.psn == expected++ && right_payload(header, payload);
    ring.consumer.pop();
  }
  writer.join();
  CHECK(right);
}

TEST_CASE("a producer's index that makes no sense breaks the ring for the consumer", "[wire]") {
  const std::uint64_t tail = GENERATE(std::uint64_t{1}, std::uint64_t{63}, ring_bytes + 64,
                                      ~std::uint64_t{0}, ~std::uint64_t{63});
  looped_ring ring;
  ring.control().tail.store(tail);
  frame_header header;
  const std::byte* payload = nullptr;
  CHECK(ring.consumer.peek(header, payload) == ring_answer::broken);
}

TEST_CASE("a consumer's index that makes no sense breaks the ring for the producer", "[wire]") {
  const std::uint64_t head = GENERATE(std::uint64_t{32}, std::uint64_t{2} * ring_bytes + 64,
                                      ~std::uint64_t{0}, std::uint64_t{1} << 63);
  looped_ring ring;
  while (put(ring.producer, a_header(1, segment_bytes_max)) == ring_answer::yes) continue;
  ring.control().head.store(head);
  CHECK(put(ring.producer, a_header(1, segment_bytes_max)) == ring_answer::broken);
  CHECK(ring.producer.has_space());  // The answer lets somebody try, and find out.
}

TEST_CASE("a frame that is too long, or not there entirely, breaks the ring", "[wire]") {
  looped_ring ring;
  frame_header header = a_header(0, 64);
  REQUIRE(put(ring.producer, header) == ring_answer::yes);
  header.payload_bytes =
      GENERATE(65u, static_cast<std::uint32_t>(segment_bytes_max) + 1, 0xffff'ffffu, 0xffff'ffc0u);
  std::memcpy(ring.memory.out().data, &header, sizeof header);
  const std::byte* payload = nullptr;
  CHECK(ring.consumer.peek(header, payload) == ring_answer::broken);
}

TEST_CASE("a doorbell for frames or space is requested once, and claimed once", "[wire]") {
  looped_ring ring;
  CHECK_FALSE(ring.producer.claim_doorbell());
  ring.consumer.want_doorbell(true);
  CHECK(ring.producer.claim_doorbell());
  CHECK_FALSE(ring.producer.claim_doorbell());

  while (put(ring.producer, a_header(1, segment_bytes_max)) == ring_answer::yes) continue;
  ring.producer.want_space(true);
  CHECK_FALSE(ring.producer.has_space());
  CHECK_FALSE(ring.consumer.claim_space_doorbell());  // The consumer has popped no frame.
  frame_header header;
  const std::byte* payload = nullptr;
  std::size_t popped = 0;
  while (popped < space_doorbell_bytes) {
    REQUIRE(ring.consumer.peek(header, payload) == ring_answer::yes);
    ring.consumer.pop();
    popped += frame_bytes(header.payload_bytes);
  }
  CHECK(ring.producer.has_space());
  CHECK(ring.consumer.claim_space_doorbell());
  CHECK_FALSE(ring.consumer.claim_space_doorbell());
}

TEST_CASE("opener and acceptor of one file meet: one's out is the other's in", "[wire]") {
  const unique_fd file{ring_memory::create_file()};
  REQUIRE(file);
  ring_memory opener;
  ring_memory acceptor;
  REQUIRE((opener.reserve() && acceptor.reserve()));
  REQUIRE((opener.map(file.get(), true) && acceptor.map(file.get(), false)));
  ring_producer remote;
  ring_consumer local;
  for (const auto& [out, in] :
       {std::pair{opener.out(), acceptor.in()}, std::pair{acceptor.out(), opener.in()}}) {
    remote.attach(out);
    local.attach(in);
    REQUIRE(put(remote, a_header(7, 100)) == ring_answer::yes);
    frame_header header;
    const std::byte* payload = nullptr;
    REQUIRE(local.peek(header, payload) == ring_answer::yes);
    CHECK(header.psn == 7);
    CHECK(right_payload(header, payload));
  }
  // A look at what was unmapped reads zeros.
  acceptor.unmap();
  CHECK(acceptor.in().control->tail.load() == 0);
}

TEST_CASE("only a sealed file of the right size is mapped", "[wire]") {
  const unique_fd good{ring_memory::create_file()};
  CHECK(ring_memory::is_valid(good.get()));

  const unique_fd unsealed{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(unsealed.get(), rings_file_bytes) == 0);
  CHECK_FALSE(ring_memory::is_valid(unsealed.get()));
  constexpr int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int missing = GENERATE(F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL);
  REQUIRE(::fcntl(unsealed.get(), F_ADD_SEALS, all & ~missing) == 0);
  CHECK_FALSE(ring_memory::is_valid(unsealed.get()));

  const unique_fd small{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(small.get(), 4096) == 0);
  REQUIRE(::fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK_FALSE(ring_memory::is_valid(small.get()));

  int pipe[2];
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  const unique_fd reader{pipe[0]};
  const unique_fd writer{pipe[1]};
  CHECK_FALSE(ring_memory::is_valid(reader.get()));
}

TEST_CASE("nobody can change the size of a file of rings, nor seal it further", "[wire]") {
  const unique_fd file{ring_memory::create_file()};
  for (const std::size_t bytes : {std::size_t{0}, rings_file_bytes - 1, rings_file_bytes + 1})
    CHECK(::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0);
  CHECK(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK(ring_memory::is_valid(file.get()));
}

TEST_CASE("a header that changes after it was checked changes nothing", "[wire]") {
  looped_ring ring;
  REQUIRE(put(ring.producer, a_header(1, 64)) == ring_answer::yes);
  REQUIRE(put(ring.producer, a_header(2, 0)) == ring_answer::yes);
  frame_header header;
  const std::byte* payload = nullptr;
  REQUIRE(ring.consumer.peek(header, payload) == ring_answer::yes);
  std::memset(ring.memory.out().data, 0xff, sizeof header);
  CHECK(header.psn == 1);
  CHECK(header.payload_bytes == 64);
  ring.consumer.pop();
  REQUIRE(ring.consumer.peek(header, payload) == ring_answer::yes);
  CHECK(header.psn == 2);
}

TEST_CASE("frames cross a byte stream that comes in any pieces", "[wire]") {
  looped_ring sending;
  looped_ring receiving;
  stream_reader from;
  stream_writer to;
  from.attach(sending.memory.out());
  to.attach(receiving.memory.out());
  std::uint32_t next = 0;
  std::uint32_t expected = 0;
  std::size_t piece = 1;
  while (expected < 500) {
    if (put(sending.producer, a_header(next, size_of(next))) == ring_answer::yes) ++next;
    const std::span<const std::byte> bytes = from.pending();
    const std::span<std::byte> room = to.room();
    const std::size_t moved = std::min({bytes.size(), room.size(), piece});
    piece = piece % 50'021 + 977;
    if (moved != 0) std::memcpy(room.data(), bytes.data(), moved);
    from.consumed(moved);
    REQUIRE(to.produced(moved));
    frame_header header;
    const std::byte* payload = nullptr;
    while (receiving.consumer.peek(header, payload) == ring_answer::yes) {
      REQUIRE(header.psn == expected++);
      REQUIRE(right_payload(header, payload));
      receiving.consumer.pop();
    }
  }
}

TEST_CASE("a byte stream with an impossible header is found out", "[wire]") {
  looped_ring ring;
  stream_writer to;
  to.attach(ring.memory.out());
  const frame_header header = a_header(0, segment_bytes_max + 1);
  std::memcpy(to.room().data(), &header, sizeof header);
  CHECK_FALSE(to.produced(sizeof header));
}
