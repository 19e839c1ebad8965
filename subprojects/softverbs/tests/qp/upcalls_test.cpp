#include "node/upcalls.hpp"

#include "link/idle_engine.hpp"
#include "link/link.hpp"
#include "pair.hpp"
#include "qp/data_path.hpp"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <bit>
#include <optional>

namespace softverbs::test {

namespace {

/// A hand-made remote process, and the far end of the link to it. No node knows the link, so only
/// the test passes its frames on.
struct remote_process {
  explicit remote_process(const char* address, std::uint16_t slot, bool we_opened) {
    REQUIRE(::inet_pton(AF_INET6, address, &host.host) == 1);
    host.slot = slot;
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    socket.reset(sockets[1]);
    unique_fd file{ring_memory::create_file()};
    REQUIRE((memory.reserve() && memory.map(file.get(), !we_opened)));
    from_us.attach(memory.in());
    link::setup how{host, unique_fd{sockets[0]}, std::move(file), we_opened, 0};
    REQUIRE(route.start(how));
  }
  /// The next frame that went there.
  std::optional<frame_header> next() {
    frame_header header;
    const std::byte* payload = nullptr;
    if (from_us.peek(header, payload) != ring_answer::yes) return std::nullopt;
    from_us.pop();
    return header;
  }

  node_address host;
  link route{idle_engine()};

