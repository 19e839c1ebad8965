#include "two_processes.hpp"

#include "stack_offsets.hpp"

#include <support/access.hpp>
#include <support/device.hpp>

#include <cordma/verbs/gid.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <stdexcept>

namespace bench {
namespace {

using namespace cordma;

constexpr verbs::queue_pair_capabilities capabilities{.send_wr_max = queue_depth,
                                                      .recv_wr_max = queue_depth};
constexpr unsigned cq_depth = 4 * queue_depth;
/// The wr_id of the raw requests that somebody waits for.
constexpr std::uint64_t awaited = 1;
using support::raw::check;

constexpr unsigned this_processor = 0, other_processor = 1;

completion_mode mode_of(noticing how) {
  switch (how) {
    case noticing::busy: return completion_mode::busy;
    case noticing::event: return completion_mode::event;
    default: return completion_mode::adaptive;
  }
}

/// Makes a channel that blocks in ibv_get_cq_event, unlike ours.
std::unique_ptr<verbs::completion_channel> blocking_channel(verbs::context& ctx) {
  auto channel = std::make_unique<verbs::completion_channel>(ctx);
  const int flags = ::fcntl(channel->fd(), F_GETFL);
  if (::fcntl(channel->fd(), F_SETFL, flags & ~O_NONBLOCK) != 0) check(errno, "fcntl");
  return channel;
}

struct order_of_work {
  std::uint32_t what;
  std::uint64_t n;
};

void send_all(int socket, const void* bytes, std::size_t size) {
  if (::send(socket, bytes, size, MSG_NOSIGNAL) != ssize_t(size)) {
    throw std::runtime_error{"the other process is gone"};
  }
}
bool receive_all(int socket, void* bytes, std::size_t size) {
  return ::recv(socket, bytes, size, MSG_WAITALL) == ssize_t(size);
}

}  // namespace

raw_side::raw_side(verbs::context& ctx, verbs::protection_domain& pd, noticing how)
    : how_{how},
      channel_{how == noticing::busy ? nullptr : blocking_channel(ctx)},
      cq_{ctx, cq_depth, channel_.get()},
      qp_{pd, cq_, cq_, capabilities} {
  if (how == noticing::by_the_manual) arm();
}

void raw_side::arm() {
  check(cq_.arm(), "ibv_req_notify_cq");
  ++arms;
  is_armed_ = true;
}

void raw_side::get_event() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (::ibv_get_cq_event(channel_->native_handle(), &cq, &context) != 0)
    check(errno, "ibv_get_cq_event");
  ++blocked;
  ::ibv_ack_cq_events(cq, 1);
  is_armed_ = false;
}

void raw_side::post(support::raw::request&& what) {
  what.wr.wr_id = awaited;
  support::raw::post(qp_, what);
}

void raw_side::post_seldom_signaled(support::raw::request&& what) {
  if (++unsignaled_ == link_depth / 2)
    unsignaled_ = 0;
  else
    what.wr.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
  support::raw::post(qp_, what);
}

void raw_side::poll() {
  support::raw::poll(cq_, [this](const ibv_wc& wc) {
    if ((wc.opcode & IBV_WC_RECV) != 0) {
      ++messages;
    } else if (wc.wr_id == awaited) {
      ++sent;
    }
    ++completions;
  });
}

void raw_side::reap() {
  std::uint64_t before = completions;
  if (how_ == noticing::by_the_manual) {
    get_event();
    arm();
    do {
      before = completions;
      poll();
    } while (completions != before);
    return;
  }
  poll();
  if (channel_ == nullptr || completions != before) return;
  if (!is_armed_) {
    arm();
    poll();  // An entry that came before the arming raises no event.
    if (completions != before) return;
  }
  get_event();
  poll();
}

void raw_side::await_message() {
  while (messages == 0) reap();
  --messages;
}

void raw_side::await_sent() {
  while (sent == 0) reap();
  --sent;
}

our_side::our_side(verbs::context& ctx, verbs::protection_domain& pd, noticing how,
                   std::size_t message_max_bytes)
    : driver{executor, ctx, {.depth = cq_depth, .mode = mode_of(how)}},
      qp{driver, pd, capabilities, message_max_bytes} {}

link_end::link_end(std::size_t message_bytes)
    : ctx{test::device_name()},
      port{ctx.active_port()},
      message_bytes_{message_bytes},
      pd_{ctx},
      memory_{pd_, {.access = test::all_access}},
      buffer_{memory_.allocate_zeroed(buffer_bytes)} {
  raw_ = {std::make_unique<raw_side>(ctx, pd_, noticing::busy),
          std::make_unique<raw_side>(ctx, pd_, noticing::event),
          std::make_unique<raw_side>(ctx, pd_, noticing::by_the_manual)};
  for (std::size_t i = 0; i < ours_.size(); ++i) {
    ours_[i] = std::make_unique<our_side>(ctx, pd_, noticing(i), port.message_max_bytes);
  }
  if (message_bytes > inbox_offset) throw std::runtime_error{"such long messages have no room"};
  const auto start = reinterpret_cast<std::uint64_t>(buffer_.bytes().data());
  out_ = {.addr = start, .length = std::uint32_t(message_bytes), .lkey = buffer_.slice().lkey()};
  in_ = {.addr = start + receive_offset,
         .length = std::uint32_t(message_bytes),
         .lkey = buffer_.slice().lkey()};
  inline_max_ = raw_[0]->qp().capabilities().inline_max;
}

