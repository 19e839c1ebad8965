#pragma once

#include "agent/agent.hpp"
#include "agent/protocol.hpp"
#include "cm_peers.hpp"
#include "support/raw_verbs.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Clients of rdma_cm whose every word is recorded, and clients that say those words again.
namespace cordma::test {

using control_frame = agent_protocol::frame_bytes_t;

/// Keeps the frames that a device's queue pairs send while the recorder is there.
class send_recorder {
 public:
  explicit send_recorder(verbs::context& ctx) : ops_{ctx.native_handle()->ops} {
    sent.clear();
    real = std::exchange(ops_.post_send, &post);
  }
  send_recorder(const send_recorder&) = delete;
  send_recorder& operator=(const send_recorder&) = delete;
  ~send_recorder() { ops_.post_send = real; }

  [[nodiscard]] static std::vector<control_frame> sent_by(std::uint32_t qpn) { return sent[qpn]; }

 private:
  static int post(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    for (const ibv_send_wr* one = wr; one != nullptr; one = one->next) {
      control_frame f;
      if (one->num_sge != 1 || one->sg_list->length != f.size()) continue;
      std::memcpy(f.data(), reinterpret_cast<const void*>(one->sg_list->addr), f.size());
      sent[qp->qp_num].push_back(f);
    }
    return real(qp, wr, bad);
  }
  static inline std::map<std::uint32_t, std::vector<control_frame>> sent;
  static inline decltype(ibv_context_ops::post_send) real = nullptr;
  ibv_context_ops& ops_;
};

/// Where the frames of a client without credentials have what differs from one client to the next.
inline constexpr std::size_t agent_qpn_at = 96;
inline constexpr std::size_t hello_nonce_at = 192;
inline constexpr std::size_t verdict_nonce_at = handshake::frame_bytes + 16;

/// All that one client has sent, from its request on.
struct cm_recording {
  handshake::start_bytes_t request{};  ///< The request's private data.
  std::vector<control_frame> frames{};

  [[nodiscard]] bool has_tls() const noexcept { return request[9] != std::byte{0}; }
  [[nodiscard]] agent_protocol::frame at(std::size_t n) const {
    return agent_protocol::decode(frames[n]);
  }
  /// Returns how many frames a listener must have to know that they are another's. Without TLS
  /// these are the hello's, and the verdict's where the hello names the right queue pair. With TLS
  /// the last of them ends the first record under its secrets: a frame that is not full.
  [[nodiscard]] std::size_t refusable(bool names_right_qpn = false) const {
    std::size_t n = 0;
    while (at(n).taken == 0) ++n;
    if (!has_tls()) return names_right_qpn ? 2 * n : n;
    while (at(n).status == sizeof(agent_protocol::payload)) ++n;
    return n + 1;
  }
  /// Replaces bytes of the bootstrap, counted from the first one.
  void put(std::size_t offset, std::span<const std::byte> bytes) {
    constexpr std::size_t payload_at = 8;
    constexpr std::size_t payload_bytes = sizeof(agent_protocol::payload);
    for (std::size_t n = 0; n < bytes.size(); ++n, ++offset)
      frames[offset / payload_bytes][payload_at + offset % payload_bytes] = bytes[n];
  }
};

/// Lets a client connect and borrow memory. Returns all that it has sent until then.
inline task<cm_recording> recorded(cm_runtime& r, listener& acceptor,
                                   const connection_options& options) {
  const send_recorder recorder{r.rt.context()};
  auto [client, server] =
      co_await when_all(r.rt.connect(acceptor.local_endpoint(), options), acceptor.accept());
  const remote_mr borrowed = co_await client.request_remote_mr(64);
  handshake::start start = detail::make_start(options);
  start.nonce = client.local_hello().nonce;
  cm_recording all{.request = handshake::encode(start)};
  all.frames = recorder.sent_by(client.agent()->control().verbs().num());
  co_return all;
}

/// A client with an id and a queue pair of its own, which says what was recorded of another.
class cm_replayer {
 public:
  cm_replayer(cm_runtime& r, cm_recording recording)
      : said{std::move(recording)},
        executor_{r.rt.executor()},
        pd_{r.rt.context()},
        buffers_(receives + said.frames.size()),
        mr_{pd_, buffers_.data(), buffers_.size() * sizeof(control_frame),
            verbs::access::local_write},
        cq_{r.rt.context(), std::uint32_t(buffers_.size())},
        qp_{pd_,
            cq_,
            cq_,
            {.send_wr_max = std::uint32_t(said.frames.size()), .recv_wr_max = receives}},
        id_{r.events()} {}

