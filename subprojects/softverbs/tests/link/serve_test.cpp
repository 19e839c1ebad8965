#include "link/far_link.hpp"
#include "node/doubles.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint32_t long_bytes = 1u << 20;

frame_header frame(frame_kind kind, std::uint32_t payload_bytes = 0,
                   std::uint32_t message_bytes = 0) {
  frame_header header{};
  header.kind = kind;
  header.payload_bytes = payload_bytes;
  header.message_bytes = message_bytes;
  return header;
}

frame_header read_data(std::uint32_t message_bytes) {
  return frame(frame_kind::read_response, std::min(message_bytes, std::uint32_t{segment_bytes_max}),
               message_bytes);
}

/// A peer that we talk to both ways.
struct both_directions {
  both_directions() {
    upcalls().reset();
    requests.ours().set_answers(&answers.ours());
  }
  ~both_directions() { node::release(local_node); }
  /// A request, which is taken, after an ack, a READ's first data, and another ack.
  void ask_behind_data_of(std::uint32_t message_bytes) {
    answers.send(frame(frame_kind::ack));
    answers.send(read_data(message_bytes));
    answers.send(frame(frame_kind::ack));
    requests.send(frame(frame_kind::send));
    REQUIRE(requests.ours().serve(local_node, true));
    CHECK(upcalls().requests.size() == 1);
  }

  node& local_node = node::acquire();
  const std::uint16_t slot = static_cast<std::uint16_t>((local_node.slot() + 1) % process_slots);
  far_link requests{local_node, slot, false}, answers{local_node, slot, true};
};

}  // namespace

TEST_CASE("a request is taken after the answers that came before it", "[link]") {
  both_directions peer;
  peer.ask_behind_data_of(segment_bytes_max);
  CHECK(upcalls().answers.size() == 3);
}

TEST_CASE("the data of a long READ, and what is behind them, keep no request waiting", "[link]") {
  both_directions peer;
  peer.ask_behind_data_of(long_bytes);
  CHECK(upcalls().answers.size() == 1);
  // The answers that were not served are still there.
  REQUIRE(peer.answers.ours().serve(peer.local_node, true));
  CHECK(upcalls().answers.size() == 3);
}

TEST_CASE("whoever serves a link is kept by so many bytes, not by all that are there", "[link]") {
  both_directions peer;
  upcalls().keep_payloads = false;
  constexpr std::size_t at_once = batch_bytes_max / segment_bytes_max;
  for (std::size_t n = 0; n < 2 * at_once; ++n)
    peer.requests.send(frame(frame_kind::write, segment_bytes_max, long_bytes));
  REQUIRE(peer.requests.ours().serve(peer.local_node, true));
  CHECK(upcalls().requests.size() == at_once);
  CHECK(peer.requests.ours().has_work());
  REQUIRE(peer.requests.ours().serve(peer.local_node, true));
  CHECK(upcalls().requests.size() == 2 * at_once);
  CHECK_FALSE(peer.requests.ours().has_work());
}