template <class Body>
void link_end::each_queue_pair(Body body) {
  std::size_t i = 0;
  for (auto& raw : raw_) body(raw->qp(), i++);
  for (auto& our : ours_) body(our->qp.verbs(), i++);
}

link_end::address link_end::own_address() {
  const remote_mr_slice here = buffer_.remote_slice();
  address mine{.gid = verbs::choose_gid(ctx.gid_table(port.number)).gid,
               .lid = port.lid,
               .memory = here.address(),
               .rkey = here.rkey(),
               .queue_pairs = {}};
  each_queue_pair([&](verbs::queue_pair& qp, std::size_t i) { mine.queue_pairs[i] = qp.num(); });
  return mine;
}

void link_end::connect(const address& other) {
  const verbs::gid_entry gid = verbs::choose_gid(ctx.gid_table(port.number));
  each_queue_pair([&](verbs::queue_pair& qp, std::size_t i) {
    qp.to_init(port.number, 0, test::all_access);
    qp.to_rtr({.peer = verbs::address_vector::by_gid(other.gid, gid.index, other.lid),
               .path_mtu = port.mtu_active,
               .dest_qpn = other.queue_pairs[i],
               .dest_rd_atomic_max = ctx.limits().qp_rd_atom_max,
               .min_rnr_timer = 25});
    qp.to_rts({.rd_atomic_max = ctx.limits().qp_init_rd_atom_max, .rnr_retry = 6});
  });
  for (unsigned i = 0; i < queue_depth; ++i) {
    for (auto& raw : raw_) raw->post_receive(raw_receive());
    for (auto& our : ours_) our->qp.post_recv(inbox());
  }
  there_ = remote_mr_slice{other.memory + inbox_offset, message_bytes_, other.rkey};
}

std::uint8_t link_end::arrived() noexcept {
  // The device writes it, a thread of which may be another. Nothing is read on its word.
  std::byte* const last = buffer_.bytes().data() + inbox_offset + message_bytes_ - 1;
  return std::uint8_t(std::atomic_ref<std::byte>{*last}.load(std::memory_order_acquire));
}

void link_end::number_outbox(std::uint8_t number) noexcept {
  buffer_.bytes()[message_bytes_ - 1] = std::byte{number};
}

std::unique_ptr<link_end> two_processes::meet(int socket, std::size_t message_bytes) {
  auto end = std::make_unique<link_end>(message_bytes);
  const link_end::address mine = end->own_address();
  send_all(socket, &mine, sizeof mine);
  link_end::address theirs{};
  if (!receive_all(socket, &theirs, sizeof theirs)) {
    throw std::runtime_error{"the other process is gone"};
  }
  end->connect(theirs);
  // The ends send only once both are connected.
  char is_there = 1;
  send_all(socket, &is_there, 1);
  if (!receive_all(socket, &is_there, 1)) throw std::runtime_error{"the other process is gone"};
  return end;
}

two_processes::two_processes(servant serve, std::size_t message_bytes) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    check(errno, "socketpair");
  }
  other_ = ::fork();
  if (other_ < 0) check(errno, "fork");
  socket_ = sockets[other_ == 0 ? 1 : 0];
  ::close(sockets[other_ == 0 ? 0 : 1]);
  if (other_ == 0) live(serve, message_bytes);
  pinned_ = std::make_unique<pinned>(this_processor);
  here_ = meet(socket_, message_bytes);
}

/// The other process's life.
void two_processes::live(servant serve, std::size_t message_bytes) const {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    const pinned here{other_processor};
    const std::unique_ptr<link_end> end = meet(socket_, message_bytes);
    order_of_work order;
    // The two sides of a comparison run at one place; this end is not at the other end's place.
    for (std::uint64_t n = 0; receive_all(socket_, &order, sizeof order); ++n)
      at_offset(n / 2 * 5, [&] { serve(*end, order.what, order.n); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the other process: %s\n", error.what());
  }
  ::_exit(0);
}

two_processes::~two_processes() {
  // The other process may wait for a message that will never come.
  ::kill(other_, SIGKILL);
  ::waitpid(other_, nullptr, 0);
  ::close(socket_);
}

void two_processes::order(unsigned what, std::uint64_t n) const {
  const order_of_work order{what, n};
  send_all(socket_, &order, sizeof order);
}

}  // namespace bench
