#include "support/hostile_peer.hpp"

#include "queue/send_queue.hpp"
#include "support/device.hpp"
#include "support/raw_verbs.hpp"

#include <cordma/io/reactor.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

namespace cordma::test {
namespace {

using agent_protocol::frame_bytes;

/// The tested code waits for no descriptor.
class idle_reactor final : public reactor {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "none"; }
  void enable() override {}
  void watch(fd_watch& /*w*/) override {}
  void unwatch(fd_watch& /*w*/) noexcept override {}
  void set_alarm(time_point /*at*/) noexcept override {}
  void poll() noexcept override {}
  void wait() noexcept override {}
  void wake() noexcept override {}
};

executor_options by_hand(const manual_clock& clock) {
  executor_options o;
  o.clock = &clock;
  o.reactor = std::make_unique<idle_reactor>();
  return o;
}

constexpr verbs::queue_pair_capabilities data_capabilities{
    .send_wr_max = 16 + agent::reserved_slots,
    .recv_wr_max = 8,
    .send_sge_max = 2,
    .recv_sge_max = 1,
    .inline_max = 64};
constexpr verbs::queue_pair_capabilities peer_capabilities{.send_wr_max = hostile_peer::sends,
                                                           .recv_wr_max = hostile_peer::receives,
                                                           .send_sge_max = 1,
                                                           .recv_sge_max = 1,
                                                           .inline_max = 0};

void bring_up(const agent_world& w, verbs::queue_pair& qp, std::uint32_t peer_num) {
  qp.to_rtr({.peer = verbs::address_vector::by_gid(w.gid.gid, w.gid.index, w.port.lid),
             .path_mtu = w.port.mtu_active,
             .dest_qpn = peer_num,
             .dest_rd_atomic_max = 4,
             .min_rnr_timer = 25});
  qp.to_rts({.rd_atomic_max = 4});
}

}  // namespace

agent_world::agent_world()
    : executor{by_hand(clock)},
      ctx{device_name()},
      port{ctx.active_port()},
      gid{verbs::choose_gid(ctx.gid_table(port.number))},
      pd{ctx},
      driver{executor, ctx, {.depth = 1024, .mode = completion_mode::manual}},
      memory{pd, {.access = verbs::access::local_write | verbs::access::mw_bind}},
      lending{ctx, pd} {}

std::size_t agent_world::iterate() noexcept {
  std::size_t did = executor.run_ready();
  did += executor.fire_due();
  return did + driver.reap();
}

// ---- the victim ---------------------------------------------------------------------------------

victim::victim(agent_world& world, const agent_options& options, shared_receives* pool)
    : world_{world},
      data_{world.driver, world.pd, data_capabilities, world.port.message_max_bytes, pool} {
  using enum verbs::access;
  data_.verbs().to_init(world.port.number, 0, remote_read | remote_write | remote_atomic | mw_bind);
  agent_ = std::make_unique<agent>(agent_resources{.data = data_,
                                                   .lending = world.lending,
                                                   .memory = world.memory,
                                                   .port = world.port,
                                                   .gid = world.gid},
                                   options);
  agent_->control().verbs().to_init(world.port.number, 0, none);
  agent_->post_receives();
}

void victim::start(const remote_mr_slice& flush_word) {
  data_watch_.emplace(*this, data_, &on_failure);
  static_cast<void>(data_watch_->wait.start(*data_watch_, {&world_.executor, {}}));
  control_watch_.emplace(*this, agent_->control(), &on_agent_failure);
  static_cast<void>(control_watch_->wait.start(*control_watch_, {&world_.executor, {}}));
  agent_->start(flush_word, expected);
}

std::coroutine_handle<> victim::on_failure(waiter& self) noexcept {
  victim& v = static_cast<watch&>(self).of;
  v.agent_->fail(v.data_.failure_reason().to_failure(v.data_.verbs().num()));
  v.agent_->control().abort(v.data_.failure_reason());
  return std::noop_coroutine();
}

std::coroutine_handle<> victim::on_agent_failure(waiter& self) noexcept {
  static_cast<watch&>(self).of.cut_off(errc::disconnected);
  return std::noop_coroutine();
}

void victim::cut_off(errc why) noexcept {
  data_.abort({.code = why, .call = "test"});
  agent_->fail(data_.failure_reason().to_failure(data_.verbs().num()));
  agent_->control().abort(data_.failure_reason());
}

// ---- its peer -----------------------------------------------------------------------------------

hostile_peer::hostile_peer(agent_world& world, victim& v, std::uint32_t receives_posted)
    : pd_{world.ctx},
      memory_{static_cast<std::byte*>(::operator new(bytes, std::align_val_t{page_bytes}))},
      registration_{pd_, memory_.get(), bytes,
                    verbs::access::local_write | verbs::access::remote_read |
                        verbs::access::remote_write | verbs::access::remote_atomic},
      cq_{world.ctx, 2 * (sends + receives) + data_receives},
      data_{pd_, cq_, cq_, peer_capabilities},
      control_{pd_, cq_, cq_, peer_capabilities} {
  std::memset(memory_.get(), 0, bytes);
  using enum verbs::access;
  for (verbs::queue_pair* const qp : {&data_, &control_})
    qp->to_init(world.port.number, 0, remote_read | remote_write | remote_atomic);
  for (std::uint32_t n = 0; n < receives_posted; ++n) post_receive(n);
  bring_up(world, data_, v.data().verbs().num());
  bring_up(world, control_, v.self().control().verbs().num());
  bring_up(world, v.data().verbs(), data_.num());
  bring_up(world, v.self().control().verbs(), control_.num());
  v.start({address(), cordma::lending::flush_bytes, rkey()});
}

