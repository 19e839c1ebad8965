#include "fuzz/disturber.hpp"
#include "fuzz/peer.hpp"
#include "fuzz/script.hpp"
#include "fuzz/victim.hpp"

#include "link/listeners.hpp"
#include "multicast/group.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <mutex>

// One execution runs a script, which is read from the fuzzer's bytes. A malicious
// process acts on the shared rings and the listener of a victim, and the victim acts meanwhile.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace softverbs::fuzz {
namespace {

enum class act : std::uint8_t {
  request,
  more_requests,  // the act of `request` again: a script consists mostly of requests
  answer,
  more_answers,
  post,
  more_posts,
  drive,
  disturb,
  disturb_answer,
  scribble,
  move_tail,
  move_head,
  control_words,
  doorbell,
  mumble,
  leave,
  count
};

constexpr int acts_max = 48;  ///< limit of a script

class stage {
 public:
  stage() : peer_{victim_.local_node().slot()} {
    victim_.connect(peer_.slot());
    victim_.recover();
    peer_.come();
  }

  void run(script& in) noexcept {
    if (!peer_.in.open()) peer_.come();
    const std::uint8_t mood = in.byte();
    by_thread_ = mood % threads_every == 1;
    gentle_ = mood % rough_every != 0;
    for (int n = 0; n < acts_max && !in.done(); ++n) perform(in);
    drive();
    victim_.recover();
  }

 private:
  static constexpr unsigned threads_every = 64;  ///< executions without the disturbing thread
  /// Most scripts keep a link alive as far as the peer can: a new one costs hundreds of executions.
  static constexpr unsigned rough_every = 16;
  static constexpr std::uint32_t message_bytes_usual = 2048;

  void perform(script& in) noexcept {
    const auto what = static_cast<act>(in.byte() % static_cast<unsigned>(act::count));
    switch (what) {
      case act::request:
      case act::more_requests: request(in); break;
      case act::answer:
      case act::more_answers: answer(in); break;
      case act::post:
      case act::more_posts: post(in); break;
      case act::drive: drive(); break;
      case act::disturb: disturb(in, peer_.in); break;
      case act::disturb_answer: disturb(in, peer_.back); break;
      case act::scribble: scribble(in, in.byte() % 2 == 0 ? peer_.in : peer_.back); break;
      case act::move_tail: move_tail(in, in.byte() % 2 == 0 ? peer_.in : peer_.back); break;
      case act::move_head: move_head(in, in.byte() % 2 == 0 ? peer_.in : peer_.back); break;
      case act::control_words: control_words(in, in.byte() % 2 == 0 ? peer_.in : peer_.back); break;
      case act::doorbell:
        if (in.byte() % 8 == 0 && peer_.in.open()) peer_.in.ring_doorbell();
        break;
      case act::mumble: mumble(in); break;
      case act::leave:
        if (in.byte() == 0xff) (in.byte() % 2 == 0 ? peer_.in : peer_.back).close();
        break;
      case act::count: break;
    }
  }

  // ---- frames

  void request(script& in) noexcept {
    constexpr std::array kinds{
        frame_kind::send,         frame_kind::write,     frame_kind::read,
        frame_kind::compare_swap, frame_kind::fetch_add, frame_kind::send,
        frame_kind::write,        frame_kind::read,      frame_kind::atomic_write};
    const std::uint8_t which = in.byte();
    const std::uint8_t extra = in.byte();
    const std::uint8_t where = in.byte();
    const std::size_t index = which % victim::qps;
    const victim::key& key = victim_.key_at(where % victim::keys);
    frame_header header{};
    header.kind = kinds[which / victim::qps % kinds.size()];
    header.flags = static_cast<std::uint8_t>(extra & 0x1c);
    header.transport = index == victim::uc   ? service::uc
                       : index == victim::ud ? service::ud
                                             : service::rc;
    header.source_qpn = victim::peer_qpn(peer_.slot(), index);
    header.destination_qpn = victim_.qpn(index);
    header.immediate = key.rkey;
    header.rkey = key.rkey;
    header.qkey = 0x1234;
    header.message_bytes = in.take<std::uint16_t>() % message_bytes_usual;
    if (is_atomic(header.kind)) header.message_bytes = 8;
    header.remote_address = key.address + in.take<std::uint16_t>() % message_bytes_usual;
    offset_in_message(index, extra, in, header);
    header.operand[0] = in.byte();
    header.operand[1] = in.byte();
    const bool to_group = index == victim::ud && (extra & 0x80) != 0;
    if (to_group) {
      header.destination_qpn = multicast_qpn;
      header.payload_bytes += sizeof(ibv_gid);
    }
    lie(in, header);
    const unsigned byte = to_group ? victim::group_byte : in.byte();
    if (peer_.in.open() && peer_.in.has_room()) peer_.in.put(header, byte * 0x0101010101010101u);
  }