 private:
  unique_fd socket;
  ring_memory memory;
  ring_consumer from_us;
};

constexpr const char* an_address = "::ffff:192.0.2.1";
constexpr std::uint16_t a_slot = 5;
constexpr std::uint32_t a_number = std::uint32_t{a_slot} << index_bits | 77;

/// `one` becomes connected to the queue pair `a_number` there.
void connect_to(side& one, remote_process& remote) {
  one.inner().peer = remote.host;
  one.inner().is_peer_local = false;
  one.inner().terms.peer_qpn = one.inner().attr.dest_qp_num = a_number;
  if (!remote.route.opened()) return;
  one.inner().requester.route = &remote.route;
  one.inner().requester.route_generation = remote.route.generation();
}

constexpr std::uint32_t message_bytes = 8;

/// A WRITE of all of its message to the start of the buffer, as the responder expects it.
frame_header write_to(const side& to) {
  frame_header header{};
  header.kind = frame_kind::write;
  header.flags = frame_flag::first | frame_flag::last;
  header.transport = service_of(to.inner());
  header.source_qpn = a_number;
  header.destination_qpn = to.qp->qp_num;
  header.epoch = to.inner().responder.epoch;
  header.psn = to.inner().slot->expected.psn;
  header.rkey = to.mr->rkey;
  header.remote_address = to.address();
  header.message_bytes = header.payload_bytes = message_bytes;
  return header;
}

/// The request comes; what it is answered with.
std::optional<frame_header> bring(side& to, remote_process& from, const frame_header& header,
                                  const std::byte* payload) {
  node& local_node = *to.inner().local_node;
  REQUIRE(on_request(local_node, from.route, header, payload));
  REQUIRE(send_answers(local_node, from.route, header.destination_qpn));
  return from.next();
}

frame_header answer_to(const side& requester, frame_kind kind, std::uint32_t psn) {
  frame_header header{};
  header.kind = kind;
  header.transport = service::rc;
  header.source_qpn = a_number;
  header.destination_qpn = requester.qp->qp_num;
  header.epoch = requester.inner().requester.epoch;
  header.psn = psn;
  return header;
}

}  // namespace

TEST_CASE("a connection takes requests of its peer alone: its host, its process, its number",
          "[qp]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  remote_process peer{an_address, a_slot, false};
  pair ends{{.type = type}};
  side& b = ends.b;
  connect_to(b, peer);
  const std::vector<std::byte> payload(message_bytes, std::byte{0x55});
  frame_header header = write_to(b);
  const auto is_refused = [&](remote_process& from) {
    const auto answer = bring(b, from, header, payload.data());
    CHECK(b.memory[0] == std::byte{0});
    CHECK_FALSE(b.was_reached());
    CHECK(answer.has_value() == (type == IBV_QPT_RC));
    if (answer) CHECK(answer->nak == nak_code::dropped);
  };
  SECTION("another host") {
    remote_process impostor{"::ffff:192.0.2.2", a_slot, false};
    is_refused(impostor);
  }
  SECTION("this host") {
    remote_process impostor{"::", a_slot, false};
    is_refused(impostor);
  }
  SECTION("another process of that host") {
    remote_process impostor{an_address, a_slot + 1, false};
    is_refused(impostor);
  }
  SECTION("another queue pair of that process") {
    header.source_qpn ^= 1;
    is_refused(peer);
    header.source_qpn ^= 1;
  }
  const auto answer = bring(b, peer, header, payload.data());
  CHECK(std::equal(payload.begin(), payload.end(), b.memory.begin()));
  CHECK(answer.has_value() == (type == IBV_QPT_RC));
  if (answer) CHECK(answer->kind == frame_kind::ack);
}

TEST_CASE("a request whose bytes cannot be read was not taken: it may come again", "[qp]") {
  install_fault_guard();
  const auto kind = GENERATE(frame_kind::write, frame_kind::send);
  remote_process peer{an_address, a_slot, false};
  pair ends;
  side& b = ends.b;
  connect_to(b, peer);
  REQUIRE(b.receive(5, {b.piece(0, message_bytes)}) == 0);
  void* gone = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  frame_header header = write_to(b);
  header.kind = kind;
  const auto refusal = bring(b, peer, header, static_cast<const std::byte*>(gone));
  ::munmap(gone, 4096);
  REQUIRE(refusal.has_value());
  CHECK(refusal->kind == frame_kind::nak);
  CHECK(refusal->nak == nak_code::dropped);
  CHECK(b.state() == IBV_QPS_RTS);
  CHECK(b.is_quiet());

  const std::vector<std::byte> payload(message_bytes, std::byte{0x55});
  const auto answer = bring(b, peer, header, payload.data());
  REQUIRE(answer.has_value());
  CHECK(answer->kind == frame_kind::ack);
  CHECK(std::equal(payload.begin(), payload.end(), b.memory.begin()));
  CHECK(b.is_quiet() == (kind == frame_kind::write));
}

TEST_CASE("each refusal is told, whatever was refused just before", "[qp]") {
  remote_process peer{an_address, a_slot, false};
  pair ends;
  side& b = ends.b;
  connect_to(b, peer);
  const std::vector<std::byte> payload(message_bytes);
  const frame_header expected = write_to(b);
  const auto refused = [&](const frame_header& header, nak_code why) {
    const auto answer = peer.next();
    REQUIRE(answer.has_value());
    CHECK(answer->psn == header.psn);
    CHECK(answer->nak == why);
  };
  frame_header old = expected;  // A frame of an earlier connection of the same two numbers.
  old.psn = (expected.psn + GENERATE(psn_mask - 6, 7u)) & psn_mask;
  node& local_node = *b.inner().local_node;
  REQUIRE(on_request(local_node, peer.route, old, payload.data()));
  SECTION("then one that may not") {
    frame_header forbidden = expected;
    forbidden.rkey ^= 1;
    REQUIRE(on_request(local_node, peer.route, forbidden, payload.data()));
    REQUIRE(send_answers(local_node, peer.route, b.qp->qp_num));
    refused(old, nak_code::dropped);
    refused(forbidden, nak_code::remote_access);
    CHECK(b.state() == IBV_QPS_ERR);
    // A requester never repeats what follows a refused request: nobody waits for an answer to it.
    frame_header next = expected;
    next.psn = (expected.psn + 1) & psn_mask;
    CHECK_FALSE(bring(b, peer, next, payload.data()).has_value());
  }
  SECTION("then one that nobody takes any more") {
    b.to(IBV_QPS_ERR);
    REQUIRE(on_request(local_node, peer.route, expected, payload.data()));
    REQUIRE(send_answers(local_node, peer.route, b.qp->qp_num));
    refused(old, nak_code::dropped);
    refused(expected, nak_code::dropped);
  }
  CHECK_FALSE(peer.next().has_value());
}

TEST_CASE("whoever connects anew is told until its peer does, and is served then", "[qp]") {
  remote_process peer{an_address, a_slot, false};
  pair ends;
  side& b = ends.b;
  connect_to(b, peer);
  const std::vector<std::byte> payload(message_bytes, std::byte{0x55});
  const frame_header first = write_to(b);
  REQUIRE(bring(b, peer, first, payload.data())->kind == frame_kind::ack);
  frame_header refused = write_to(b);
  refused.kind = frame_kind::send;  // No receive is posted for a SEND.
  REQUIRE(bring(b, peer, refused, payload.data())->nak == nak_code::rnr);
  // The peer's next connection, while this side is still in the one before.
  frame_header anew = first;
  anew.epoch = first.epoch + 1;
  anew.psn = (refused.psn + GENERATE(psn_mask - 6, 7u)) & psn_mask;
  for (int n = 0; n < 2; ++n) {
    const auto answer = bring(b, peer, anew, payload.data());
    REQUIRE(answer.has_value());
    CHECK(answer->nak == nak_code::dropped);
    CHECK(answer->epoch == anew.epoch);
    CHECK(answer->psn == anew.psn);
  }
  // The old one was not disturbed.
  const auto again = bring(b, peer, refused, payload.data());
  REQUIRE(again.has_value());
  CHECK(again->nak == nak_code::rnr);
  CHECK(again->epoch == refused.epoch);
  // The side begins anew, too; something of the old connection comes late.
  b.inner().responder = {};
  b.inner().slot->expected.psn = anew.psn;
  CHECK(bring(b, peer, refused, payload.data())->nak == nak_code::dropped);
  const auto taken = bring(b, peer, anew, payload.data());
  REQUIRE(taken.has_value());
  CHECK(taken->kind == frame_kind::ack);
  CHECK(taken->epoch == anew.epoch);
}

TEST_CASE("what comes late on a link of before does not take the answers along", "[qp]") {
  remote_process before{an_address, a_slot, false};
  remote_process now{an_address, a_slot, false};
  pair ends;
  side& b = ends.b;
  connect_to(b, now);
  const std::vector<std::byte> payload(message_bytes);
  const frame_header header = write_to(b);
  node& local_node = *b.inner().local_node;
  REQUIRE(on_request(local_node, now.route, header, payload.data()));
  REQUIRE(on_request(local_node, before.route, header,
                     payload.data()));  // Sent there first, taken here.
  REQUIRE(send_answers(local_node, now.route, b.qp->qp_num));
  const auto answer = now.next();
  REQUIRE(answer.has_value());
  CHECK(answer->kind == frame_kind::ack);
}

TEST_CASE("a refusal says that all requests before it are done; one that skips a READ is a lie",
          "[qp]") {
  const auto first = GENERATE(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ);
  remote_process peer{an_address, a_slot, true};
  pair ends;
  side& a = ends.a;
  connect_to(a, peer);
  for (const auto opcode : {first, IBV_WR_RDMA_WRITE})
    REQUIRE(a.send(one_sided(opcode, ends.b), {a.piece(0, message_bytes)}) == 0);
  REQUIRE(peer.next().has_value());
  const auto second = peer.next();
  REQUIRE(second.has_value());
  frame_header refusal = answer_to(a, frame_kind::nak, second->psn);
  refusal.nak = nak_code::remote_access;
  const bool honest = on_answer(*a.inner().local_node, peer.route, refusal, nullptr);
  CHECK(honest == (first == IBV_WR_RDMA_WRITE));
  if (!honest) {
    CHECK(a.is_quiet());
    return;
  }
  CHECK(a.await().status == IBV_WC_SUCCESS);
  CHECK(a.await().status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a READ whose region goes before its answer is refused, and the WRITE before it is done",
          "[qp]") {
  remote_process peer{an_address, a_slot, false};
  pair ends;
  side& b = ends.b;
  connect_to(b, peer);
  const std::vector<std::byte> payload(message_bytes);
  ibv_mr* region = verb::reg_mr(b.pd, b.memory.data(), message_bytes, b.address(), all_access);
  REQUIRE(region != nullptr);
  const frame_header write = write_to(b);
  frame_header read = write;
  read.kind = frame_kind::read;
  read.psn = (write.psn + 1) & psn_mask;
  read.rkey = region->rkey;
  read.payload_bytes = 0;
  node& local_node = *b.inner().local_node;
  REQUIRE(on_request(local_node, peer.route, write, payload.data()));
  REQUIRE(on_request(local_node, peer.route, read, nullptr));
  REQUIRE(verb::dereg_mr(region) == 0);
  REQUIRE(send_answers(local_node, peer.route, b.qp->qp_num));
  const auto answer = peer.next();
  REQUIRE(answer.has_value());
  CHECK(answer->kind == frame_kind::nak);
  CHECK(answer->nak == nak_code::remote_access);
  CHECK(answer->psn == read.psn);  // A refusal: so the requester completes the WRITE.
  CHECK_FALSE(peer.next().has_value());
  CHECK(b.state() == IBV_QPS_ERR);
}

TEST_CASE("an answer that no request in flight waits for completes nothing", "[qp]") {
  remote_process peer{an_address, a_slot, true};
  remote_process other{an_address, a_slot, true};
  pair ends;
  side& a = ends.a;
  node& local_node = *a.inner().local_node;
  connect_to(a, peer);
  std::fill_n(a.memory.begin(), 2 * message_bytes, std::byte{0x11});
  const std::vector<std::byte> payload(segment_bytes_max, std::byte{0x55});
  const auto hear = [&](remote_process& from, const frame_header& header) {
    return on_answer(local_node, from.route, header, payload.data());
  };
  const bool reads = GENERATE(false, true);
  REQUIRE(a.send(one_sided(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, ends.b),
                 {a.piece(0, message_bytes)}) == 0);
  const auto sent = peer.next();
  REQUIRE(sent.has_value());
  const auto data = [&](std::uint32_t offset, std::uint32_t bytes, std::uint32_t of) {
    frame_header header = answer_to(a, frame_kind::read_response, sent->psn);
    header.offset = offset;
    header.payload_bytes = bytes;
    header.message_bytes = of;
    return header;
  };
  frame_header good = answer_to(a, frame_kind::ack, sent->psn);
  if (reads) good = data(0, message_bytes, message_bytes);

  const auto is_let_pass = [&](auto change) {
    frame_header header = good;
    change(header);
    CHECK(hear(peer, header));
  };
  // Packets that may be of the past are ignored.
  SECTION("a packet not sent yet") {
    is_let_pass([](auto& header) { header.psn = (header.psn + 1) & psn_mask; });
  }
  SECTION("a packet before it") {
    is_let_pass([](auto& header) { header.psn = (header.psn - 1) & psn_mask; });
  }
  SECTION("another queue pair's") {
    is_let_pass([](auto& header) { header.source_qpn ^= 1; });
  }
  SECTION("another connection's of the same queue pairs") {
    is_let_pass([](auto& header) { ++header.epoch; });
  }
  SECTION("another link's") { CHECK(hear(other, good)); }
  // Lies, which end the link.
  SECTION("a request") { CHECK_FALSE(hear(peer, answer_to(a, frame_kind::write, sent->psn))); }
  SECTION("an atomic's") {
    CHECK_FALSE(hear(peer, answer_to(a, frame_kind::atomic_response, sent->psn)));
  }
  if (reads) {
    SECTION("an ack without data") {
      CHECK_FALSE(hear(peer, answer_to(a, frame_kind::ack, sent->psn)));
    }
    SECTION("a byte too many") { CHECK_FALSE(hear(peer, data(0, message_bytes + 1, 8))); }
    SECTION("of a longer message") { CHECK_FALSE(hear(peer, data(0, message_bytes, 9))); }
    SECTION("not its beginning") { CHECK_FALSE(hear(peer, data(1, 7, message_bytes))); }
    SECTION("no byte at all") { CHECK_FALSE(hear(peer, data(0, 0, message_bytes))); }
  } else {
    SECTION("data") { CHECK_FALSE(hear(peer, data(0, message_bytes, message_bytes))); }
  }
  CHECK(a.is_quiet());
  CHECK(a.memory[0] == std::byte{0x11});
  CHECK(hear(peer, good));
  CHECK(a.await().status == IBV_WC_SUCCESS);
  CHECK(a.memory[0] == std::byte{reads ? std::uint8_t{0x55} : std::uint8_t{0x11}});
  CHECK(a.memory[message_bytes] == std::byte{0x11});
}

TEST_CASE("an answer to what was sent before it was sent again does not count for that", "[qp]") {
  remote_process peer{an_address, a_slot, true};
  pair ends{{.retry_cnt = 7}};
  side& a = ends.a;
  node& local_node = *a.inner().local_node;
  connect_to(a, peer);
  for (int n = 0; n < 2; ++n)
    REQUIRE(a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {a.piece(0, message_bytes)}) == 0);
  const auto next = [&] {
    std::optional<frame_header> frame;
    for (const auto end = clock::now() + std::chrono::seconds{60};
         !(frame = peer.next()) && clock::now() < end;)
      local_node.progress();
    REQUIRE(frame.has_value());
    return *frame;
  };
  const auto answer = [&](const frame_header& to, frame_kind kind) {
    frame_header header = answer_to(a, kind, to.psn);
    header.epoch = to.epoch;
    if (kind == frame_kind::nak) header.nak = nak_code::dropped;
    REQUIRE(on_answer(local_node, peer.route, header, nullptr));
  };
  const frame_header first = next(), second = next();
  answer(first, frame_kind::nak);  // The peer's queue pair was not there yet.
  const frame_header first_again = next(), second_again = next();
  CHECK(first_again.psn == first.psn);
  CHECK(second_again.psn == second.psn);
  // The receiver is there now, and takes both; the second's refusal comes only now.
  answer(second, frame_kind::nak);
  answer(second_again, frame_kind::ack);
  CHECK(a.await().status == IBV_WC_SUCCESS);
  CHECK(a.await().status == IBV_WC_SUCCESS);
}

TEST_CASE("a request that finds its link gone has begun, and so have those that wait for answers",
          "[qp]") {
  remote_process peer{an_address, a_slot, true};
  pair ends{{.retry_cnt = 7}};
  side& a = ends.a;
  connect_to(a, peer);
  const auto write = [&] {
    REQUIRE(a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {a.piece(0, message_bytes)}) == 0);
  };
  write();
  REQUIRE(peer.next().has_value());
  step_mutex directory;
  index_set waiters;
  peer.route.stop(directory, waiters);
  write();
  const std::lock_guard lock{a.inner().slot->send};
  CHECK(a.inner().begun() == a.inner().sends.completed + 2);
}

