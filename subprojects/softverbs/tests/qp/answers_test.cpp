#include "link/far_link.hpp"
#include "pair.hpp"

#include <deque>
#include <mutex>
#include <thread>

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint32_t psn = 5;

/// A process that opened a link to us, as this one plays it.
class far_end {
 public:
  explicit far_end(node& local_node, int nth)
      : local_node_{local_node},
        slot_{static_cast<std::uint16_t>((local_node.slot() + nth) % int{process_slots})},
        link_{local_node, slot_, false} {}

  [[nodiscard]] std::uint32_t requester(std::uint32_t nth) const {
    return std::uint32_t{slot_} << index_bits | (100 + nth);
  }
  /// No answer has room any more.
  void fill() {
    while (link_.ours().reserve({}, 0).result == sent::yes) link_.ours().commit();
  }
  void ask(std::uint32_t from, std::uint32_t to) { ask(from, to, frame_kind::write, 0); }
  void ask(std::uint32_t from, std::uint32_t to, frame_kind kind, std::uint8_t flags,
           std::uint32_t at = psn) {
    frame_header header{};
    header.kind = kind;
    header.flags = static_cast<std::uint8_t>(flags | frame_flag::first | frame_flag::last);
    header.source_qpn = from;
    header.destination_qpn = to;
    header.psn = at;
    link_.send(header);
  }
  /// Asks to READ the region's first `bytes` bytes.
  void read(std::uint32_t from, const side& to, std::uint32_t bytes) {
    frame_header header{};
    header.kind = frame_kind::read;
    header.flags = frame_flag::first | frame_flag::last;
    header.source_qpn = from;
    header.destination_qpn = to.qp->qp_num;
    header.psn = psn;
    header.rkey = to.mr->rkey;
    header.remote_address = to.address();
    header.message_bytes = bytes;
    link_.send(header);
  }
  void serve() { link_.ours().serve(local_node_, true); }
  /// Returns the frames that came since the last call and are no part of fill(), and frees their
  /// room.
  std::vector<frame_header> take() {
    std::vector<frame_header> all;
    while (link_.from_us.refresh() == ring_answer::yes && !link_.from_us.seen_all()) {
      frame_header header;
      const std::byte* payload = nullptr;
      REQUIRE(link_.from_us.peek(header, payload) == ring_answer::yes);
      if (header.kind != frame_kind{}) all.push_back(header);
      link_.from_us.pop();
    }
    return all;
  }

 private:
  node& local_node_;
  std::uint16_t slot_;
  far_link link_;
};

}  // namespace

TEST_CASE("all who ask a number that nobody has are told, once there is room for it", "[qp]") {
  const side user{pair_options{}};  // makes the device open
  node& local_node = *user.inner().local_node;
  // The number of a QP that is gone, or one that was never given out.
  std::uint32_t number = local_node.allocate_qpn();
  local_node.free_qpn(number);
  if (GENERATE(false, true)) number ^= indices_max / 2;
  constexpr std::uint32_t requesters = 3;
  std::deque<far_end> others;
  for (const int nth : {1, 2, 3}) {
    far_end& other = others.emplace_back(local_node, nth);
    other.fill();
    for (std::uint32_t n = 0; n < requesters; ++n) other.ask(other.requester(n), number);
    other.serve();
  }
  for (far_end& other : others) {
    CHECK(other.take().empty());
    other.serve();
    const std::vector<frame_header> told = other.take();
    REQUIRE(told.size() == requesters);
    for (std::uint32_t n = 0; n < requesters; ++n) {
      CHECK(told[n].kind == frame_kind::nak);
      CHECK(told[n].nak == nak_code::dropped);
      CHECK(told[n].psn == psn);
      CHECK(told[n].source_qpn == number);
      CHECK(told[n].destination_qpn == other.requester(n));
    }
  }
}

