#include "link/far_link.hpp"
#include "node/upcalls.hpp"
#include "qp/relay.hpp"
#include "qp/xrc_rig.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <optional>

// The frames of messages that targets pass on, and peers that lie about them.

namespace softverbs::test {
namespace {

constexpr std::uint32_t relayed_bytes = 8;
const std::array<std::byte, relayed_bytes> relayed_payload{std::byte{1}, std::byte{2}};

std::optional<frame_header> next_of(far_link& from) {
  frame_header header;
  const std::byte* payload = nullptr;
  if (from.from_us.refresh() == ring_answer::broken || from.from_us.seen_all()) return std::nullopt;
  REQUIRE(from.from_us.peek(header, payload) == ring_answer::yes);
  from.from_us.pop();
  return header;
}

/// This process, and two others that the test plays.
struct relay_context : xrc_context {
  [[nodiscard]] node& local_node() const { return *soft(ctx).local_node; }
  const std::uint16_t far_slot = local_node().slot() < 8 ? 8 : 5;
  const std::uint16_t next_slot = std::uint16_t(far_slot + 1);
  const std::uint32_t far_number = std::uint32_t{far_slot} << index_bits | 77;
};

/// A process with a queue in a shared domain, to which another process passes messages on.
struct queue_side : relay_context {
  ~queue_side() { ::close(file); }
  [[nodiscard]] frame_header message(std::uint32_t psn, std::uint32_t epoch) const {
    const xrc_domain_id& id = soft(domain.xrcd).id;
    frame_header header{};
    header.kind = frame_kind::send;
    header.flags = frame_flag::first | frame_flag::last;
    header.transport = service::relay;
    header.source_qpn = far_number;
    header.destination_qpn = no_qpn;
    header.psn = psn;
    header.epoch = epoch;
    header.message_bytes = header.payload_bytes = relayed_bytes;
    header.operand[0] = id.inode;
    header.operand[1] = std::uint64_t{id.device} << 32 | queue.number;
    return header;
  }
  /// Brings the frame. Returns the answer to it.
  std::optional<frame_header> bring(far_link& from, const frame_header& header) const {
    REQUIRE(on_request(local_node(), from.ours(), header, relayed_payload.data()));
    for (std::uint32_t index = 2; index < indices_max; ++index)
      REQUIRE(send_answers(local_node(), from.ours(),
                           std::uint32_t{local_node().slot()} << index_bits | index));
    return next_of(from);
  }
  int file = ::memfd_create("domain", MFD_CLOEXEC);
  open_domain domain{ctx, file};
  xrc_queue queue{ctx, domain.xrcd, 4096};
};

}  // namespace

TEST_CASE("a message that another process passes on ends in the queue that it names", "[qp][xrc]") {
  const queue_side self;
  far_link from{self.local_node(), relay_slot(self.far_slot), false};
  self.queue.receive(3, 0, 64);
  const auto answer = self.bring(from, self.message(10, 4));
  REQUIRE(answer);
  CHECK(answer->kind == frame_kind::ack);
  CHECK(answer->destination_qpn == self.far_number);
  CHECK(answer->psn == 10);
  CHECK(answer->epoch == 4);
  const ibv_wc wc = self.queue.await();
  CHECK(wc.wr_id == 3);
  CHECK(wc.qp_num == self.far_number);
  CHECK(std::equal(relayed_payload.begin(), relayed_payload.end(), self.queue.memory.begin()));
}

TEST_CASE("nobody passes messages on in another's name, nor by another way", "[qp][xrc]") {
  const queue_side self;
  self.queue.receive(3, 0, 64);
  far_link relay_link{self.local_node(), relay_slot(self.far_slot), false};
  far_link plain_link{self.local_node(), self.far_slot, false};
  far_link* from = &relay_link;
  frame_header header = self.message(10, 4);
  SECTION("the link of requests") { from = &plain_link; }
  SECTION("a target of another process") { header.source_qpn ^= 1u << index_bits; }
  SECTION("a READ") { header.kind = frame_kind::read; }
  SECTION("an atomic") { header.kind = frame_kind::fetch_add; }
  CHECK_FALSE(self.bring(*from, header));
  CHECK(self.queue.is_quiet());
}

TEST_CASE("a passed-on message of a wrong queue, domain or shape is an invalid request",
          "[qp][xrc]") {
  const queue_side self;
  self.queue.receive(3, 0, 64);
  far_link from{self.local_node(), relay_slot(self.far_slot), false};
  frame_header header = self.message(10, 4);
  SECTION("another inode") { ++header.operand[0]; }
  SECTION("another device") { header.operand[1] += std::uint64_t{1} << 32; }
  SECTION("another queue") { ++header.operand[1]; }
  SECTION("more bytes than its message has") { header.payload_bytes = relayed_bytes + 1; }
  SECTION("a message without end") { header.message_bytes = ~std::uint32_t{0}; }
  SECTION("a message that does not fit") {
    header.message_bytes = 1000;
    header.flags = frame_flag::first;
  }
  const auto answer = self.bring(from, header);
  REQUIRE(answer);
  CHECK(answer->kind == frame_kind::nak);
  CHECK(answer->nak == nak_code::invalid_request);
  CHECK(answer->psn == 10);
}

TEST_CASE("a passed-on message whose link ends gives its receive back", "[qp][xrc]") {
  const queue_side self;
  far_link from{self.local_node(), relay_slot(self.far_slot), false};
  self.queue.receive(3, 0, 64);
  frame_header half = self.message(10, 4);
  half.flags = frame_flag::first;
  half.message_bytes = 2 * relayed_bytes;
  REQUIRE_FALSE(self.bring(from, half));
  const std::uint32_t numbers = std::uint32_t{self.local_node().slot()} << index_bits;
  for (std::uint32_t index = 2; index < indices_max; ++index)
    on_relay_link_down(self.local_node(), from.ours(), from.ours().generation(), numbers | index);
  const ibv_wc flushed = self.queue.await();
  CHECK(flushed.wr_id == 3);
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("idle proxies make room for those of new targets", "[qp][xrc]") {
  const queue_side self;
  far_link from{self.local_node(), relay_slot(self.far_slot), false};
  constexpr std::uint32_t proxies_max = 4096;
  std::uint32_t acknowledged = 0;
  for (std::uint32_t index = 1; index <= proxies_max + 2; ++index) {
    self.queue.receive(index, 0, 64);
    frame_header header = self.message(10, 4);
    header.source_qpn = std::uint32_t{self.far_slot} << index_bits | index;
    REQUIRE(on_request(self.local_node(), from.ours(), header, relayed_payload.data()));
    const auto answer = next_of(from);
    REQUIRE(answer);
    acknowledged += answer->kind == frame_kind::ack ? 1 : 0;
    REQUIRE(self.queue.await().wr_id == index);
  }
  CHECK(acknowledged == proxies_max + 2);
}

TEST_CASE("after a refusal, the rest of its epoch has no effect", "[qp][xrc]") {
  const queue_side self;
  far_link from{self.local_node(), relay_slot(self.far_slot), false};
  const auto refused = self.bring(from, self.message(10, 4));
  REQUIRE(refused);
  CHECK(refused->nak == nak_code::rnr);
  self.queue.receive(3, 0, 64);
  CHECK_FALSE(self.bring(from, self.message(11, 4)));
  CHECK(self.queue.is_quiet());
  const auto taken = self.bring(from, self.message(10, 5));
  REQUIRE(taken);
  CHECK(taken->kind == frame_kind::ack);
  CHECK(self.queue.await().wr_id == 3);
}

namespace {

/// A target whose initiator is on another host, and whose messages go to a process of this one.
struct target_side : relay_context {
  target_side() {
    target.connect(far_number, 10, 0);
    // The initiator's process, which the test plays.
    target.inner().peer = initiator.ours().peer();
    target.inner().is_peer_local = false;
    relay& state = *target.inner().passed_on;
    state.route = &queue_process.ours();
    state.route_generation = queue_process.ours().generation();
    state.slot = next_slot;
  }
  ~target_side() { ::close(file); }
  [[nodiscard]] frame_header request(std::uint32_t psn) const {
    frame_header header{};
    header.kind = frame_kind::send;
    header.flags = frame_flag::first | frame_flag::last;
    header.transport = service::rc;
    header.source_qpn = far_number;
    header.destination_qpn = target.qp->qp_num;
    header.psn = psn;
    header.epoch = 3;
    header.message_bytes = header.payload_bytes = relayed_bytes;
    name_queue(header, std::uint32_t{next_slot} << index_bits | 9);
    return header;
  }
  bool bring(const frame_header& header) {
    return on_request(local_node(), initiator.ours(), header, relayed_payload.data());
  }
  bool bring(std::uint32_t psn) { return bring(request(psn)); }
  void answer(frame_kind kind, std::uint32_t psn, std::uint32_t epoch,
              nak_code why = nak_code::none) {
    frame_header header{};
    header.kind = kind;
    header.destination_qpn = target.qp->qp_num;
    header.psn = psn;
    header.epoch = epoch;
    header.nak = why;
    REQUIRE(on_answer(local_node(), queue_process.ours(), header, nullptr));
  }
  int file = ::memfd_create("domain", MFD_CLOEXEC);
  open_domain domain{ctx, file};
  far_link initiator{local_node(), far_slot, false};
  far_link queue_process{local_node(), relay_slot(next_slot), true};
  xrc_end target{ctx, domain.xrcd};
};

}  // namespace

TEST_CASE("a target answers what it passed on when the queue's process has", "[qp][xrc]") {
  target_side self;
  REQUIRE(self.bring(10));
  REQUIRE(self.bring(11));
  const auto passed = next_of(self.queue_process);
  REQUIRE(passed);
  CHECK(passed->transport == service::relay);
  CHECK(passed->source_qpn == self.target.qp->qp_num);
  CHECK(passed->psn == 10);
  CHECK_FALSE(next_of(self.initiator));
  self.answer(frame_kind::ack, 10, passed->epoch + 1);  // No message has this epoch.
  self.answer(frame_kind::ack, 9, passed->epoch);
  self.answer(frame_kind::read_response, 10, passed->epoch);
  CHECK_FALSE(next_of(self.initiator));
  self.answer(frame_kind::ack, 11, passed->epoch);
  const auto answer = next_of(self.initiator);
  REQUIRE(answer);
  CHECK(answer->kind == frame_kind::ack);
  CHECK(answer->psn == 11);
  CHECK(answer->epoch == 3);
}

TEST_CASE("a refusal of the queue's process makes the initiator send again from there",
          "[qp][xrc]") {
  target_side self;
  for (const std::uint32_t psn : {10u, 11u, 12u}) REQUIRE(self.bring(psn));
  const std::uint32_t epoch = next_of(self.queue_process)->epoch;
  self.answer(frame_kind::nak, 40, epoch, nak_code::rnr);  // No message has this PSN.
  CHECK_FALSE(next_of(self.initiator));
  self.answer(frame_kind::nak, 11, epoch, nak_code::rnr);
  const auto answer = next_of(self.initiator);
  REQUIRE(answer);
  CHECK(answer->nak == nak_code::rnr);
  CHECK(answer->psn == 11);
  CHECK(answer->immediate == 1);  // The timer of the target.
  while (next_of(self.queue_process)) {
  }
  self.answer(frame_kind::ack, 12, epoch);  // This message was sent in vain.
  REQUIRE(self.bring(13));                  // The initiator had sent it before it heard.
  CHECK_FALSE(next_of(self.initiator));
  CHECK_FALSE(next_of(self.queue_process));
  REQUIRE(self.bring(11));
  const auto again = next_of(self.queue_process);
  REQUIRE(again);
  CHECK(again->psn == 11);
  CHECK(again->epoch != epoch);
}

TEST_CASE("an invalid request is refused when what was passed on before it has its answer",
          "[qp][xrc]") {
  target_side self;
  REQUIRE(self.bring(10));
  const std::uint32_t epoch = next_of(self.queue_process)->epoch;
  frame_header invalid = self.request(11);
  SECTION("a READ") { invalid.kind = frame_kind::read; }
  SECTION("a wrong shape") { invalid.payload_bytes = relayed_bytes + 1; }
  CHECK_FALSE(self.bring(invalid));
  CHECK_FALSE(next_of(self.initiator));
  CHECK(self.target.inner().state == IBV_QPS_RTS);
  self.answer(frame_kind::ack, 10, epoch);
  CHECK(next_of(self.initiator)->kind == frame_kind::ack);
  REQUIRE(self.bring(invalid));
  REQUIRE(send_answers(self.local_node(), self.initiator.ours(), self.target.qp->qp_num));
  const auto refused = next_of(self.initiator);
  REQUIRE(refused);
  CHECK(refused->nak == nak_code::invalid_request);
  CHECK(refused->psn == 11);
}

TEST_CASE("a number beyond all numbers of queues is an invalid request", "[qp][xrc]") {
  target_side self;
  frame_header header = self.request(10);
  name_queue(header, 1u << (index_bits + 16) | std::uint32_t{self.next_slot} << index_bits | 9);
  REQUIRE(self.bring(header));
  REQUIRE(send_answers(self.local_node(), self.initiator.ours(), self.target.qp->qp_num));
  const auto answer = next_of(self.initiator);
  REQUIRE(answer);
  CHECK(answer->nak == nak_code::invalid_request);
  CHECK_FALSE(next_of(self.queue_process));
}

namespace {

/// A target with two queues in its process, whose initiator is on another host.
struct two_queues : target_side {
  two_queues() {
    first.receive(1, 0, 64);
    second.receive(2, 0, 64);
  }
  /// Brings a half of a message of two.
  void half(bool is_last, std::uint32_t to) {
    frame_header header{};
    header.kind = frame_kind::send;
    header.flags = is_last ? frame_flag::last : frame_flag::first;
    header.transport = service::rc;
    header.source_qpn = far_number;
    header.destination_qpn = target.qp->qp_num;
    header.psn = 10;
    header.epoch = 3;
    header.payload_bytes = relayed_bytes;
    header.message_bytes = 2 * relayed_bytes;
    header.offset = is_last ? relayed_bytes : 0;
    name_queue(header, to);
    REQUIRE(on_request(local_node(), initiator.ours(), header, relayed_payload.data()));
    REQUIRE(send_answers(local_node(), initiator.ours(), target.qp->qp_num));
  }
  xrc_queue first{ctx, domain.xrcd, 4096};
  xrc_queue second{ctx, domain.xrcd, 4096};
};

}  // namespace

TEST_CASE("a message that changes its queue in the middle is an invalid request", "[qp][xrc]") {
  two_queues self;
  const std::uint32_t foreign = std::uint32_t{self.next_slot} << index_bits | 9;
  std::uint32_t begun = self.first.number, ended = self.second.number;
  SECTION("in this process") {}
  SECTION("from another process to this one") { begun = foreign; }
  SECTION("from this process to another one") { ended = foreign; }
  SECTION("in another process") {
    begun = foreign;
    ended = foreign + 1;
  }
  self.half(false, begun);
  self.half(true, ended);
  const auto answer = next_of(self.initiator);
  REQUIRE(answer);
  CHECK(answer->nak == nak_code::invalid_request);
  CHECK(self.second.is_quiet());
}

TEST_CASE("a message that begins again for another queue gives the receive of the first one back",
          "[qp][xrc]") {
  two_queues self;
  self.half(false, self.first.number);
  self.half(false, self.second.number);
  const ibv_wc flushed = self.first.await();
  CHECK(flushed.wr_id == 1);
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
  self.half(true, self.second.number);
  CHECK(self.second.await().byte_len == 2 * relayed_bytes);
}

TEST_CASE("a queue that is destroyed in the middle of a message takes no more of it", "[qp][xrc]") {
  two_queues self;
  self.half(false, self.first.number);
  const std::vector<std::byte> before = self.first.memory;
  self.first.destroy();
  self.half(true, self.first.number);
  const auto answer = next_of(self.initiator);
  REQUIRE(answer);
  CHECK(answer->nak == nak_code::invalid_request);
  CHECK(self.first.memory == before);
  CHECK(self.first.is_quiet());
}

}  // namespace softverbs::test