  /// Gives a header what the responder expects, except where `extra` says otherwise.
  void offset_in_message(std::size_t index, std::uint8_t extra, script& in,
                         frame_header& header) noexcept {
    const queue_pair& qp = victim_.at(index);
    const std::lock_guard lock{qp.slot->receive};
    const expected_message& expected = qp.slot->expected;
    header.psn = expected.psn;
    if (header.transport == service::rc) header.epoch = qp.responder.epoch;
    const bool ahead = (extra & 0x20) != 0;
    if (ahead) header.psn = (header.psn + in.byte()) & psn_mask;
    const bool carries = header.kind == frame_kind::send || header.kind == frame_kind::write;
    const bool in_pieces = (extra & 0x40) != 0 && carries;
    std::uint32_t left = header.message_bytes;
    if (in_pieces && expected.in_message) {
      header.kind = expected.kind;
      header.message_bytes = expected.message_bytes;
      header.offset = expected.offset;
      left = expected.message_bytes - expected.offset;
    }
    header.payload_bytes = carries ? std::min(left, std::uint32_t{segment_bytes_max}) : 0;
    if (in_pieces) header.payload_bytes = std::min(header.payload_bytes, 1u + in.byte());
    if (header.offset == 0) header.flags |= frame_flag::first;
    if (!carries || header.payload_bytes == left) header.flags |= frame_flag::last;
  }

  void answer(script& in) noexcept {
    constexpr std::array kinds{frame_kind::ack, frame_kind::nak, frame_kind::read_response,
                               frame_kind::atomic_response};
    const std::uint8_t which = in.byte();
    const std::size_t index = which & 1;  // The reliable ones.
    frame_header header{};
    header.kind = kinds[which / 2 % kinds.size()];
    header.nak = static_cast<nak_code>(which / 8 % 6);
    header.transport = service::rc;
    header.source_qpn = victim::peer_qpn(peer_.slot(), index);
    header.destination_qpn = victim_.qpn(index);
    {
      queue_pair& qp = victim_.at(index);
      const std::lock_guard lock{qp.slot->send};
      send_ring& sends = qp.sends;
      header.epoch = qp.requester.epoch;
      header.psn = (qp.requester.psn - 1) & psn_mask;
      if (sends.completed != sends.posted) {
        const send_request& oldest = qp.request(sends.completed);
        if ((which & 0x80) == 0) header.psn = oldest.psn;
        header.message_bytes = oldest.length;
        header.offset = oldest.offset;
        header.payload_bytes = std::min(oldest.length - std::min(oldest.length, oldest.offset),
                                        std::uint32_t{segment_bytes_max});
      }
    }
    if (header.kind != frame_kind::read_response) header.payload_bytes = 0;
    if ((which & 0x40) != 0)
      header.payload_bytes = std::min(header.payload_bytes, std::uint32_t{in.byte()});
    lie(in, header);
    peer_.serve_listener();
    if (peer_.back.open() && peer_.back.has_room()) peer_.back.put(header, in.byte());
  }

  /// A few bytes of the header become others; most often none.
  void lie(script& in, frame_header& header) const noexcept {
    constexpr unsigned lies_max = 3;
    const unsigned lies = in.byte();
    if (lies > lies_max) return;
    std::array<std::uint8_t, sizeof header> bytes;
    std::memcpy(bytes.data(), &header, sizeof header);
    for (unsigned n = 0; n < lies; ++n) {
      const std::size_t at = in.byte() % bytes.size();
      const std::uint8_t flip = in.byte();
      if (gentle_ && at <= offsetof(frame_header, kind)) continue;
      bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ flip);
    }
    std::memcpy(&header, bytes.data(), sizeof header);
  }

  // ---- what else can be done to a ring

  void disturb(script& in, hostile_link& route) noexcept {
    const std::uint8_t word = in.byte() % (sizeof(frame_header) / 8);
    const std::uint8_t ahead = in.byte() % 4;
    const std::uint16_t target = in.take<std::uint16_t>() % 512;
    const std::uint8_t flip = in.byte();
    const std::uint8_t loads = in.byte() % 4;
    if (!route.open()) return;
    std::byte* frame = route.next_frame() + std::size_t{ahead} * frame_align;
    const auto offset = reinterpret_cast<std::uintptr_t>(frame + std::size_t{word} * 8) % 4096;
    disturber_.add({.target = frame + target,
                    .flip = flip,
                    .page_offset = static_cast<std::uint16_t>(offset),
                    .loads_before = loads});
  }