  void name_own_queue_pair() {
    std::array<std::byte, 4> qpn;
    for (unsigned n = 0; n < qpn.size(); ++n) qpn[n] = std::byte(qp_.num() >> 8 * n);
    said.put(agent_qpn_at, qpn);
  }
  task<> connect(socket_address to) {
    co_await id_.resolve(to);
    const cm::init_attributes init = id_.init();
    qp_.to_init(init.port, init.pkey_index);
    for (std::uint32_t n = 0; n < receives; ++n) post_receive(n);
    co_await id_.connect(qp_.num(), said.request, own_);
    qp_.to_rtr(id_.rtr(own_));
    qp_.to_rts(id_.rts(own_));
    id_.establish();
  }
  /// Sends the frames up to `end` that were not sent yet. Each waits until as many of the
  /// listener's have come as it counts, or all go at once. A listener that has ended is sent
  /// nothing.
  task<> say(std::size_t end, bool at_once = false) {
    for (; said_ < end; ++said_) {
      if (!at_once) co_await heard(said.at(said_).taken);
      if (has_ended()) co_return;
      control_frame& slot = buffers_[receives + said_] = said.frames[said_];
      support::raw::request frame{IBV_WR_SEND, piece(slot)};
      frame.wr.wr_id = receives;
      support::raw::post(qp_, frame);
    }
  }
  /// Ends when that many frames of the listener's have come, or its end.
  task<> heard(std::size_t count) {
    co_await until(executor_, [&] { return listen(), heard_.size() >= count || has_ended(); });
  }
  /// Ends when the device has delivered what was said.
  task<> delivered() {
    co_await until(executor_, [&] { return listen(), sent_ == said_ || has_ended(); });
  }
  /// Ends with the listener, and gives the refusal that came last; no code if there is none.
  task<failure> told() {
    co_await until(executor_, [&] { return listen(), has_ended(); });
    const std::vector<std::byte> all = heard_bytes();
    if (all.size() < handshake::frame_bytes) co_return failure{};
    const handshake::frame last = handshake::decode(std::span{all}.last<handshake::frame_bytes>());
    const auto* const verdict = std::get_if<handshake::verdict>(&last);
    co_return verdict == nullptr ? failure{} : verdict->to_failure();
  }
  /// Gives the bytes of the bootstrap that the listener has sent.
  [[nodiscard]] std::vector<std::byte> heard_bytes() const {
    std::vector<std::byte> all;
    for (const agent_protocol::frame& f : heard_) {
      const auto content = agent_protocol::payload_of(f);
      if (f.kind == agent_protocol::kind::bytes && f.status <= content.size())
        all.insert(all.end(), content.begin(), content.begin() + f.status);
    }
    return all;
  }
  [[nodiscard]] bool has_memory() {
    listen();
    return std::ranges::any_of(
        heard_, [](const auto& f) { return f.kind == agent_protocol::kind::granted; });
  }

  cm_recording said;

 private:
  static constexpr std::uint32_t receives = agent_protocol::credits;

  [[nodiscard]] ibv_sge piece(const control_frame& at) const noexcept {
    return support::raw::piece(at.data(), at.size(), mr_.lkey());
  }
  void post_receive(std::uint32_t n) {
    support::raw::post(qp_, support::raw::receive{piece(buffers_[n]), n});
  }
  void listen() {
    std::array<ibv_wc, receives> entries;
    const int count = cq_.poll(entries);
    for (const ibv_wc& wc : std::span{entries}.first(std::size_t(std::max(count, 0)))) {
      if (wc.status != IBV_WC_SUCCESS) {
        has_failed_ = true;
      } else if (wc.wr_id >= receives) {
        ++sent_;
      } else {
        heard_.push_back(agent_protocol::decode(buffers_[wc.wr_id]));
        post_receive(std::uint32_t(wc.wr_id));
      }
    }
  }
  [[nodiscard]] bool has_ended() const noexcept {
    const auto is_end = [](const agent_protocol::frame& f) {
      return f.kind == agent_protocol::kind::bytes && f.status == agent_protocol::end_frame.status;
    };
    return has_failed_ || id_.why_ended() || std::ranges::any_of(heard_, is_end);
  }

  cordma::executor& executor_;
  verbs::protection_domain pd_;
  std::vector<control_frame> buffers_;  // The receives', and then what is said.
  verbs::memory_region mr_;
  verbs::completion_queue cq_;
  verbs::queue_pair qp_;
  cm::id id_;
  const cm::parameters own_{.responder_resources = 0, .initiator_depth = 0};
  std::vector<agent_protocol::frame> heard_;
  std::size_t said_ = 0;
  std::size_t sent_ = 0;
  bool has_failed_ = false;
};

/// How a recording is said again.
struct cm_replay {
  std::size_t frames;    ///< Frames that are said. After too few to refuse, the client hangs up.
  bool at_once = false;  ///< The client does not wait for the listener's words.
  bool has_own_qpn = false;  ///< The hello names the queue pair that says it. Not with TLS.

  [[nodiscard]] std::string to_string() const {
    return "said again: " + std::to_string(frames) + (at_once ? " frames at once" : " frames") +
           (has_own_qpn ? " that name the right queue pair" : "");
  }
};

struct cm_replay_outcome {
  failure why{};   ///< The listener's; without a code it has given a connection.
  failure told{};  ///< The refusal that the client has heard, if it has waited.
  bool has_memory = false;
};

/// A new client says again what was recorded. The end comes when the listener has refused it, or
/// has not.
inline task<cm_replay_outcome> replayed(cm_runtime& r, listener& acceptor, cm_recording recording,
                                        cm_replay how) {
  cm_replay_outcome got;
  const listener_counters before = acceptor.counters();
  const auto is_over = [&] {
    return acceptor.counters().rejected > before.rejected ||
           acceptor.counters().completed > before.completed;
  };
  {
    const bool hangs_up = how.frames < recording.refusable(how.has_own_qpn) && !how.at_once;
    cm_replayer client{r, std::move(recording)};
    if (how.has_own_qpn) client.name_own_queue_pair();
    co_await client.connect(r.address_of(acceptor));
    co_await client.say(how.frames, how.at_once);
    if (hangs_up)
      co_await client.delivered();
    else
      co_await until(r.rt.executor(), is_over);
    const bool is_refused = acceptor.counters().rejected > before.rejected;
    if (is_refused && !hangs_up && !how.at_once) got.told = co_await client.told();
    got.has_memory = client.has_memory();
  }
  co_await until(r.rt.executor(), is_over);
  if (acceptor.counters().rejected > before.rejected) got.why = *acceptor.last_rejection();
  co_return got;
}

}  // namespace cordma::test