TEST_CASE("a queue pair that answers at length keeps no other from its answer", "[qp]") {
  side reads{pair_options{}}, writes{pair_options{}};
  far_end other{*reads.inner().local_node, 1};
  for (side* one : {&reads, &writes}) {
    one->to_init();
    one->to_rtr(other.requester(one == &reads ? 0 : 1), psn);
  }
  other.read(other.requester(0), reads, 1 << 20);
  other.serve();
  other.ask(other.requester(1), writes.qp->qp_num);
  other.serve();
  std::vector<frame_kind> to_writer;
  for (const frame_header& answer : other.take())
    if (answer.destination_qpn == other.requester(1)) to_writer.push_back(answer.kind);
  CHECK(to_writer == std::vector{frame_kind::ack});
}

TEST_CASE("a message is acknowledged, once, before its receiver can see it", "[qp]") {
  const bool is_write = GENERATE(false, true);
  side user{pair_options{}};
  far_end other{user.local_node(), 1};
  user.to_init();
  user.to_rtr(other.requester(0), psn);
  REQUIRE(user.receive(1) == 0);
  other.ask(other.requester(0), user.qp->qp_num, is_write ? frame_kind::write : frame_kind::send,
            is_write ? frame_flag::immediate : 0);
  std::vector<frame_header> told;
  {
    completion_queue& cq = user.inner().receive_cq();
    std::unique_lock completion_waits{cq.mutex};
    const std::jthread engine{[&] { other.serve(); }};
    const auto deadline = clock::now() + patience;
    while (told.empty() && clock::now() < deadline) told = other.take();
    CHECK(cq.count.load() == 0);
    completion_waits.unlock();
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == frame_kind::ack);
  CHECK(told[0].psn == psn);
  CHECK(user.await().status == IBV_WC_SUCCESS);
  CHECK(other.take().empty());
}

TEST_CASE("a message is acknowledged after the READ before it, and when there is room", "[qp]") {
  side user{pair_options{}};
  far_end other{user.local_node(), 1};
  user.to_init();
  user.to_rtr(other.requester(0), psn);
  REQUIRE(user.receive(1) == 0);
  const bool reads = GENERATE(false, true);
  if (reads) other.read(other.requester(0), user, 8);
  other.fill();
  other.ask(other.requester(0), user.qp->qp_num, frame_kind::send, 0, reads ? psn + 1 : psn);
  other.serve();
  CHECK(user.await().status == IBV_WC_SUCCESS);
  CHECK(other.take().empty());
  other.serve();
  std::vector<frame_kind> told;
  for (const frame_header& answer : other.take()) told.push_back(answer.kind);
  CHECK(told == (reads ? std::vector{frame_kind::read_response, frame_kind::ack}
                       : std::vector{frame_kind::ack}));
}

TEST_CASE("a queue pair that is reset leaves no peer without its answer", "[qp]") {
  side user{pair_options{}};
  node& local_node = *user.inner().local_node;
  std::deque<far_end> others;
  const auto ask = [&](far_end& other) {
    user.to_init();
    user.to_rtr(other.requester(0), psn);
    other.ask(other.requester(0), user.qp->qp_num);
    other.serve();
    const bool reached = user.was_reached();
    user.to(IBV_QPS_RESET);
    return reached;
  };
  for (const int nth : {1, 2, 3}) {
    far_end& other = others.emplace_back(local_node, nth);
    other.fill();
    CHECK(ask(other));
  }
  // Owed to already: its next request waits, and finds nobody then.
  CHECK_FALSE(ask(others.front()));
  for (far_end& other : others) {
    CHECK(other.take().empty());
    other.serve();
    const std::vector<frame_header> told = other.take();
    REQUIRE(told.size() == (&other == &others.front() ? 2 : 1));
    CHECK(told[0].kind == frame_kind::ack);
    CHECK(told[0].psn == psn);
    CHECK(told[0].destination_qpn == other.requester(0));
    CHECK(told.back().kind == (told.size() == 1 ? frame_kind::ack : frame_kind::nak));
  }
}