  static void scribble(script& in, hostile_link& route) noexcept {
    const std::size_t at = in.take<std::uint32_t>() % (ring_bytes / 8) * 8;
    const auto word = in.take<std::uint64_t>();
    if (route.open())
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(route.out_data() + at), word,
                       __ATOMIC_RELAXED);
  }

  void move_tail(script& in, hostile_link& route) noexcept {
    const std::uint8_t how = in.byte();
    const auto by = in.take<std::uint64_t>();
    if (!route.open() || gentle_) return;
    if (how % 32 == 31)
      route.publish(by);
    else if (how % 4 == 3)  // Old bytes of the ring become frames.
      route.publish(route.tail() + by % 64 * frame_align);
  }

  void move_head(script& in, hostile_link& route) const noexcept {
    const std::uint8_t how = in.byte();
    const auto by = in.take<std::uint64_t>();
    if (!route.open()) return;
    if (how % 32 == 31 && !gentle_)
      route.in().head.store(by);
    else if (how % 4 == 3)
      route.in().head.store(route.in().tail.load() - by % (ring_bytes / frame_align) * frame_align);
  }

  static void control_words(script& in, hostile_link& route) noexcept {
    const std::uint8_t which = in.byte();
    if (!route.open()) return;
    route.in().doorbell_wanted.store(which & 1);
    route.out().space_wanted.store(which >> 1 & 1);
    route.in().space_wanted.store(which >> 2 & 1);
  }

  // ---- the rest

  void post(script& in) noexcept {
    constexpr std::array opcodes{IBV_WR_SEND,
                                 IBV_WR_RDMA_WRITE,
                                 IBV_WR_RDMA_READ,
                                 IBV_WR_ATOMIC_CMP_AND_SWP,
                                 IBV_WR_ATOMIC_FETCH_AND_ADD,
                                 IBV_WR_RDMA_READ,
                                 IBV_WR_SEND_WITH_IMM,
                                 IBV_WR_RDMA_WRITE_WITH_IMM};
    const std::uint8_t which = in.byte();
    const std::uint16_t bytes = in.take<std::uint16_t>() % 4097;
    victim_.post(which % victim::qps, opcodes[which / victim::qps % opcodes.size()],
                 which >= 0x80 ? IBV_SEND_SIGNALED : 0, bytes);
    peer_.serve_listener();
  }

  /// Connections that are no peers.
  void mumble(script& in) noexcept {
    constexpr std::uint8_t seldom = 0xa5;
    if (in.byte() != seldom) return;
    hello words;
    words.slot = peer_.slot();
    std::array<std::uint8_t, sizeof words> bytes;
    std::memcpy(bytes.data(), &words, sizeof words);
    const std::size_t at = in.byte() % offsetof(hello, reserved);
    bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (in.byte() | 1));
    peer_.mumble(bytes.data(), in.byte() % (bytes.size() + 1), in.byte() % 2 == 0);
  }

  void drive() noexcept {
    constexpr int rounds_max = 64;
    disturber_.begin(by_thread_);
    for (int n = 0; n < rounds_max; ++n) {
      const bool did = victim_.poll() || victim_.local_node().progress();
      const bool taken = !peer_.in.open() || peer_.in.all_taken();
      const bool answered = !peer_.back.open() || peer_.back.all_taken();
      if (!did && taken && answered) break;
      if (!did && (peer_.in.ended() || peer_.back.ended())) break;
      if (!did) ::sched_yield();
    }
    disturber_.end();
    peer_.serve_listener();
    settle(peer_.in);
    settle(peer_.back);
  }

  static void settle(hostile_link& route) noexcept {
    if (!route.open()) return;
    route.take_all();
    if (route.ended()) route.close();
  }

  victim victim_;
  peer peer_;
  disturber disturber_;
  bool by_thread_ = false;
  bool gentle_ = false;
};

}  // namespace
}  // namespace softverbs::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  // Never destroyed: the process ends with the fuzzer, its node's engine at work.
  static auto& stage = *new softverbs::fuzz::stage;
  softverbs::fuzz::script in{bytes, size};
  stage.run(in);
  return 0;
}