TEST_CASE("PSNs in flight stay comparable: a request waits that would take more than half of them",
          "[qp]") {
  constexpr std::uint32_t half = psn_mask / 2;
  for (const std::uint32_t first : {0u, 1u, half, psn_mask}) {
    CHECK(psn_distance(first, (first + half) & psn_mask) == half);
    CHECK(psn_distance(first, (first + half + 1) & psn_mask) < 0);
  }
  constexpr std::uint32_t mtu = 256;
  constexpr std::uint32_t longest = message_bytes_max / mtu;  // Packets of it.
  remote_process peer{an_address, a_slot, true};
  pair ends;
  side& a = ends.a;
  connect_to(a, peer);
  a.inner().terms.mtu_shift = std::countr_zero(mtu);
  void* wide = ::mmap(nullptr, message_bytes_max, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(wide != MAP_FAILED);
  const ibv_mr* region = a.add_region(wide, message_bytes_max, IBV_ACCESS_LOCAL_WRITE);
  const auto read = [&](std::uint32_t packets) {
    const ibv_sge all{reinterpret_cast<std::uint64_t>(wide), packets * mtu, region->lkey};
    REQUIRE(a.send(one_sided(IBV_WR_RDMA_READ, ends.b), {all}) == 0);
    return peer.next();
  };
  const auto write = [&] {
    REQUIRE(a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {a.piece(0, 8)}) == 0);
    return peer.next();
  };
  const auto oldest = write();
  REQUIRE(oldest.has_value());
  REQUIRE(read(longest).has_value());
  const auto newest = read(half - 1 - longest);
  REQUIRE(newest.has_value());
  CHECK(psn_distance(oldest->psn, a.inner().requester.psn) == half);

  CHECK_FALSE(write().has_value());
  REQUIRE(on_answer(*a.inner().local_node, peer.route, answer_to(a, frame_kind::ack, oldest->psn),
                    nullptr));
  CHECK(a.await().status == IBV_WC_SUCCESS);
  const auto next = peer.next();
  REQUIRE(next.has_value());
  CHECK(next->psn == ((oldest->psn + half) & psn_mask));
  CHECK_FALSE(write().has_value());
  ::munmap(wide, message_bytes_max);
}

}  // namespace softverbs::test