void hostile_peer::post_receive(std::uint32_t index) {
  const ibv_sge into =
      support::raw::piece(memory_.get() + index * frame_bytes, frame_bytes, registration_.lkey());
  static_cast<void>(support::raw::try_post(control_, support::raw::receive{into, index}));
}

/// Places in `memory_` of what is said, and of what is heard on the data queue pair.
namespace at {
constexpr std::size_t said = hostile_peer::receives * frame_bytes;
constexpr std::size_t said_data = said + hostile_peer::sends * hostile_peer::message_bytes_max;
constexpr std::size_t heard_data =
    said_data + hostile_peer::sends * hostile_peer::message_bytes_max;
}  // namespace at

/// The wr_ids of the peer's requests.
constexpr std::uint64_t said_id = hostile_peer::receives;
constexpr std::uint64_t data_id = said_id + 1;

void hostile_peer::listen_to_data() {
  for (std::uint32_t n = 0; n < data_receives; ++n) post_data_receive(n);
}

void hostile_peer::post_data_receive(std::uint32_t index) {
  const ibv_sge into =
      support::raw::piece(memory_.get() + at::heard_data + index * message_bytes_max,
                          message_bytes_max, registration_.lkey());
  static_cast<void>(support::raw::try_post(data_, support::raw::receive{into, data_id + index}));
}

void hostile_peer::hear_data(std::span<const std::byte> message) {
  heard_frame& f = heard_data.emplace_back(heard_frame{message_protocol::decode(message)});
  const auto payload = message.subspan(message_protocol::size_of(f.kind));
  std::ranges::copy(payload, f.bytes.begin());
  f.size_bytes = payload.size();
}

std::span<std::byte> hostile_peer::landing() noexcept {
  return {memory_.get() + bytes - landing_bytes, landing_bytes};
}

void hostile_peer::say(frame f, std::uint32_t lie) {
  f.taken = taken + lie;
  const agent_protocol::frame_bytes_t message = agent_protocol::encode(f);
  say(message);
}

void hostile_peer::say(std::span<const std::byte> message, ibv_wr_opcode how) {
  send(control_, message, how, memory_.get() + at::said + said_++ % sends * message_bytes_max);
}

void hostile_peer::say_data(std::span<const std::byte> message, ibv_wr_opcode how,
                            std::uint32_t rkey) {
  send(data_, message, how,
       memory_.get() + at::said_data + said_data_++ % sends * message_bytes_max, rkey);
}

void hostile_peer::send(verbs::queue_pair& qp, std::span<const std::byte> message,
                        ibv_wr_opcode how, std::byte* from, std::uint32_t rkey) {
  std::ranges::copy(message.first(std::min(message.size(), message_bytes_max)), from);
  support::raw::request said{how, support::raw::piece(from, message.size(), registration_.lkey())};
  said.wr.wr_id = said_id;
  said.wr.num_sge = message.empty() ? 0 : 1;
  said.wr.invalidate_rkey = rkey;
  static_cast<void>(support::raw::try_post(qp, said));
}

std::size_t hostile_peer::listen() {
  std::array<ibv_wc, 32> wcs;
  std::size_t all = 0;
  int n = 0;
  do {
    n = std::max(cq_.poll(wcs), 0);
    all += std::size_t(n);
    for (const ibv_wc& wc : std::span{wcs}.first(std::size_t(n))) {
      const bool is_data = wc.qp_num == data_.num();
      if (is_data && wc.wr_id == 0) reached = wc.status;
      if (is_data && wc.wr_id >= data_id && wc.status == IBV_WC_SUCCESS) {
        const std::size_t index = wc.wr_id - data_id;
        ++data_taken;
        hear_data({memory_.get() + at::heard_data + index * message_bytes_max, wc.byte_len});
        post_data_receive(std::uint32_t(index));
      }
      if (wc.status != IBV_WC_SUCCESS || wc.qp_num == data_.num() || wc.wr_id >= receives) continue;
      ++taken;
      heard.push_back(agent_protocol::decode(
          {memory_.get() + wc.wr_id * frame_bytes, std::size_t{wc.byte_len}}));
      if (posts_again) post_receive(std::uint32_t(wc.wr_id));
    }
  } while (std::size_t(n) == wcs.size());
  return all;
}

void hostile_peer::reach(ibv_wr_opcode how, std::uint64_t address, std::uint32_t length,
                         std::uint32_t rkey) {
  reached.reset();
  static_cast<void>(support::raw::try_post(
      data_,
      support::raw::request{how,
                            support::raw::piece(landing().data(), length, registration_.lkey()),
                            {address, rkey}}));
}

void hostile_peer::die() {
  data_.to_error();
  control_.to_error();
}

}  // namespace cordma::test
