#include "link/link.hpp"
#include "pair.hpp"

#include <sys/socket.h>

#include <deque>

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint32_t psn = 5;

/// A process that opened a link to us, as this one plays it: what it asks is served when it says
/// so, by no other thread, and it takes no answers before it looks.
class far_end {
 public:
  explicit far_end(node& home, int nth)
      : home_{home}, slot_{static_cast<std::uint16_t>((home.slot() + nth) % int{process_slots})} {
    // Never freed, as the node's are not: whoever owes an answer refers to its link.
    static std::deque<softverbs::link> links;
    static const std::atomic<bool> polled{true};
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    socket_.reset(ends[0]);
    const int file = ring_memory::create_file();
    REQUIRE(file >= 0);
    REQUIRE(memory_.reserve());
    REQUIRE(memory_.map(file, true));
    requests_.attach(memory_.out());
    answers_.attach(memory_.in());
    softverbs::link::setup how{
        {{}, slot_}, unique_fd{ends[1]}, unique_fd{file}, false, home.slot()};
    ours_ = &links.emplace_back(polled);
    REQUIRE(ours_->start(how));
  }
  ~far_end() {
    std::mutex directory;
    index_set waiters;
    ours_->stop(directory, waiters);
  }

  [[nodiscard]] std::uint32_t requester(std::uint32_t nth) const {
    return std::uint32_t{slot_} << index_bits | (100 + nth);
  }
  /// No answer has room any more.
  void fill() {
    while (ours_->reserve({}, 0).result == sent::yes) ours_->commit();
  }
  void ask(std::uint32_t from, std::uint32_t to) {
    frame_header header{};
    header.kind = frame_kind::write;
    header.flags = frame_flag::first | frame_flag::last;
    header.source_qpn = from;
    header.destination_qpn = to;
    header.psn = psn;
    std::byte* place = nullptr;
    REQUIRE(requests_.reserve(sizeof header, place) == ring_answer::yes);
    std::memcpy(place, &header, sizeof header);
    requests_.publish(sizeof header);
  }
  void serve() { ours_->serve(home_, true); }
  /// What came since the last look and is no part of fill(); it makes room.
  std::vector<frame_header> take() {
    std::vector<frame_header> all;
    while (answers_.look() == ring_answer::yes && !answers_.seen_all()) {
      frame_header header;
      const std::byte* payload = nullptr;
      REQUIRE(answers_.peek(header, payload) == ring_answer::yes);
      if (header.kind != frame_kind{}) all.push_back(header);
      answers_.pop();
    }
    return all;
  }

 private:
  node& home_;
  std::uint16_t slot_;
  unique_fd socket_;
  ring_memory memory_;
  ring_producer requests_;
  ring_consumer answers_;
  softverbs::link* ours_ = nullptr;
};

}  // namespace

TEST_CASE("all who ask a number that nobody has are told, once there is room for it", "[qp]") {
  const side user{wish{}};  // Its device is open.
  node& home = *user.inner().home;
  // The number of a QP that is gone, or one that was never given out.
  std::uint32_t number = home.allocate_qpn();
  home.free_qpn(number);
  if (GENERATE(false, true)) number ^= indices_max / 2;
  constexpr std::uint32_t requesters = 3;
  std::deque<far_end> others;
  for (const int nth : {1, 2, 3}) {
    far_end& other = others.emplace_back(home, nth);
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

TEST_CASE("a queue pair that is reset leaves no peer without its answer", "[qp]") {
  side user{wish{}};
  node& home = *user.inner().home;
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
    far_end& other = others.emplace_back(home, nth);
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
