#include "explorations.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "wire/ring.hpp"

namespace model {
namespace {

using softverbs::frame_header;
using softverbs::ring_answer;

constexpr std::size_t payload_bytes = softverbs::segment_bytes_max;
constexpr std::size_t bytes_each = softverbs::frame_bytes(payload_bytes);
constexpr unsigned lines_each = bytes_each / softverbs::frame_align;
constexpr unsigned frames_max = softverbs::ring_bytes / bytes_each;
/// A consumer's batch: enough frames for a producer that waits for space.
constexpr unsigned batch = softverbs::space_doorbell_bytes / bytes_each + 1;

/// A ring's two sides, as a link and the engine use them.
struct two_sides : scenario {
  std::unique_ptr<softverbs::ring_control> control = std::make_unique<softverbs::ring_control>();
  // Frames behind the end of the ring stay contiguous here as well.
  std::unique_ptr<std::byte[]> bytes{new std::byte[softverbs::ring_bytes + bytes_each]};
  /// The lines of `bytes`, so that accesses in no order are found.
  std::array<data<unsigned>, softverbs::ring_bytes / softverbs::frame_align> lines;
  softverbs::ring_producer out;
  softverbs::ring_consumer in;
  mutex tx;
  event doorbell;
  std::array<event, 2> space;  ///< one for each producer
  unsigned sent = 0;           ///< under tx
  unsigned taken = 0;

  two_sides() {
    name(*control, "ring", {"tail", "head", "doorbell_wanted", "space_wanted"});
    name(lines, "bytes");
    name(out, "producer.tail_");
    name(in, "consumer.head_");
    name(tx, "tx");
    name(doorbell, "doorbell");
    name(space, "space");
    out.attach({control.get(), bytes.get()});
    in.attach({control.get(), bytes.get()});
  }

  /// The lines of a frame hold its number.
  void write_lines(const std::byte* frame, unsigned number) {
    for (unsigned n = 0; n < lines_each; ++n) line_of(frame, n) = number;
  }
  bool have_lines(const std::byte* frame, unsigned number) {
    bool are_all = true;
    for (unsigned n = 0; n < lines_each; ++n) are_all &= line_of(frame, n) == number;
    return are_all;
  }
  data<unsigned>& line_of(const std::byte* frame, unsigned n) {
    const auto at = static_cast<std::size_t>(frame - bytes.get());
    return lines[(at / softverbs::frame_align + n) % lines.size()];
  }
  /// False: there is no space.
  bool try_send() {
    std::byte* to = nullptr;
    ring_answer answer = out.reserve(bytes_each, to);
    if (answer == ring_answer::no) {
      out.want_space(true);
      answer = out.reserve(bytes_each, to);
    }
    check(answer != ring_answer::broken, "the consumer's index is valid");
    if (answer != ring_answer::yes) return false;
    frame_header header{};
    header.payload_bytes = payload_bytes;
    std::memcpy(to, &header, sizeof header);
    write_lines(to, sent++);
    out.publish(bytes_each);
    if (out.claim_doorbell()) doorbell.wake();
    return true;
  }
  void send(unsigned producer) {
    for (;;) {
      {
        const std::lock_guard lock{tx};
        if (try_send()) return;
      }
      // An engine that sleeps while queue pairs wait does so: the request first, then the check.
      while (!out.has_space()) {
        out.want_space(true);
        if (!out.has_space()) space[producer].wait();
      }
    }
  }
  void take(unsigned most) {
    frame_header header{};
    const std::byte* payload = nullptr;
    unsigned count = 0;
    for (; count < most; ++count) {
      const ring_answer answer = in.peek(header, payload);
      check(answer != ring_answer::broken, "the producer's index and header are valid");
      if (answer != ring_answer::yes) break;
      check(have_lines(payload - sizeof header, taken++), "frames come whole, and in order");
      in.pop();
    }
    if (count > 0 && in.claim_space_doorbell())
      for (event& one : space) one.wake();
  }
  void take_until(unsigned frames) {
    while (taken < frames) {
      take(batch);
      if (taken == frames) return;
      in.want_doorbell(true);
      if (!in.has_frames()) doorbell.wait();
    }
  }
};

/// A consumer that sleeps, and a producer that always has space.
template <unsigned Frames>
struct sleeping_consumer : two_sides {
  void run(unsigned thread) override {
    if (thread == 0) return take_until(Frames);
    for (unsigned n = 0; n < Frames; ++n) send(0);
  }
  void end() override { check(taken == Frames, "each frame is taken once"); }
};

/// A ring that is full: the producer waits until a batch is taken.
struct sleeping_producer : two_sides {
  sleeping_producer() {
    for (unsigned n = 0; n < frames_max; ++n) send(0);
  }
  void run(unsigned thread) override {
    if (thread == 0) return take(batch);
    send(0);
  }
  void end() override {
    take(frames_max);
    check(taken == frames_max + 1, "each frame is taken once");
  }
};

/// A ring that is full, and threads that send more, one at a time.
struct sleeping_sides : two_sides {
  static constexpr unsigned each = 3;
  sleeping_sides() {
    for (unsigned n = 0; n + 2 < frames_max; ++n) send(0);
  }
  void run(unsigned thread) override {
    if (thread == 0) return take_until(frames_max - 2 + 2 * each);
    for (unsigned n = 0; n < each; ++n) send(thread - 1);
  }
};

}  // namespace

std::vector<exploration> explorations_of_ring() {
  return {
      {"ring, sleeping consumer", {.threads = 2}, 100, explore<sleeping_consumer<2>>},
      {"ring, sleeping producer", {.threads = 2}, 1500, explore<sleeping_producer>},
      {"ring, a sleeping consumer and two producers",
       {.threads = 3, .random_runs = 1},
       0,
       explore<sleeping_sides>},
  };
}

}  // namespace model
